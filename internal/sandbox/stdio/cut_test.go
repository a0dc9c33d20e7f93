//go:build linux

package stdio

import (
	"bytes"
	"strings"
	"testing"

	"waldo/internal/sandbox"
)

// copied is a copy of output that takes what is beyond the limit, too.
type copied struct{ in, beyond bytes.Buffer }

func (c *copied) Write(b []byte) (int, error) { return c.in.Write(b) }
func (c *copied) Beyond(b []byte)             { c.beyond.Write(b) }

// A stream keeps no part of a text that its limit divides: Cut and the copy get what follows the limit.
func TestStreamIsCutBeforeASecret(t *testing.T) {
	const text = "secret text"
	for _, row := range []struct {
		more int
		want bool
	}{{100, false}, {beyond, true}} {
		to := &copied{}
		s, _ := Captures(sandbox.Command{Stdout: to, Cut: func(all string, n int, more bool) int {
			if i := strings.Index(all, text); n != 20 || i != 15 || more != row.want {
				t.Errorf("cut at %d of %d, the text is at %d, more is %t", n, len(all), i, more)
			}
			return 15
		}}, 20, func() {})
		for _, b := range []string{strings.Repeat(".", 15), text[:3], text[3:], strings.Repeat(".", row.more)} {
			s.take([]byte(b))
		}
		if got := s.Text(); got != strings.Repeat(".", 15) || !s.Truncated() {
			t.Errorf("kept %q", got)
		}
		if to.in.String() != strings.Repeat(".", 15)+text[:5] || to.beyond.Len() != row.more+6 {
			t.Errorf("the copy got %q and %d bytes beyond", to.in.String(), to.beyond.Len())
		}
	}
}
