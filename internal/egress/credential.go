package egress

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"waldo/internal/egress/sigv4"
	"waldo/internal/secret"
)

// As says how a secret goes into a request. The zero As puts it nowhere.
type As uint8

// The ways in.
const (
	Header   As = iota + 1 // Field: SECRET
	Bearer                 // Authorization: Bearer SECRET
	Basic                  // Authorization: Basic, with Field as the user
	Query                  // ?Field=SECRET
	SigV4                  // signed as Amazon Web Services want it
	Postgres               // the password of the user Field at a PostgreSQL database
)

// Credential is a secret that the egress adds to a box's requests to the one host, and there to the
// methods and paths, that it belongs to. The box has a placeholder in its place. Empty methods or
// paths are none.
type Credential struct {
	Name            string // of the secret, for people
	Placeholder     string // what the box has
	Host            string
	Port            uint16
	Methods, Paths  []string
	As              As
	Field           string
	Region, Service string                       // of SigV4
	Database        string                       // of Postgres
	Plain           bool                         // with Postgres: the server need not speak TLS
	Value           func() (secret.Value, error) // asked at each use: a secret may change while the box lives
	KeyID, Token    func() (secret.Value, error) // of SigV4; a nil Token is none
}

// NewPlaceholder returns what a box is given in place of a secret: a word that nobody guesses, in
// letters and digits that no encoding of URLs changes.
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
	case badName(c.Host) != "" || c.Port == 0:
		return fmt.Errorf("secret %s: %q is not one host", c.Name, c.Host)
	case c.As == Postgres && c.Field != "" && c.Database != "" && c.Value != nil:
	case len(c.Methods) == 0 || len(c.Paths) == 0 || slices.ContainsFunc(c.Paths, func(p string) bool { return BadPath(p) != "" }):
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

// filled is a credential with what its sources hold now.
type filled struct {
	*Credential
	value, id, token string
}

func (c *Credential) fill() (filled, error) {
	f := filled{Credential: c}
	for _, part := range []struct {
		from func() (secret.Value, error)
		to   *string
	}{{c.Value, &f.value}, {c.KeyID, &f.id}, {c.Token, &f.token}} {
		if part.from == nil {
			continue
		}
		v, err := part.from()
		if err != nil {
			return f, err
		}
		*part.to = v.Reveal()
		if *part.to == "" || strings.ContainsAny(*part.to, "\r\n\x00") {
			return f, errors.New("no header can carry it")
		}
	}
	return f, nil
}

// clear takes out of a request what the client has put where the credential goes.
func (c *Credential) clear(r *http.Request) {
	r.Header.Del("Authorization")
	switch c.As {
	case Header:
		want := http.CanonicalHeaderKey(c.Field)
		for name := range r.Header {
			if http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")) == want { // some servers read _ as -
				delete(r.Header, name)
			}
		}
	case Query:
		var kept []string
		for piece := range strings.SplitSeq(r.URL.RawQuery, "&") {
			name, _, _ := strings.Cut(piece, "=")
			if plain, err := url.QueryUnescape(name); piece != "" && !(err == nil && strings.EqualFold(plain, c.Field)) {
				kept = append(kept, piece)
			}
		}
		r.URL.RawQuery = strings.Join(kept, "&")
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

// bodyHash is what a signature says of the body: what the client has said of it, or its hash.
func bodyHash(r *http.Request) (string, *Refusal) {
	said := r.Header.Get("X-Amz-Content-Sha256")
	switch {
	case strings.HasPrefix(said, "STREAMING-AWS4-"):
		return "", refuse("secret.signature", "the body is signed piece by piece with a key that the box does not have: send it whole, or unsigned")
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
		return "", refuse("secret.signature", "a body that is signed has at most 16 MiB")
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	r.ContentLength, r.TransferEncoding = int64(len(b)), nil
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// marks finds placeholders in what a box sends.
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
func (m *marks) inRequest(r *http.Request) bool {
	if m == nil {
		return false
	}
	where := r.URL.EscapedPath() + "?" + r.URL.RawQuery
	plain, _ := url.QueryUnescape(where)
	if m.in([]byte(where)) || m.in([]byte(plain)) || m.in([]byte(strings.ToLower(r.Host))) {
		return true
	}
	for _, h := range []http.Header{r.Header, r.Trailer} {
		for name, values := range h {
			if m.in([]byte(strings.ToLower(name))) || slices.ContainsFunc(values, func(v string) bool { return m.in([]byte(v)) }) {
				return true
			}
		}
	}
	return false
}

// maxLooked is how large a body may be that is looked at before anything is sent. A larger one is
// watched on its way, and a host may answer before it has come.
const maxLooked = 64 << 10

// inBody reports whether a placeholder stands in a body of known length.
func (m *marks) inBody(r *http.Request) bool {
	if m == nil || r.Body == nil || r.ContentLength <= 0 || r.ContentLength > maxLooked {
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

// errPlaceholder ends what a box sends with a placeholder where the secret does not belong.
var errPlaceholder = refuse("secret.placeholder", "a placeholder of a secret was sent where the secret does not belong")

// watched reads what a box sends until a placeholder is in it.
type watched struct {
	io.ReadCloser
	m    *marks
	tail []byte // the last bytes before: a placeholder may be cut
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if w.keep(b[:n]) {
		return 0, errPlaceholder
	}
	return n, err
}

// keep remembers the last of what has passed, and reports whether a placeholder is in it.
func (w *watched) keep(b []byte) bool {
	w.tail = append(w.tail, b...)
	found := w.m.in(w.tail)
	if over := len(w.tail) - w.m.longest + 1; over > 0 {
		w.tail = append(w.tail[:0], w.tail[over:]...)
	}
	return found
}
