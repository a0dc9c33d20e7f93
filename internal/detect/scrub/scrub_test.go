package scrub

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
)

const (
	secret   = "ghp_x7Kq29ZvB4mN1pWs"
	alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
)

// spelled is the secret with some of its characters as escapes.
var spelled = "%67&#104;" + `\u0070` + secret[3:]

func texts() []string {
	return []string{secret, hex.EncodeToString([]byte(secret)), core(base64.RawStdEncoding, secret, 0)}
}

// pieces gives out one piece a read.
type pieces struct {
	left [][]byte
	read int // bytes that have been given out
}

func (s *pieces) Read(p []byte) (int, error) {
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.left[0])
	if s.left[0] = s.left[0][n:]; len(s.left[0]) == 0 {
		s.left = s.left[1:]
	}
	s.read += n
	return n, nil
}

// seen returns the view of a reader: for each read, the source bytes consumed so far and its size.
func seen(t *testing.T, body [][]byte, b Boundary) (events []int, out string) {
	t.Helper()
	from := &pieces{left: body}
	r := NewReader(from, New([]string{secret}), b)
	var all strings.Builder
	for p := make([]byte, 32<<10); ; {
		n, err := r.Read(p)
		all.Write(p[:n])
		events = append(events, from.read, n)
		if err == io.EOF {
			return events, all.String()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestNothingShowsHowNear: an attacker chooses the end of each piece. Reads have the same sizes, after the same
// bytes, for every letter that can continue the secret, in every spelling.
func TestNothingShowsHowNear(t *testing.T) {
	for _, boundary := range []struct {
		name string
		of   func() Boundary
		make func(guess string) []byte
	}{
		{"a body without lines", func() Boundary { return Lines }, func(g string) []byte {
			return []byte(strings.Repeat(".", 1000-len(g)) + g)
		}},
		{"lines", func() Boundary { return Lines }, func(g string) []byte { return []byte("data: x\n\n" + g) }},
		{"frames", Frames, func(g string) []byte { return append(frame(1, g), frame(1, "x")[:2]...) }},
	} {
		t.Run(boundary.name, func(t *testing.T) {
			for _, text := range append(texts(), spelled) {
				for known := range len(text) - 1 {
					var first []int
					for _, c := range alphabet {
						guess := boundary.make(text[:known] + string(c))
						end := []byte("x")
						got, _ := seen(t, [][]byte{bytes.Clone(guess), end, bytes.Clone(guess), end, bytes.Clone(guess)}, boundary.of())
						if first == nil {
							first = got
						}
						if fmt.Sprint(got) != fmt.Sprint(first) {
							t.Fatalf("after %q, %q shows: reads %v instead of %v", text[:known], c, got, first)
						}
					}
				}
			}
		})
	}
	// The control: a whole secret is hidden, and its stars show that it was there.
	if _, got := seen(t, [][]byte{[]byte("<" + secret[:9]), []byte(secret[9:] + ">")}, Lines); got != "<"+
		strings.Repeat("*", len(secret))+">" {
		t.Errorf("got %q", got)
	}
}

// TestWorkShowsNothing: a search stops only at a match of half of a text at least. Its time is therefore equal for all
// letters that can continue a part.
func TestWorkShowsNothing(t *testing.T) {
	m := New([]string{secret})
	stops := func(s string) (n int) { // windows that a search compares with those of the patterns
		for _, x := range []*index{m.exact, m.few, m.squeezed} {
			text := []byte(s)
			if x == m.squeezed {
				text = squeeze(nil, text)
			}
			for _, c := range x.classes {
				for i := 0; i+c.window <= len(text); i += c.stride {
					if c.first[c.keys.hash(text[i:i+c.window])] > 0 {
						n++
					}
				}
			}
		}
		return n
	}
	for _, text := range texts() {
		if stops(strings.Repeat(text, 9)) == 0 {
			t.Errorf("control: %q is not found", text)
		}
		for known := range len(text) / 2 {
			for _, c := range alphabet {
				if n := stops(strings.Repeat(text[:known]+string(c), 50)); n > 0 {
					t.Errorf("%q and %q: %d stops", text[:known], c, n)
				}
			}
		}
	}
}

func frame(op byte, text string) []byte {
	b := []byte{0x80 | op, byte(len(text))}
	if len(text) > 125 {
		b = binary.BigEndian.AppendUint16([]byte{0x80 | op, 126}, uint16(len(text)))
	}
	return append(b, text...)
}

// TestBoundaries: a line and a frame are released at once, with a secret in them hidden. Other bytes wait.
func TestBoundaries(t *testing.T) {
	stars := strings.Repeat("*", len(secret))
	long := strings.Repeat("y", 300)
	for _, row := range []struct {
		why    string
		b      Boundary
		pieces []string
		sizes  []int // of the reads before the end
		want   string
	}{
		{"events", Lines, []string{"data: a\n\n", "data: " + secret + "\n\n"}, []int{9, 28},
			"data: a\n\ndata: " + stars + "\n\n"},
		{"half a line", Lines, []string{"data: a.\ndat", "a: b"}, []int{9}, "data: a.\ndata: b"},
		{"a line that base64 could continue", Lines, []string{"data: a\n", "data: b}\n"}, []int{17}, "data: a\ndata: b}\n"},
		{"a broken secret", Lines, []string{"{\r\n" + secret[:8] + "\r\n", secret[8:] + "}\r\n"}, []int{3, 25},
			"{\r\n" + strings.Repeat("*", len(secret)+2) + "}\r\n"},
		{"frames", Frames(), []string{string(frame(1, "hello")), string(frame(1, secret)), string(frame(9, ""))},
			[]int{7, 22, 2}, string(frame(1, "hello")) + string(frame(1, stars)) + string(frame(9, ""))},
		{"a long frame in pieces", Frames(),
			[]string{string(frame(2, long)[:3]), string(frame(2, long)[3:]) + "\x81"}, []int{304},
			string(frame(2, long)) + "\x81"},
		{"no frames", Frames(), []string{"G\x02ab", string(frame(1, "hello"))}, []int{0}, ""},
		{"a masked frame", Frames(), []string{string(frame(1, "hello")), "\x81\x82\x01\x02\x03\x04ab"}, []int{7},
			string(frame(1, "hello"))},
	} {
		var body [][]byte
		for _, p := range row.pieces {
			body = append(body, []byte(p))
		}
		from := &pieces{left: body}
		r := NewReader(from, New([]string{secret}), row.b)
		var got []int
		var out strings.Builder
		for p := make([]byte, 4<<10); ; {
			n, err := r.Read(p)
			out.Write(p[:n])
			if len(from.left) > 0 || len(got) < len(row.sizes) {
				got = append(got, n)
			}
			if err != nil {
				break
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(row.sizes) || out.String() != row.want {
			t.Errorf("%s: reads of %v, %q", row.why, got, out.String())
		}
	}
}

// FuzzReader: for every split of a stream, the output is the stream with every secret covered, in any spelling of
// chosen ones and broken into lines, and nothing before the first and behind the last of them.
func FuzzReader(f *testing.F) {
	f.Add([]byte("you sent <"), []byte(">."), uint8(0), uint8(0), []byte{3, 200}, uint16(0))
	f.Add([]byte(secret[:9]), []byte("\n"), uint8(1), uint8(10), []byte{1}, uint16(600))
	f.Add([]byte{}, []byte{}, uint8(6), uint8(60), []byte{2, 9}, uint16(1500))
	f.Fuzz(func(t *testing.T, before, after []byte, which, width uint8, cuts []byte, pad uint16) {
		if len(before)+len(after) > 400 || len(Squeeze(string(before))) >= 9 || len(Squeeze(string(after))) >= 9 ||
			bytes.ContainsAny(before, "%\\&#=\b\x1b\n") || bytes.ContainsAny(after, "%\\&#=\b\x1b") {
			return // it can form another spelling, or end an escape
		}
		spelled := broken(echoes[int(which)%len(echoes)].of(secret), int(width))
		head := strings.Repeat(".", int(pad)%2000) + string(before) + " "
		body := []byte(head + spelled + " " + string(after))
		var left [][]byte
		for rest, i := body, 0; len(rest) > 0; i++ {
			n := len(rest)
			if len(cuts) > 0 {
				n = min(n, int(cuts[i%len(cuts)])+1)
			}
			left, rest = append(left, bytes.Clone(rest[:n])), rest[n:]
		}
		got, err := io.ReadAll(NewReader(&pieces{left: left}, New([]string{secret}), Lines))
		if err != nil || len(got) != len(body) {
			t.Fatalf("%q became %q (%v)", body, got, err)
		}
		if New([]string{secret}).Has(got) || !bytes.Contains(got, []byte("******")) {
			t.Fatalf("%q became %q", body, got)
		}
		if string(got[:len(head)]) != head || !bytes.HasSuffix(got, after) {
			t.Fatalf("more is covered: %q became %q", body, got)
		}
	})
}

// echoes are the spellings of a secret in answers of hosts.
var echoes = []struct {
	why string
	of  func(string) string
}{
	{"as it is", func(s string) string { return s }},
	{"in capitals", strings.ToUpper},
	{"in small letters", strings.ToLower},
	{"base64", func(s string) string { return base64.StdEncoding.EncodeToString([]byte("xy" + s + "z")) }},
	{"base64 for URLs", func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("x" + s)) }},
	{"base64 twice", func(s string) string {
		return base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(s))))
	}},
	{"hexadecimal", func(s string) string { return hex.EncodeToString([]byte(s)) }},
	{"in mathematical letters", func(s string) string { return lookalike(s, 0x1D400, 0x1D41A, 0x1D7CE) }},
	{"in circled letters", func(s string) string { return lookalike(s, 0x24B6, 0x24D0, '0') }},
	{"full width", func(s string) string { return lookalike(s, 0xFF21, 0xFF41, 0xFF10) }},
	{"in tags", func(s string) string { return lookalike(s, 0xE0041, 0xE0061, 0xE0030) }},
	{"with what cannot be seen", func(s string) string { return strings.Join(strings.Split(s, ""), "\u200b") }},
	{"in UTF-16", func(s string) string { return strings.Join(strings.Split(s, ""), "\x00") }},
	{"JSON in JSON in JSON", func(s string) string {
		for range 3 {
			s = strconv.Quote(s)
		}
		return s
	}},
}

