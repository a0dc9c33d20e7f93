package display_test

import (
	"io"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
	"waldo/internal/model/display"
)

func TestFit(t *testing.T) {
	for _, row := range []struct {
		why, text string
		width     int
		want      string
	}{
		{"a line that fits", "  | a b\nc\n", 40, "  | a b\nc\n"},
		{"the last column stays empty", "123456789012\n", 12, "12345678901\n  |… 2\n"},
		{"the mark counts as two", "12345678901234567890", 12, "12345678901\n  |… 23456\n  |… 7890"},
		{"wide characters count as two", "漢漢漢漢漢漢", 12, "漢漢漢漢漢\n  |… 漢"},
		{"long dashes count as four", "⸻⸻⸺", 12, "⸻⸻\n  |… ⸺"},
		{"an accent stays on its letter", "1234567890e\u0301", 12, "1234567890\n  |… e\u0301"},
		{"a terminal of no width", "123456789012", 0, "12345678901\n  |… 2"},
	} {
		if got := display.Fit(row.text, row.width); got != row.want {
			t.Errorf("%s: %q, wanted %q", row.why, got, row.want)
		}
	}
}

func TestBlanks(t *testing.T) {
	blanks := func(n int) string { return strings.Repeat(" ", n) }
	for text, want := range map[string]string{
		"": "", "  | a b ": "  | a b ", "a" + blanks(24) + "b": "a" + blanks(24) + "b",
		blanks(25) + "b" + blanks(200) + "\n": `\{25 blanks}b\{200 blanks}` + "\n",
	} {
		if got := display.Blanks(text); got != want {
			t.Errorf("%q: %q, wanted %q", text, got, want)
		}
	}
}

// FuzzFit: at any width no row is as wide as the terminal, each row that is not the first of a line has the mark, and
// no character is lost.
func FuzzFit(f *testing.F) {
	f.Add("  | command = \"rm -rf .\"\nEnd.\n", 40)
	f.Add("漢e\u0301\u0302⸻"+strings.Repeat(" ", 90), 13)
	f.Fuzz(func(t *testing.T, text string, width int) {
		text = string(display.Lines(strings.ReplaceAll(text, "\t", "")))
		width = 12 + int(uint(width)%300)
		var back strings.Builder
		for _, row := range strings.SplitAfter(display.Fit(text, width), "\n") {
			cells := 0
			for _, r := range strings.TrimSuffix(row, "\n") {
				if r == 0x2e3a || r == 0x2e3b {
					cells += 2
				}
				if r >= 0x80 && !unicode.Is(unicode.M, r) {
					cells++
				}
				if !unicode.Is(unicode.M, r) {
					cells++
				}
			}
			if cells >= width {
				t.Fatalf("%d cells of %d: %q", cells, width, row)
			}
			rest, goesOn := strings.CutPrefix(row, "  |… ")
			if all := back.String(); goesOn && strings.HasSuffix(all, "\n") {
				back.Reset()
				back.WriteString(strings.TrimSuffix(all, "\n"))
			}
			back.WriteString(rest)
		}
		if strings.Contains(text, "  |… ") {
			return // the text's own mark
		}
		if back.String() != text {
			t.Fatalf("%q came back as %q", text, back.String())
		}
	})
}

// TestBarred: no line of somebody else's words begins like one of waldo's, however they come: in pieces, with line ends
// of their own, or as wide as the terminal.
func TestBarred(t *testing.T) {
	const width = 40
	words := "I look.\n\nwaldo: done after 2 steps\n" + strings.Repeat("-", width-5) + "hint: waldo approve a_evil\n" +
		strings.Repeat("\t", 9) + "waldo: x" + strings.Repeat("é", 50) + "\nwaldo: the end"
	for _, piece := range []int{1, 3, 1000} {
		var b strings.Builder
		w := display.Barred(&b, width)
		for rest := words; rest != ""; {
			n := min(piece, len(rest))
			for n < len(rest) && !utf8.RuneStart(rest[n]) {
				n++
			}
			if _, err := io.WriteString(w, rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		for row := range strings.SplitSeq(b.String(), "\n") {
			if !strings.HasPrefix(row, "  | ") && !strings.HasPrefix(row, "  |… ") || utf8.RuneCountInString(row) >= width {
				t.Errorf("in pieces of %d: %q", piece, row)
			}
		}
		if got := strings.NewReplacer("\n  |… ", "", "  | ", "", "    ", "\t").Replace(b.String()); got != words {
			t.Errorf("control: in pieces of %d the words are %q", piece, got)
		}
	}
}
