package egress

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
)

// veil hides secrets in what comes back to a box. Each is covered with as many stars as it has bytes,
// so that lengths, ranges and frames stay true.
type veil struct{ forms [][]byte } // longest first

// newVeil knows secrets in every spelling that forms returns for one.
func newVeil(forms func(string) []string, secrets []string) *veil {
	v := &veil{}
	for _, s := range secrets {
		for _, f := range forms(s) {
			if (len(f) >= minForm || f == s) && strings.Trim(f, "*") != "" {
				v.forms = append(v.forms, []byte(f))
			}
		}
	}
	slices.SortFunc(v.forms, func(a, b []byte) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return bytes.Compare(a, b)
	})
	v.forms = slices.CompactFunc(v.forms, bytes.Equal)
	return v
}

// minForm is how long the spelling of a secret must be to be looked for.
const minForm = 6

// hide covers what it knows, and reports whether there was any.
func (v *veil) hide(b []byte) (found bool) {
	for _, f := range v.forms {
		for at := bytes.Index(b, f); at >= 0; at = bytes.Index(b, f) {
			copy(b[at:], bytes.Repeat([]byte("*"), len(f)))
			found = true
		}
	}
	return found
}

// held returns how many of the last bytes may be the begin of something to hide.
func (v *veil) held(b []byte) (most int) {
	for _, f := range v.forms {
		for n := min(len(f)-1, len(b)); n > most; n-- {
			if bytes.HasPrefix(f, b[len(b)-n:]) {
				most = n
				break
			}
		}
	}
	return most
}

func (v *veil) text(s string) string {
	b := []byte(s)
	if !v.hide(b) {
		return s
	}
	return string(b)
}

// header hides in the values of a header; a name that holds a secret goes with its value.
func (v *veil) header(h http.Header) {
	for name, values := range h {
		if v.text(name) != name {
			delete(h, name)
			continue
		}
		for i := range values {
			values[i] = v.text(values[i])
		}
	}
}

// veiled reads a body through a veil. It keeps back what may begin a secret and nothing else, so that
// a stream of events stays one.
type veiled struct {
	io.ReadCloser
	v     *veil
	buf   []byte
	ready int // bytes of buf that may go
	err   error
	over  func() // called before the end is told: the trailers are there; may be nil
}

func (r *veiled) Read(p []byte) (int, error) {
	for r.ready == 0 && r.err == nil {
		old := len(r.buf)
		r.buf = slices.Grow(r.buf, max(len(p), 4<<10))
		n, err := r.ReadCloser.Read(r.buf[old : old+max(len(p), 4<<10)])
		r.buf, r.err = r.buf[:old+n], err
		r.v.hide(r.buf)
		if r.ready = len(r.buf); err == nil {
			r.ready -= r.v.held(r.buf)
		} else if r.over != nil {
			r.over()
		}
	}
	n := copy(p, r.buf[:r.ready])
	r.ready -= n
	r.buf = append(r.buf[:0], r.buf[n:]...)
	if r.ready == 0 && r.err != nil {
		return n, r.err
	}
	return n, nil
}
