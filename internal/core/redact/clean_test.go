package redact

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"waldo/internal/model/call"
	"waldo/internal/testing/corpus"
)

func TestClean(t *testing.T) {
	for _, row := range []struct{ why, in, want string }{
		{"plain text stays", "a\tb\nc é 日本", "a\tb\nc é 日本"},
		{"clear the screen", "\x1b[2J\x1b[Hok", "ok"},
		{"write the clipboard", "a\x1b]52;c;cm0gLXJm\x07b", "ab"},
		{"a link whose target is not its text", "\x1b]8;;https://evil.example\x07bank.example\x1b]8;;\x07", "bank.example"},
		{"a link ended by ST", "\x1b]8;;https://evil.example\x1b\\bank\x1b]8;;\x1b\\", "bank"},
		{"cursor up and overwrite", "safe\x1b[1A\x1b[2Kapproved", "safeapproved"},
		{"a string that never ends hides nothing", "\x1b]0;title and the rest", "0;title and the rest"},
		{"a CSI of eight bits", "a\u009b2Jb", "ab"},
		{"an OSC of eight bits", "a\u009d52;c;xx\u009cb", "ab"},
		{"a raw byte of eight bits is no text", "a\x9b2Jb", "a\uFFFD2Jb"},
		{"an escape within another", "\x1b\x1b[0m[2Jx", "[2Jx"},
		{"a lone escape", "a\x1b", "a"},
		{"written-out escapes stay text", `\x1b[2J \u001b[ \033]`, `\x1b[2J \u001b[ \033]`},
		{"carriage return overwrites", "safe\rrm -rf", "safe\nrm -rf"},
		{"lines of Windows", "a\r\nb", "a\r\nb"},
		{"backspace", "rm\b\bls", "rmls"},
		{"NUL and DEL", "a\x00b\x7fc", "abc"},
		{"right to left override", "user\u202egpj.exe", "usergpj.exe"},
		{"isolates", "a\u2066b\u2069c", "abc"},
		{"zero width", "pass\u200bword\ufeff\u2060", "password"},
		{"soft hyphen", "pass\u00adword", "password"},
		{"tags spell unseen words", "hi\U000e0069\U000e0067\U000e006e\U000e006f\U000e0072\U000e0065", "hi"},
		{"variation selectors carry unseen bytes", "a\ufe01\ufe02\U000e0100\U000e01ef", "a"},
		{"many selectors after an emoji", "😀\ufe01\ufe02\ufe03", "😀\ufe01"},
		{"an emoji keeps its joiner and selector", "👩\u200d🚀 ❤\ufe0f 1\ufe0f\u20e3", "👩\u200d🚀 ❤\ufe0f 1\ufe0f\u20e3"},
		{"Persian keeps its joiner", "می\u200cخواهم", "می\u200cخواهم"},
		{"a joiner in Latin", "pass\u200dword", "password"},
		{"line separator", "a\u2028b", "a\nb"},
		{"fillers", "a\u3164\u115fb", "ab"},
	} {
		t.Run(row.why, func(t *testing.T) {
			if got := Clean(row.in); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

// unsafe returns the first character that Clean promises to take away, or 0.
func unsafe(s string) rune {
	for i, r := range s {
		switch {
		case r == '\r' && strings.HasPrefix(s[i:], "\r\n"), r == '\n' || r == '\t' || r == 0x200C || r == 0x200D:
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r >= 0xE0000 && r <= 0xE0FFF,
			r == 0x200B, r == 0xFEFF:
			return r
		}
	}
	return 0
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{
		"\x1b[2J", "\x1b]0;x\x07", "\u009b1m", "a\u202eb", "\x1b\x1b[m[m", "\r\r\n", "👩\u200d🚀", "\xff\xfe", "\x1bP\x1b\\",
		"\U000e0041",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := Clean(s)
		if r := unsafe(c); r != 0 {
			t.Errorf("%q became %q, which holds %U", s, c, r)
		}
		if !utf8.ValidString(c) {
			t.Errorf("%q became %q, which is no UTF-8", s, c)
		}
		if again := Clean(c); again != c {
			t.Errorf("%q became %q and then %q", s, c, again)
		}
		if !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e }) && c != s {
			t.Errorf("plain %q became %q", s, c)
		}
	})
}

// TestTerminalCorpus shows every row of class terminal as content, error and fact: no escape
// reaches a terminal, and written-out escapes stay as they are.
func TestTerminalCorpus(t *testing.T) {
	r, d, _ := desk(t)
	n := 0
	for _, row := range corpus.Rows[row](t, "mcp.jsonl", "terminal") {
		if row.Class != "terminal" {
			continue
		}
		n++
		got := shown(r, d, row.Input.Text)
		if c := unsafe(got); c != 0 {
			t.Errorf("%s: %q became %q, which holds %U", row.ID, row.Input.Text, got, c)
		}
		if unsafe(Clean(row.Input.Text)) != 0 {
			t.Errorf("%s: Clean left a control", row.ID)
		}
		var expect string
		if json.Unmarshal(row.Expect, &expect) == nil && expect == "stays_text" && got != row.Input.Text {
			t.Errorf("%s: %q became %q", row.ID, row.Input.Text, got)
		}
	}
	t.Logf("%d rows", n)
}

// TestHiddenRunes: the first and the last of each range that a reader does not see are removed; their neighbours are
// not.
func TestHiddenRunes(t *testing.T) {
	for _, r := range []rune{
		0, 8, 0xb, 0xc, 0x7f, 0x9f, 0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180F, 0x200B, 0x200E,
		0x200F, 0x202A, 0x202E, 0x2060, 0x206F, 0x3164, 0xFEFF, 0xFFA0, 0xFFF0, 0xFFFB, 0x1BCA0, 0x1BCA3, 0x1D173, 0x1D17A,
		0xE0000, 0xE0FFF,
	} {
		if got := Clean("a" + string(r) + "b"); got != "ab" {
			t.Errorf("%U: %q", r, got)
		}
	}
	for _, r := range []rune{
		'\t', '\n', ' ', '~', 0xa0, 0xAE, 0x350, 0x61B, 0x1161, 0x17B6, 0x180A, 0x1810, 0x2010, 0x2029 + 6, 0x2070, 0x3165,
		0xFFA1, 0xFFFC, 0x1BC9F, 0x1D172, 0x1D17B, 0xE1000,
	} {
		if got := Clean("a" + string(r) + "b"); got != "a"+string(r)+"b" {
			t.Errorf("control: %U: %q", r, got)
		}
	}
	if got := Clean("a\u2028b\u2029c"); got != "a\nb\nc" {
		t.Errorf("ends of lines: %q", got)
	}
}

func TestFactsAndStructuredAreCleaned(t *testing.T) {
	r, d, _ := desk(t)
	o := call.Outcome{Structured: value(t, `{"a":"x\u001b[2J\u202ey"}`)}
	o.Facts.Stdout, o.Facts.Warnings = "a\x1b[2Jb", []string{"\x1b[1mbold"}
	res := r.Result(d, o)
	if res.Facts.Stdout != "ab" || res.Facts.Warnings[0] != "bold" || string(res.Structured.Raw()) != `{"a":"xy"}` {
		t.Errorf("got %q %q %s", res.Facts.Stdout, res.Facts.Warnings, res.Structured.Raw())
	}
}
