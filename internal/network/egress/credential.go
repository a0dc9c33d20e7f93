package egress

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"waldo/internal/model/hostrule"
	"waldo/internal/model/secret"
	"waldo/internal/network/egress/sigv4"
)

// AuthScheme says how a secret goes into a request. The zero As puts it nowhere.
type AuthScheme uint8

// The ways in.
const (
	Header   AuthScheme = iota + 1 // Field: SECRET
	Bearer                         // Authorization: Bearer SECRET
	Basic                          // Authorization: Basic, with Field as the user
	Query                          // ?Field=SECRET
	SigV4                          // signed as Amazon Web Services want it
	Postgres                       // the password of the user Field at a PostgreSQL database
)

// Credential is a secret that egress adds to a sandbox's requests to one host, limited to its methods and paths. The
// sandbox holds a placeholder. Empty methods or paths match no request.
type Credential struct {
	Name            string // of the secret, for people
	Placeholder     string // the sandbox's stand-in for the secret
	Host            string
	Port            uint16
	Methods, Paths  []string
	As              AuthScheme
	Field           string
	Region, Service string                       // of SigV4
	Database        string                       // of Postgres
	Quoted          bool                         // bodies that go where the secret belongs may hold the placeholder: a model gets what a command printed
	Plain           bool                         // with Postgres: the server need not speak TLS
	Value           func() (secret.Value, error) // asked at each use: a secret may change while the sandbox lives
	KeyID, Token    func() (secret.Value, error) // of SigV4; Token can be nil
}

// NewPlaceholder returns the sandbox's stand-in for a secret: an unguessable word of letters and digits that URL
// encoding does not change.
func NewPlaceholder() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return "waldo" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

// check says why a credential cannot be used.
func (c Credential) check() error {
	switch {
	case len(c.Placeholder) < 20:
		return fmt.Errorf("secret %s: its placeholder could be guessed", c.Name)
	case hostrule.BadName(c.Host) != "" || c.Port == 0:
		return fmt.Errorf("secret %s: %q is not one host", c.Name, c.Host)
	case c.As == Postgres && c.Field != "" && c.Database != "" && c.Value != nil:
	case len(c.Methods) == 0 || len(c.Paths) == 0 ||
		slices.ContainsFunc(c.Paths, func(p string) bool { return hostrule.BadPath(p) != "" }):
		return fmt.Errorf("secret %s: it belongs to no request; name methods and paths", c.Name)
	case c.As < Header || c.As > SigV4 || c.Value == nil:
		return fmt.Errorf("secret %s: nothing says how it goes into a request", c.Name)
	case (c.As == Header || c.As == Basic || c.As == Query) && c.Field == "":
		return fmt.Errorf("secret %s: a header, a user or a parameter has a name", c.Name)
	case c.As == SigV4 && (c.KeyID == nil || c.Region == "" || c.Service == ""):
		return fmt.Errorf("secret %s: a signature needs the id of the key, the region and the service", c.Name)
	}
	return nil
}

func (c *Credential) at(t Target) bool {
	return c.As != Postgres && t.Scheme == "https" && t.Host == c.Host && t.Port == c.Port
}

func (c *Credential) fits(method string, t Target) bool {
	return c.at(t) && slices.Contains(c.Methods, method) && underPaths(c.Paths, t.Path)
}

// filled is a credential with the current values of its sources.
type filled struct {
	*Credential
	value, id, token string
}

// fill fetches the secret. A secret that is scrubbed from answers needs enough entropy. Otherwise the sandbox could
// send guesses to a host that echoes them, and the stars would show the right guess.
func (c *Credential) fill() (filled, *Refusal) {
	f := filled{Credential: c}
	for _, part := range []struct {
		from   func() (secret.Value, error)
		to     *string
		hidden bool
	}{{c.Value, &f.value, true}, {c.KeyID, &f.id, false}, {c.Token, &f.token, true}} {
		if part.from == nil {
			continue
		}
		v, err := part.from()
		if err != nil {
			return f, refuse("secret.missing", fmt.Sprintf("the secret %s cannot be had", c.Name))
		}
		*part.to = v.Reveal()
		if *part.to == "" || strings.ContainsFunc(*part.to, unicode.IsControl) {
			return f, refuse("secret.missing", fmt.Sprintf("no header can carry the secret %s", c.Name))
		}
		if bits := v.Bits(); part.hidden && bits < minBits {
			return f, refuse("secret.weak", fmt.Sprintf("the secret %s has about %d bits of entropy and needs %d: "+
				"the host's answers would tell which of many tries is right; use one that a generator made", c.Name, bits, minBits))
		}
	}
	return f, nil
}

// minBits is how much entropy a secret needs that the egress adds to requests.
const minBits = 64

// clear takes out of a request what the client has put where the credential goes.
func (c *Credential) clear(r *http.Request, t *Target) {
	r.Header.Del("Authorization")
	switch c.As {
	case Header:
		want := canonical(c.Field)
		for name := range r.Header {
			if canonical(name) == want {
				delete(r.Header, name)
			}
		}
	case Query:
		t.withoutParameters(func(name string) bool { return plainName(name) == plainName(c.Field) })
	case SigV4:
		for _, name := range []string{"X-Amz-Date", "X-Amz-Security-Token"} {
			r.Header.Del(name)
		}
	}
}

