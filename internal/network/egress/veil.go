package egress

import (
	"errors"
	"io"
	"net/http"

	"waldo/internal/detect/scrub"
)

// Hides secrets in the answers to a sandbox. It covers each secret with as many stars as the secret has bytes, so
// that lengths, ranges and frames stay correct.
type responseScrubber struct{ *scrub.Matcher }

func newScrubber(secrets []string) *responseScrubber { return &responseScrubber{scrub.New(secrets)} }

func (v *responseScrubber) text(s string) string {
	b := []byte(s)
	v.Hide(b)
	return string(b)
}

// header hides in the values of a header; a name that holds a secret goes with its value.
func (v *responseScrubber) header(h http.Header) {
	for name, values := range h {
		if v.Has([]byte(name)) {
			delete(h, name)
			continue
		}
		for i := range values {
			values[i] = v.text(values[i])
		}
	}
}

// veiled is a body without the secrets.
type veiled struct {
	io.ReadCloser
	scrubbed *scrub.Reader
	over     func() // called before EOF is returned: the trailers are there; may be nil
	cut      func() // called where an end was no known end
}

func (v *responseScrubber) body(b io.ReadCloser, boundary scrub.Boundary, over func()) *veiled {
	return &veiled{b, scrub.NewReader(b, v.Matcher, boundary), over, func() {}}
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