// lookalike writes letters and digits from other places of Unicode.
func lookalike(s string, capital, small, zero rune) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return capital + r - 'A'
		case r >= 'a' && r <= 'z':
			return small + r - 'a'
		case r >= '0' && r <= '9':
			return zero + r - '0'
		}
		return r
	}, s)
}

// broken breaks a text into lines of a width; 0: into none. A line is never without a letter of base64 at its end.
func broken(s string, width int) string {
	if width == 0 || strings.ContainsFunc(s, func(r rune) bool { return r > '~' || r < ' ' || r == '\\' || r == '"' }) {
		return s
	}
	var lines []string
	for len(s) > width {
		lines, s = append(lines, s[:width]), s[width:]
	}
	return strings.Join(append(lines, s), "\n")
}

// TestEchoes: every spelling is found, at every width of lines, and a secret with one other letter is not.
func TestEchoes(t *testing.T) {
	m := New([]string{secret})
	other := strings.Replace(secret, "K", "L", 1)
	for _, e := range echoes {
		for _, width := range []int{0, 1, 7, 60} {
			if !m.Has([]byte("<" + broken(e.of(secret), width) + ">")) {
				t.Errorf("%s, in lines of %d, is not found", e.why, width)
			}
			if m.Has([]byte("<" + broken(e.of(other), width) + ">")) {
				t.Errorf("control: another secret, %s, is found", e.why)
			}
		}
	}
}

func BenchmarkReader(b *testing.B) {
	for _, row := range []struct{ name, unit string }{
		{"plain", "0123456789abcdef"}, {"json", `{"a":"b\"c","de`}, {"escapes", "%41%42%43&#x005a;"},
	} {
		b.Run(row.name, func(b *testing.B) {
			body := bytes.Repeat([]byte(row.unit), 64<<10)
			x := New([]string{secret})
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := io.Copy(io.Discard, NewReader(bytes.NewReader(body), x, Lines)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
