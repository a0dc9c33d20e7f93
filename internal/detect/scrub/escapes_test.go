package scrub

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// tornReader ends with an error of its own.
type tornReader struct {
	io.Reader
	err error
}

func (b tornReader) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		err = b.err
	}
	return n, err
}

// TestCut: where a stream may have been cut, the held bytes are dropped, and the same number for each text.
func TestCut(t *testing.T) {
	torn := errors.New("torn")
	stars := strings.Repeat("*", len(secret))
	dots := strings.Repeat(".", 600)
	for _, row := range []struct {
		why, in string
		err     error
		open    bool
		want    string
		wantErr error
	}{
		{"control: the end", "a.\n" + secret[:9], io.EOF, false, "a.\n" + secret[:9], nil},
		{"control: a whole text", dots + secret, io.EOF, false, dots + stars, nil},
		{"an error", "a.\n" + secret[:9], torn, false, "a.\n", torn},
		{"an error without a line", dots + secret[:9], torn, false, dots[:97], torn},
		{"the same of other bytes", dots + "123456789", torn, false, dots[:97], torn},
		{"an end that may be a cut", "a.\n" + secret[:9], io.EOF, true, "a.\n", ErrCut},
		{"an end that may be a cut, of a line", secret + ".\n", io.EOF, true, stars + ".\n", nil},
	} {
		r := NewReader(tornReader{strings.NewReader(row.in), row.err}, New([]string{secret}), Lines)
		r.Open = row.open
		got, err := io.ReadAll(r)
		if string(got) != row.want || err != row.wantErr {
			t.Errorf("%s: %q, %v", row.why, got, err)
		}
	}
}

// TestUnescape has the spellings that count as escapes, and their neighbours that do not.
func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		`%5a%5A`: "ZZ", `\u005a\u005A\/\"\x5a\132`: `ZZ/"ZZ`, "&#90;&#090;&#00000090;&#90": "ZZZZ",
		"&#x5a;&#X5A;&#x0000005a;&#x5a":  "ZZZZ",
		"&amp;&lt;&gt;&quot;&apos;&#39;": `&<>"''`, `\u00e9&#233;`: "éé", `\ud835\udc00`: "A", "a\u200bb\x00c": "abc",
		"%5": "%5", "%5g": "%5g", `\\u005a`: `\u005a`, "&#;": "&#;", "&#x;": "&#x;",
		"&#000000090;": "&#000000090;", "&#x00000005a;": "&#x00000005a;", "&AMP;": "&AMP;", "%": "%", `\`: `\`, "&": "&",
	} {
		if got := string(unescape([]byte(in), false, nil, nil)); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// FuzzDecoded: the positions are in order, one for each byte and one for the end, and without them the text is the same.
func FuzzDecoded(f *testing.F) {
	f.Add([]byte(`a%2525\\u0041&amp;#65;`))
	f.Add([]byte("\x1b[1m\b\b\u200bz\\ud835\\udc00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, pos := Decoded(b, true)
		w, _ := Decoded(b, false)
		if string(v) != string(w) || pos != nil && (len(pos) != len(v)+1 || int(pos[len(v)]) != len(b)) ||
			!slices.IsSorted(pos) {
			t.Fatalf("%q became %q or %q, at %v", b, v, w, pos)
		}
	})
}

// TestLongEscapes: a long secret in its longest spelling comes byte by byte, after other bytes.
func TestLongEscapes(t *testing.T) {
	long, spelled := strings.Repeat("q7Rw2Kx9", 20), ""
	for _, c := range []byte(long) {
		spelled += fmt.Sprintf("&#x%08x;", c)
	}
	for _, row := range []struct{ body, want string }{
		{"<" + spelled + ">", "<" + strings.Repeat("*", len(spelled)) + ">"},
		{"<" + spelled[12:] + ">", "<" + spelled[12:] + ">"}, // the control: one character less
	} {
		x := New([]string{long})
		var left [][]byte
		for _, c := range []byte(row.body) {
			left = append(left, []byte{c})
		}
		if got, err := io.ReadAll(NewReader(&pieces{left: left}, x, Lines)); err != nil || string(got) != row.want {
			t.Errorf("%q became %q (%v)", row.body, got, err)
		}
	}
}

// FuzzEscapes: in each mixture of escapes, at each split, the text is covered and nothing beside it.
func FuzzEscapes(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6}, []byte{3}, uint16(0), "")
	f.Add([]byte{6}, []byte{0, 90}, uint16(1500), `\`)
	f.Add([]byte{1, 0}, []byte{250}, uint16(511), "%")
	f.Fuzz(func(t *testing.T, ways, cuts []byte, pad uint16, before string) {
		if len(ways) == 0 || len(before) > 20 || strings.ContainsAny(before, "g0123456789abcdefABCDEFuxX#;&") {
			return // it can form an escape with the secret
		}
		spelled := ""
		for i, c := range []byte(secret) {
			forms := []string{"%c", "%%%02X", `\u%04x`, "&#%d;", "&#x%x;", "&#%08d;", "&#X%08X;"}
			spelled += fmt.Sprintf(forms[ways[i%len(ways)]%7], c)
		}
		head := strings.Repeat(".", int(pad)%2000) + before
		body := []byte(head + spelled + "!")
		want := head + strings.Repeat("*", len(spelled)) + "!"
		var left [][]byte
		for rest, i := body, 0; len(rest) > 0; i++ {
			n := len(rest)
			if len(cuts) > 0 {
				n = min(n, int(cuts[i%len(cuts)])+1)
			}
			left, rest = append(left, bytes.Clone(rest[:n])), rest[n:]
		}
		x := New([]string{secret})
		got, err := io.ReadAll(NewReader(&pieces{left: left}, x, Lines))
		if s := string(got); err != nil || !strings.HasSuffix(s, want[len(head):]) || len(s) != len(want) ||
			!strings.HasPrefix(s, head[:max(0, len(head)-2)]) { // a backslash or a hidden character goes with what follows it
			t.Fatalf("%q became %q, want %q (%v)", body, got, want, err)
		}
	})
}