// add puts the secret into a request that is about to go out. hash is of its body, for signatures.
func (f filled) add(out *http.Request, hash string, now time.Time) {
	switch f.As {
	case Header:
		out.Header.Set(f.Field, f.value)
	case Bearer:
		out.Header.Set("Authorization", "Bearer "+f.value)
	case Basic:
		out.SetBasicAuth(f.Field, f.value)
	case Query:
		part := url.QueryEscape(f.Field) + "=" + url.QueryEscape(f.value)
		if out.URL.RawQuery != "" {
			part = "&" + part
		}
		out.URL.RawQuery += part
	case SigV4:
		sigv4.Sign(out, hash, sigv4.Key{ID: f.id, Secret: f.value, Token: f.token, Region: f.Region, Service: f.Service}, now)
	}
}

// maxSigned is how large a body may be that is read whole because its hash must come first.
const maxSigned = 16 << 20

var errSigned = refuse("secret.signature", "a body that is signed has at most 16 MiB")

// hashes reports whether the body of a request that is signed must be read before any of it is sent.
func hashes(r *http.Request) bool {
	return r.Header.Get("X-Amz-Content-Sha256") == "" && r.Body != nil && r.Body != http.NoBody
}

// bodyHash is the body hash for the signature: the client's declared value, or the computed hash.
func bodyHash(r *http.Request) (string, *Refusal) {
	said := r.Header.Get("X-Amz-Content-Sha256")
	switch {
	case strings.HasPrefix(said, "STREAMING-AWS4-"):
		return "", refuse("secret.signature",
			"the body is signed piece by piece with a key that the sandbox does not have: send it whole, or unsigned")
	case said == "UNSIGNED-PAYLOAD" || said == "STREAMING-UNSIGNED-PAYLOAD-TRAILER":
		return said, nil
	case len(said) == 2*sha256.Size && strings.Trim(said, "0123456789abcdef") == "":
		return said, nil
	case said != "":
		return "", refuse("secret.signature", "X-Amz-Content-Sha256 says nothing that is known")
	case r.Body == nil || r.Body == http.NoBody:
		return sigv4.Empty, nil
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, maxSigned+1))
	if err != nil || len(b) > maxSigned {
		return "", errSigned
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	r.ContentLength, r.TransferEncoding = int64(len(b)), nil
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// marks finds placeholders in a sandbox's requests.
type marks struct {
	needles [][]byte
	longest int
}

func newMarks(creds []Credential) *marks {
	if len(creds) == 0 {
		return nil
	}
	m := &marks{}
	for _, c := range creds {
		m.needles = append(m.needles, []byte(c.Placeholder))
		for o := range 3 { // base64, wherever in its groups of three bytes the placeholder begins
			e := base64.RawStdEncoding.EncodeToString([]byte("\x00\x00"[:o] + c.Placeholder))
			m.needles = append(m.needles, []byte(e[[]int{0, 2, 3}[o]:(o+len(c.Placeholder))*8/6]))
		}
	}
	for _, n := range m.needles {
		m.longest = max(m.longest, len(n))
	}
	return m
}

func (m *marks) in(b []byte) bool {
	return m != nil && slices.ContainsFunc(m.needles, func(n []byte) bool { return bytes.Contains(b, n) })
}

// out returns a name without the placeholders in it.
func (m *marks) out(name string) string {
	for _, n := range m.needles {
		name = strings.ReplaceAll(strings.ToLower(name), strings.ToLower(string(n)), "(placeholder)")
	}
	return name
}

// inRequest reports whether a placeholder stands in the head of a request.
func (m *marks) inRequest(r *http.Request, t Target) bool {
	if m == nil {
		return false
	}
	plain, _ := url.QueryUnescape(t.Path)
	if m.in([]byte(t.Path)) || m.in([]byte(plain)) || m.in([]byte(strings.ToLower(r.Host))) {
		return true
	}
	for _, h := range []http.Header{r.Header, r.Trailer} {
		for name, values := range h {
			if m.in([]byte(strings.ToLower(name))) ||
				slices.ContainsFunc(values, func(v string) bool { return m.in([]byte(v)) }) {
				return true
			}
		}
	}
	return false
}

// maxLooked bounds a body that is scanned completely before it is sent. A larger body is scanned while it is sent,
// and a host can answer before its end.
const maxLooked = 64 << 10

// looks reports whether a body is of known length and looked at before anything is sent.
func (m *marks) looks(r *http.Request) bool {
	return m != nil && r.Body != nil && r.ContentLength > 0 && r.ContentLength <= maxLooked
}

// inBody reports whether a placeholder stands in such a body.
func (m *marks) inBody(r *http.Request) bool {
	if !m.looks(r) {
		return false
	}
	b := make([]byte, r.ContentLength)
	n, err := io.ReadFull(r.Body, b)
	rest := r.Body
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(b[:n]), &failing{rest, err}), rest}
	return m.in(b[:n])
}

// failing ends a body as it ended when it was looked at.
type failing struct {
	io.Reader
	err error
}

func (f *failing) Read(b []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return f.Reader.Read(b)
}

// errPlaceholder ends what a sandbox sends with a placeholder where the secret does not belong.
var errPlaceholder = refuse("secret.placeholder", "a placeholder of a secret was sent where the secret does not belong")

// watched reads a sandbox's bytes until a placeholder is in them, and nothing after one.
type watched struct {
	io.ReadCloser
	m     *marks
	tail  []byte // the last bytes before: a placeholder may be cut
	ended bool
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if w.ended = w.ended || w.keep(b[:n]); w.ended {
		return 0, errPlaceholder
	}
	return n, err
}

// keep stores the last bytes of the stream, and reports whether a placeholder is in it.
func (w *watched) keep(b []byte) bool {
	w.tail = append(w.tail, b...)
	found := w.m.in(w.tail)
	if over := len(w.tail) - w.m.longest + 1; over > 0 {
		w.tail = append(w.tail[:0], w.tail[over:]...)
	}
	return found
}
