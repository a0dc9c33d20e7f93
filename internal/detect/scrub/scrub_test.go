package scrub

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"
)

const (
	secret  = "ghp_x7Kq29ZvB4mN1pWs"
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
)

// escaped is the secret with some of its characters as escapes.
var escaped = "%67&#104;" + `\u0070` + secret[3:]

func texts() []string {
	return []string{secret, hex.EncodeToString([]byte(secret)), base64.RawStdEncoding.EncodeToString([]byte(secret))}
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
	x := NewIndex(texts())
	x.Escaped(secret)
	r := NewReader(from, x, b)
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
			for _, text := range append(texts(), escaped) {
				for known := range len(text) - 1 {
					var first []int
					for _, c := range letters {
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

// TestWorkShowsNothing: a search stops only at a match of most of a text. Its time is therefore equal for all letters
// that can continue a part.
func TestWorkShowsNothing(t *testing.T) {
	x := NewIndex(texts())
	stops := func(s string) (n int) {
		for i := range x.tables {
			x.tables[i].candidates([]byte(s), func(int, [][]byte) { n++ })
		}
		return n
	}
	for _, text := range texts() {
		if stops(strings.Repeat(text, 9)) == 0 {
			t.Errorf("control: %q is not found", text)
		}
		for known := range 2 * len(text) / 3 {
			for _, c := range letters {
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
		{"half a line", Lines, []string{"data: a\ndat", "a: b"}, []int{8}, "data: a\ndata: b"},
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
		r := NewReader(from, NewIndex(texts()), row.b)
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

// FuzzReader: for every split of a stream, the output is the stream with every whole text covered, and nothing else.
func FuzzReader(f *testing.F) {
	f.Add([]byte("you sent "+secret+"."), []byte{3, 200}, uint16(0))
	f.Add([]byte(secret[:9]+secret+"\n"+secret), []byte{1}, uint16(600))
	f.Add([]byte("abcabcabc"+secret), []byte{2, 9}, uint16(1500))
	f.Fuzz(func(t *testing.T, body, cuts []byte, pad uint16) {
		all := append(texts(), "abcabc")
		body = append(bytes.Repeat([]byte("."), int(pad)%2000), body...)
		want := bytes.Clone(body)
		for _, s := range all {
			for i := range body {
				if bytes.HasPrefix(body[i:], []byte(s)) {
					copy(want[i:], strings.Repeat("*", len(s)))
				}
			}
		}
		var left [][]byte
		for rest, i := body, 0; len(rest) > 0; i++ {
			n := len(rest)
			if len(cuts) > 0 {
				n = min(n, int(cuts[i%len(cuts)])+1)
			}
			left, rest = append(left, bytes.Clone(rest[:n])), rest[n:]
		}
		got, err := io.ReadAll(NewReader(&pieces{left: left}, NewIndex(all), Lines))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q became %q, want %q (%v)", body, got, want, err)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	for _, row := range []struct{ name, unit string }{
		{"plain", "0123456789abcdef"}, {"json", `{"a":"b\"c","de`}, {"escapes", "%41%42%43&#x005a;"},
	} {
		b.Run(row.name, func(b *testing.B) {
			body := bytes.Repeat([]byte(row.unit), 64<<10)
			x := NewIndex(texts())
			x.Escaped(secret)
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := io.Copy(io.Discard, NewReader(bytes.NewReader(body), x, Lines)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
