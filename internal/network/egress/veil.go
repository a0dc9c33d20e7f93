package egress

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"

	"waldo/internal/detect/scrub"
)

// Hides secrets in the answers to a sandbox. It covers each secret with as many stars as the secret has bytes, so
// that lengths, ranges and frames stay correct.
type responseScrubber struct {
	*scrub.Index
	names *scrub.Index // in lower case: header names are case-insensitive
}

// minForm is how long the spelling of a secret must be to be looked for.
const minForm = 6

// newScrubber knows secrets in every spelling that forms returns for one.
func newScrubber(forms func(string) []string, secrets []string) *responseScrubber {
	var all, low, edged []string
	for _, s := range secrets {
		for _, f := range append(forms(s), scrub.Wide(s)...) {
			if (len(f) < minForm && f != s) || strings.Trim(f, "*") == "" {
				continue
			}
			all, low = append(all, f), append(low, strings.ToLower(f))
			if f != s && inBase64(f) {
				edged = append(edged, f)
			}
		}
	}
	v := &responseScrubber{scrub.NewIndex(all), scrub.NewIndex(low)}
	for _, f := range edged {
		v.Edge(f)
	}
	for _, s := range secrets {
		v.Escaped(s)
	}
	return v
}

// inBase64 reports whether a spelling is written in base64. One in decimal or hexadecimal digits is not.
func inBase64(f string) bool {
	return strings.Trim(strings.ToLower(f), "0123456789abcdef") != "" && !strings.ContainsFunc(f, func(c rune) bool {
		return c > 'z' || !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.ContainsRune("+/-_", c))
	})
}

func (v *responseScrubber) text(s string) string {
	b := []byte(s)
	if v.Hide(b) {
		s = string(b)
	}
	if v.Hide([]byte(strings.Join(strings.Fields(s), ""))) {
		return strings.Repeat("*", len(s)) // on two lines (RFC 9112 §5.2), which are now one
	}
	return s
}

// header hides in the values of a header; a name that holds a secret goes with its value.
func (v *responseScrubber) header(h http.Header) {
	for name, values := range h {
		if v.inName([]byte(name)) || v.inName(scrub.Unescape([]byte(name))) {
			delete(h, name)
			continue
		}
		for i := range values {
			values[i] = v.text(values[i])
		}
	}
}

func (v *responseScrubber) inName(name []byte) bool { return v.names.Hide(bytes.ToLower(name)) }

// veiled is a body without the secrets.
type veiled struct {
	io.ReadCloser
	scrubbed *scrub.Reader
	over     func() // called before EOF is returned: the trailers are there; may be nil
	cut      func() // called where an end was no known end
}

func (v *responseScrubber) body(b io.ReadCloser, boundary scrub.Boundary, over func()) *veiled {
	return &veiled{b, scrub.NewReader(b, v.Index, boundary), over, func() {}}
}

func (r *veiled) Read(p []byte) (int, error) {
	n, err := r.scrubbed.Read(p)
	if err != nil && r.over != nil {
		r.over()
	}
	if errors.Is(err, scrub.ErrCut) {
		r.cut()
	}
	return n, err
}
