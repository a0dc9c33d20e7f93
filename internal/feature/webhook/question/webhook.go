// Package question sends each approval question to the operator's chat: Slack, Teams, ntfy, or as plain JSON.
package question

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/feature/webhook/signature"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/hostrule"
	"waldo/internal/model/secret"
)

// Notifier posts a message for each question. It satisfies approval.Notifier. The arguments of the call stay here: a
// chat keeps what it is sent.
type Notifier struct {
	kernel Kernel
	now    func() time.Time
	slots  chan struct{}
}

// Kernel is the part of waldo that messages use. Its answers are those of the configuration in force.
type Kernel interface {
	Rules() contract.Approvals
	Secret(secret.Ref) (secret.Value, error)
	// LoginLink returns the token of a one-time login to the console at an address; empty: there is no console.
	LoginLink(ctx context.Context, console string) (string, error)
}

// Limits on the messages under way, the time of one, and its tries.
const (
	maxSending = 8
	sendTime   = 10 * time.Second
	tries      = 3
)

// New returns a notifier that reads the rules at each question.
func New(k Kernel) *Notifier {
	return &Notifier{kernel: k, now: time.Now, slots: make(chan struct{}, maxSending)}
}

// Name satisfies approval.Notifier.
func (*Notifier) Name() string { return "webhook" }

// Notify sends the question to every webhook. A failure is a message of waldo's own, without the address, which can
// hold a secret.
func (n *Notifier) Notify(ctx context.Context, q approval.Question) {
	for i, w := range n.kernel.Rules().Webhooks {
		select {
		case n.slots <- struct{}{}:
		default:
			slog.Warn("an approval webhook was not sent: too many are under way", "approval", q.ID, "webhook", i+1)
			continue
		}
		err := n.send(ctx, w, q)
		<-n.slots
		if err != nil {
			slog.Warn("an approval webhook failed", "approval", q.ID, "webhook", i+1, "format", w.Format, "why", err)
		}
	}
}

func (n *Notifier) send(ctx context.Context, w contract.ApprovalWebhook, q approval.Question) error {
	address, err := n.kernel.Secret(w.URL)
	if err != nil {
		return err
	}
	to, err := target(address.Reveal())
	if err != nil {
		return err
	}
	link := ""
	if w.Console != "" {
		link = strings.TrimSuffix(w.Console, "/") + "/approvals/" + q.ID
		token, err := n.kernel.LoginLink(ctx, w.Console)
		if err != nil {
			return err
		}
		if token != "" {
			link = strings.TrimSuffix(w.Console, "/") + "/login#" + token + "~" + q.ID
		}
	}
	body, kind, err := message(w.Format, q, link)
	if err != nil {
		return err
	}
	var key signature.Key
	if w.Key != "" {
		v, err := n.kernel.Secret(w.Key)
		if err != nil {
			return err
		}
		if key, err = keyOf(v.Reveal()); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		again, err := n.post(ctx, to, q, body, kind, key)
		if err == nil || !again || try == tries {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(try) * time.Second):
		}
	}
}

// keyOf reads the secret that signs: one of Standard Webhooks with its prefix, and any other text as it is.
func keyOf(text string) (signature.Key, error) {
	if strings.HasPrefix(text, signature.Prefix) {
		return signature.Standard.Key(text)
	}
	return signature.Raw(text), nil
}

// target checks an address: https, or http on this machine.
func target(address string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Host == "" {
		return nil, errors.New("the address of the webhook is not a URL")
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !hostrule.Loopback(u.Hostname())) {
		return nil, errors.New("a webhook is sent over https, or http on this machine")
	}
	return u, nil
}

// client follows no redirect: the message is for one address.
var client = &http.Client{
	Timeout: sendTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// post sends a message once. again: the receiver can take it later.
func (n *Notifier) post(
	ctx context.Context, to *url.URL, q approval.Question, body []byte, kind string, key signature.Key,
) (again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return false, errors.New("the address of the webhook is not a URL")
	}
	now := n.now()
	maps.Copy(r.Header, signature.Standard.Sign(key, q.ID, now, body))
	r.Header.Set("Content-Type", kind)
	a, err := client.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the address
		}
		return true, err
	}
	_ = a.Body.Close()
	if a.StatusCode/100 != 2 {
		return a.StatusCode/100 == 5 || a.StatusCode == http.StatusTooManyRequests,
			fmt.Errorf("the receiver answered %d", a.StatusCode)
	}
	return false, nil
}

// message returns the body and its type in a format. Names of the agent's choosing are made safe for one line.
func message(format string, q approval.Question, link string) (body []byte, kind string, err error) {
	kind = "application/json"
	what := plain(string(q.Capability))
	head := fmt.Sprintf("waldo asks: may %s run?", what)
	rest := fmt.Sprintf("danger %d of 3, asked by %s over %s, until %s. Answer: waldo approve %s", q.Danger,
		plain(string(q.Principal)), plain(q.Channel), q.Expires.UTC().Format(time.RFC3339), q.ID)
	var v any
	switch format {
	case "slack":
		text := slackText(head) + "\n" + slackText(rest)
		if link != "" {
			text += "\n<" + link + "|open the console>"
		}
		v = map[string]any{"text": text}
	case "teams":
		card := map[string]any{"type": "AdaptiveCard", "version": "1.4", "body": []any{
			map[string]any{"type": "TextBlock", "weight": "Bolder", "wrap": true, "text": markdown(head)},
			map[string]any{"type": "TextBlock", "wrap": true, "text": markdown(rest)}}}
		if link != "" {
			card["actions"] = []any{map[string]any{"type": "Action.OpenUrl", "title": "Open the console", "url": link}}
		}
		v = map[string]any{
			"type":        "message",
			"attachments": []any{map[string]any{"contentType": "application/vnd.microsoft.card.adaptive", "content": card}},
		}
	case "ntfy":
		text := head + "\n" + rest
		if link != "" {
			text += "\n" + link
		}
		return []byte(text), "text/plain; charset=utf-8", nil
	case "json":
		v = map[string]any{
			"type": "approval.asked", "approval_id": q.ID, "capability": q.Capability, "principal": q.Principal,
			"session": q.Session, "channel": q.Channel, "mode": q.Mode, "danger": q.Danger, "role": q.Role,
			"need": max(q.Need, 1), "created": q.Created, "expires": q.Expires, "digest": q.Digest(), "link": link,
		}
	default:
		return nil, "", fmt.Errorf("unknown format %q", format)
	}
	body, err = json.Marshal(v)
	return body, kind, err
}

// plain makes a name safe for one line of a chat, and short.
func plain(s string) string {
	if len(s) > 120 {
		s = s[:120] + "…"
	}
	return string(display.Line(s))
}

// slackText escapes the three characters of Slack's markup, so that no text mentions everybody or hides a link.
func slackText(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// markdown escapes the marks that Teams reads in a card.
func markdown(s string) string {
	return strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, "*", `\*`, "_", `\_`, "<", "&lt;", ">", "&gt;").Replace(s)
}
