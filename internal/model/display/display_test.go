package display_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"waldo/internal/model/display"
)

// hostile is text that paints a screen, forges a line or turns one.
const hostile = "a\x1b[2J\r\n\tb\x07\u009b31m\u202etxt\u200b\ufeff\xff\u05d0\u0301\u0301\u0301\x7f"

// misread returns the first character of s that a terminal or an eye could misread.
func misread(s, keep string) (rune, bool) {
	for _, r := range s {
		if !strings.ContainsRune(keep, r) &&
			(unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || r == unicode.ReplacementChar) {
			return r, true
		}
	}
	return 0, false
}

func TestEscape(t *testing.T) {
	if _, bad := misread(hostile, ""); !bad {
		t.Fatal("control: the hostile text is harmless")
	}
	for _, row := range []struct{ why, got, want string }{
		{"plain", string(display.Line("a b")), "a b"},
		{"letters and symbols stay", string(display.Line("é … 漢")), "é … 漢"},
		{"a line", string(display.Line("a\n\tb\r")), `a\n\tb\u{d}`},
		{"an escape", string(display.Line("\x1b[2J\u009b")), `\u{1b}[2J\u{9b}`},
		{"bytes that are no UTF-8", string(display.Line("\xff")), `\xff`},
		{"direction", string(display.Line("\u202e\u05d0")), `\u{202e}\u{5d0}`},
		{"two accents, no third", string(display.Line("e\u0301\u0301\u0301")), "e\u0301\u0301" + `\u{301}`},
		{"lines", string(display.Lines("a\nwaldo: b\n")), "a\n  | waldo: b"},
		{"a quotation", display.Quote("a\"b\\\n"), `"a\"b\\\n"`},
		{"an argument of any type",
			string(display.Sprintf("%s %v %-4s| %q %d", errors.New("\x1b"), []string{"\n"}, "\r", "\x1b", 7)),
			`\u{1b} [\n] \u{d}   | "\x1b" 7`},
		{"waldo's own words", string(display.Sprintf("%s %s", display.Text("\x1b[0m"), "\x1b")), "\x1b[0m " + `\u{1b}`},
	} {
		if row.got != row.want {
			t.Errorf("%s: %q, wanted %q", row.why, row.got, row.want)
		}
	}
}

// TestWriter cuts a text at every place: it comes out escaped the same.
func TestWriter(t *testing.T) {
	text := "é\x1b[2J 漢\n\xff\u009b"
	for at := range len(text) + 1 {
		var b bytes.Buffer
		w := display.Writer(&b)
		fmt.Fprint(w, text[:at])
		fmt.Fprint(w, text[at:])
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if want := `é\u{1b}[2J 漢` + "\n" + `\xff\u{9b}`; b.String() != want {
			t.Errorf("cut at %d: %q, wanted %q", at, b.String(), want)
		}
	}
	var b bytes.Buffer
	w := display.Writer(&b)
	fmt.Fprint(w, "a\xe6\xbc")
	_ = w.Close()
	if b.String() != `a\xe6\xbc` {
		t.Errorf("what ends within a character: %q", b.String())
	}
}

func TestJSON(t *testing.T) {
	for _, s := range []string{"plain é", "\u009b\x7f\u202e", "\U000e0041 \U0001f600"} {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		shown, back := display.JSON(b), ""
		if err := json.Unmarshal(shown, &back); err != nil || back != s {
			t.Errorf("%q is another value: %q %v", s, back, err)
		}
		if r, bad := misread(string(shown), ""); bad {
			t.Errorf("%q shows %U", s, r)
		}
	}
}

// FuzzEscape: escaped text cannot be misread, and quoted text parses back to the original.
func FuzzEscape(f *testing.F) {
	f.Add(hostile)
	f.Add("é\"\\")
	f.Fuzz(func(t *testing.T, s string) {
		for name, shown := range map[string]string{
			"Line": string(display.Line(s)), "Quote": display.Quote(s), "Sprintf": string(display.Sprintf("%s", s)),
		} {
			if r, bad := misread(shown, ""); bad {
				t.Errorf("%s of %q shows %U", name, s, r)
			}
		}
		if r, bad := misread(string(display.Lines(s)), "\n\t"); bad {
			t.Errorf("Lines of %q shows %U", s, r)
		}
	})
}

// TestWrote: one line of a program is quoted, several stay lines for Lines.
func TestWrote(t *testing.T) {
	for text, want := range map[string]string{
		"ouch":          `; it wrote "ouch"`,
		"a \x1b[2J":     `; it wrote "a \u{1b}[2J"`,
		"first\nsecond": "; it wrote:\n  | first\n  | second",
	} {
		if got := string(display.Lines(display.Wrote(text))); got != want {
			t.Errorf("%q: %q, not %q", text, got, want)
		}
	}
}
