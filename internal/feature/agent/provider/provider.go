// Package provider asks language models: the Messages API of Anthropic, chat completions as OpenAI has them, and
// Ollama. It knows no tool and no contract. A Chain asks the next provider where one fails.
package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"waldo/internal/feature/agent/chat"
	"waldo/internal/model/hostrule"
	"waldo/internal/model/secret"
	"waldo/internal/network/egress"
)

// Options describe one provider.
type Options struct {
	Kind      string // anthropic, openai or ollama
	URL       string // of its API, without the path of one method; empty: the usual one of its kind
	Model     string
	Key       func() (secret.Value, error) // fetched for each request; nil: not sent
	Transport http.RoundTripper            // made by Transport
	Silence   time.Duration                // the longest wait for the next part of an answer; 0: 2 minutes
}

// Provider is one model behind one API.
type Provider struct {
	o    Options
	api  api
	http *http.Client
}

// api is the wire format of one kind.
type api struct {
	usual  string // the address of the service
	path   string
	body   func(model string, r chat.Request) any
	header func(h http.Header, key string)
	read   func(r io.Reader, a *answer) error
}

var kinds = map[string]api{
	"anthropic": {"https://api.anthropic.com", "/v1/messages", anthropicBody, anthropicHeader, readAnthropic},
	"openai":    {"https://api.openai.com/v1", "/chat/completions", openaiBody, bearer, readOpenAI},
	"ollama":    {"http://127.0.0.1:11434", "/api/chat", ollamaBody, bearer, readOllama},
}

// Address returns the address of a provider: url, or the usual one of its kind.
func Address(kind, url string) string {
	if url == "" {
		url = kinds[kind].usual
	}
	return strings.TrimSuffix(url, "/")
}

