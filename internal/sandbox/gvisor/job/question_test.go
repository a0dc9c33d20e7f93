package job

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzQuestion: no message causes a fault, and a name has no capitals and a bounded size.
func FuzzQuestion(f *testing.F) {
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04Evil\x07example\x03ORG\x00\x00\x01\x00\x01"))
	f.Add([]byte("\x00\x01\x81\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04evil\x00\x00\x01\x00\x01"))
	f.Add([]byte("no question"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if name := Question(b); len(name) > 3*255 || name != strings.ToLower(name) || !utf8.ValidString(name) {
			t.Errorf("%q: %q", b, name)
		}
	})
}

func TestQuestion(t *testing.T) {
	const tail = "\x04Evil\x07example\x03ORG\x00\x00\x01\x00\x01"
	for head, want := range map[string]string{
		"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00": "evil.example.org",
		"\x00\x01\x81\x00\x00\x01\x00\x00\x00\x00\x00\x00": "", // an answer
		"\x00\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00": "", // no question in it
	} {
		if got := Question([]byte(head + tail)); got != want {
			t.Errorf("%x: %q, not %q", head, got, want)
		}
	}
}