// New returns a provider. It refuses an unknown kind.
func New(o Options) (*Provider, error) {
	k, ok := kinds[o.Kind]
	if !ok {
		return nil, fmt.Errorf("unknown kind of provider %q: it is anthropic, openai or ollama", o.Kind)
	}
	if o.Silence <= 0 {
		o.Silence = 2 * time.Minute
	}
	o.URL = Address(o.Kind, o.URL)
	return &Provider{o: o, api: k, http: &http.Client{Transport: o.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// Name returns kind and model, as in "ollama qwen2.5:7b".
func (p *Provider) Name() string { return p.o.Kind + " " + p.o.Model }

// Transport returns the way out to the one host and port of an address. internal reports which names can resolve to
// private addresses; addresses says where a host stands. It is an egress with one rule: it follows no redirect and
// uses no proxy of the environment.
func Transport(
	address string, internal func(host string) bool, addresses map[string][]netip.Prefix,
) (http.RoundTripper, error) {
	t, why := egress.ParseURL(address)
	if why != nil {
		return nil, why
	}
	host, err := hostrule.ParsePattern(t.Host)
	if err != nil {
		return nil, err
	}
	rule := egress.Rule{Host: host, Ports: []uint16{t.Port}, Internal: internal != nil && internal(t.Host)}
	rt := (&egress.Dialer{Policy: &egress.Policy{Rules: []egress.Rule{rule}, Addresses: addresses}}).Transport()
	rt.ResponseHeaderTimeout = 0 // a model can load for minutes; the silence of the provider is bounded instead
	return rt, nil
}

// Cause says what the caller can do about a Fault.
type Cause uint8

// The causes. The zero value is never tried again.
const (
	Rejected    Cause = iota // this provider does not take the request
	Overloaded               // it takes it later
	Unreachable              // no connection, or no answer in time
	Malformed                // the answer breaks the rules of the API
)

func (c Cause) String() string {
	return [...]string{"rejected", "overloaded", "unreachable", "malformed"}[c%4]
}

// Fault is why one request to a provider has no answer. Text is in part the provider's: it is not safe to print.
type Fault struct {
	Cause  Cause
	Status int // of HTTP; 0: none
	Text   string
	After  time.Duration // the provider asks to wait so long; 0: it does not say
}

func (f *Fault) Error() string {
	if f.Status != 0 && f.Status != http.StatusOK {
		return fmt.Sprintf("%s (HTTP %d): %s", f.Cause, f.Status, f.Text)
	}
	return fmt.Sprintf("%s: %s", f.Cause, f.Text)
}

func malformed(format string, a ...any) *Fault {
	return &Fault{Cause: Malformed, Text: fmt.Sprintf(format, a...)}
}

// errSilent ends a request whose provider sends nothing.
var errSilent = errors.New("the provider sent nothing for too long")

// ask sends one request and reads the answer. text gets its parts as they come. An error is a *Fault, or the end of
// ctx.
func (p *Provider) ask(ctx context.Context, r chat.Request, text func(string)) (chat.Reply, error) {
	body, err := json.Marshal(p.api.body(p.o.Model, r))
	if err != nil {
		return chat.Reply{}, &Fault{Cause: Rejected, Text: "the request could not be written: " + err.Error()}
	}
	quiet, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(p.o.Silence, func() { cancel(errSilent) })
	defer timer.Stop()
	q, err := http.NewRequestWithContext(quiet, http.MethodPost, p.o.URL+p.api.path, bytes.NewReader(body))
	if err != nil {
		return chat.Reply{}, &Fault{Cause: Rejected, Text: "the address of the provider is not a URL"}
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("User-Agent", "waldo")
	if err := p.authorize(q.Header); err != nil {
		return chat.Reply{}, err
	}
	w, err := p.http.Do(q)
	if err != nil {
		return chat.Reply{}, p.lost(ctx, quiet, err)
	}
	defer w.Body.Close()
	in := &watched{r: w.Body, more: func() { timer.Reset(p.o.Silence) }}
	if w.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(in, maxError)) // a part is enough to show
		return chat.Reply{}, failed(w, b)
	}
	a := &answer{text: text}
	if err := p.api.read(io.LimitReader(in, maxStream), a); err != nil {
		if f := (*Fault)(nil); errors.As(err, &f) && quiet.Err() == nil {
			return chat.Reply{}, f
		}
		return chat.Reply{}, p.lost(ctx, quiet, err)
	}
	reply, err := a.finish()
	reply.Provider = p.Name()
	return reply, err
}

// authorize adds the key. It is fetched here and goes nowhere else.
func (p *Provider) authorize(h http.Header) error {
	key := ""
	if p.o.Key != nil {
		v, err := p.o.Key()
		if err != nil {
			return &Fault{Cause: Rejected, Text: "its key: " + err.Error()}
		}
		key = v.Reveal()
		if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return &Fault{Cause: Rejected, Text: "its key cannot be sent: it must be visible ASCII without blanks"}
		}
	}
	p.api.header(h, key)
	return nil
}

// lost is the fault of a connection that failed. If the caller ended ctx, the provider has no fault.
func (p *Provider) lost(ctx, quiet context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(context.Cause(quiet), errSilent) {
		err = errSilent
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var no *egress.Refusal
	if errors.As(err, &no) {
		return &Fault{Cause: Rejected, Text: no.Error()}
	}
	return &Fault{Cause: Unreachable, Text: err.Error()}
}

// watched tells of each part that is read.
type watched struct {
	r    io.Reader
	more func()
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.r.Read(b)
	if n > 0 {
		w.more()
	}
	return n, err
}

// The bounds of an answer, in bytes, and of its calls.
const (
	maxError  = 64 << 10
	maxStream = 64 << 20 // on the wire, with the frames
	maxLine   = 4 << 20
	maxAnswer = 4 << 20 // texts and arguments
	maxCalls  = 64
	maxName   = 200
	maxShown  = 300 // of a provider's error
)

// failed reads an error answer.
func failed(w *http.Response, body []byte) *Fault {
	f := &Fault{Cause: Rejected, Status: w.StatusCode, Text: errorText(body), After: after(w.Header)}
	switch s := w.StatusCode; {
	case s == http.StatusTooManyRequests, s == http.StatusRequestTimeout, s >= 500:
		f.Cause = Overloaded
	}
	return f
}

// errorText returns the message in the body of an error: {"error":{"message":…}} or {"error":…}.
func errorText(body []byte) string {
	var e struct {
		Error json.RawMessage `json:"error"`
	}
	var in struct {
		Message string `json:"message"`
	}
	var plain string
	text := string(body)
	if json.Unmarshal(body, &e) == nil && len(e.Error) > 0 {
		switch {
		case json.Unmarshal(e.Error, &in) == nil && in.Message != "":
			text = in.Message
		case json.Unmarshal(e.Error, &plain) == nil:
			text = plain
		}
	}
	text = strings.ToValidUTF8(strings.TrimSpace(text), "�")
	if r := []rune(text); len(r) > maxShown {
		text = string(r[:maxShown]) + "…"
	}
	if text == "" {
		return "no message"
	}
	return text
}

// after reads how long a provider asks to wait, in seconds.
func after(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(min(n, 24*3600)) * time.Second
}

func bearer(h http.Header, key string) {
	if key != "" {
		h.Set("Authorization", "Bearer "+key)
	}
}
