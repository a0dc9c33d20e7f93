package redact

import (
	"strings"
	"unicode/utf8"
)

// Clean returns text that is safe to show to a model or on a terminal. It removes escape sequences, control
// characters except newline and tab, direction marks, tags and other invisible characters. A lone carriage return
// becomes a newline, and invalid UTF-8 becomes U+FFFD. Joiners and variation selectors remain if an emoji or a script
// needs them. Clean is idempotent.
func Clean(s string) string {
	if plain(s) {
		return s
	}
	for range 8 { // removing one sequence may join the parts of another
		t := cleanOnce(s)
		if t == s {
			break
		}
		s = t
	}
	return strings.Map(visible, s)
}

// plain reports whether s is printable ASCII with newlines and tabs.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 && c != '\n' && c != '\t' || c >= 0x7f {
			return false
		}
	}
	return true
}

func cleanOnce(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	prev := rune(' ')
	for i := 0; i < len(s); {
		if n := escapeLen([]byte(s[i:min(len(s), i+maxEscape)])); n > 0 {
			i += n
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		switch {
		case r == '\r':
			if i < len(s) && s[i] == '\n' {
				continue
			}
			r = '\n'
		case visible(r) < 0, !joins(r, prev, s[i:]):
			continue
		}
		b.WriteRune(visible(r))
		prev = r
	}
	return b.String()
}

// visible returns r, its replacement, or -1 for a character to remove.
func visible(r rune) rune {
	switch {
	case r == '\n' || r == '\t' || r == '\r':
		return r
	case r < 0x20 || r >= 0x7f && r < 0xa0 || hidden(r):
		return -1
	case r == 0x2028 || r == 0x2029:
		return '\n'
	}
	return r
}

// hidden reports whether r is invisible to a reader but not to a program: zero-width, direction (UAX 9), tag, filler
// and annotation characters. Joiners and variation selectors 1 to 16 are not among them: see joins.
func hidden(r rune) bool {
	switch {
	case r < 0xAD:
		return false
	case r == 0xAD, r == 0x34F, r == 0x61C, r == 0x115F, r == 0x1160, r == 0x17B4, r == 0x17B5, r >= 0x180B && r <= 0x180F,
		r == 0x200B, r == 0x200E, r == 0x200F, r >= 0x202A && r <= 0x202E, r >= 0x2060 && r <= 0x206F,
		r == 0x3164, r == 0xFEFF, r == 0xFFA0, r >= 0xFFF0 && r <= 0xFFFB, r >= 0x1BCA0 && r <= 0x1BCA3,
		r >= 0x1D173 && r <= 0x1D17A, r >= 0xE0000 && r <= 0xE0FFF:
		return true
	}
	return false
}

// joins reports whether a joiner or a variation selector is valid between prev and rest. A joiner needs a character
// beyond Latin on both sides, a selector one symbol before it.
func joins(r, prev rune, rest string) bool {
	switch {
	case r == 0x200C || r == 0x200D:
		next, _ := utf8.DecodeRuneInString(rest)
		return prev >= 0x600 && next >= 0x600 && prev != 0x200C && prev != 0x200D &&
			next != utf8.RuneError && visible(next) > 0
	case r >= 0xFE00 && r <= 0xFE0F:
		return prev >= 0x2000 && (prev < 0xFE00 || prev > 0xFE0F) ||
			r == 0xFE0F && (prev == '#' || prev == '*' || prev >= '0' && prev <= '9')
	}
	return true
}

// maxEscape is the longest string that an escape sequence may carry to be taken as one.
const maxEscape = 4096

// escapeLen returns the length of the terminal escape sequence (ECMA-48) at the start of t, or 0. It covers CSI up to
// its final byte, OSC, DCS, APC, PM and SOS up to their terminator, and two-byte escapes. An incomplete sequence
// counts as its introducer.
func escapeLen(t []byte) int {
	intro, kind := 0, byte(0)
	switch {
	case len(t) > 1 && t[0] == 0x1b:
		intro, kind = 2, t[1]
	case len(t) == 1 && t[0] == 0x1b:
		return 1
	case len(t) > 1 && t[0] == 0xc2 && t[1] >= 0x80 && t[1] < 0xa0:
		intro, kind = 2, t[1]-0x40
	default:
		return 0
	}
	switch kind {
	case '[':
		return intro + csiLen(t[intro:])
	case ']', 'P', '_', '^', 'X':
		return intro + stringLen(t[intro:])
	}
	switch {
	case t[0] != 0x1b, kind >= 0x30 && kind < 0x7f:
		return intro
	case kind >= 0x20 && kind < 0x30 && len(t) > 2 && t[2] >= 0x20 && t[2] < 0x7f:
		return 3 // a character set
	}
	return 1
}

// csiLen returns the length of parameters, intermediates and the final byte, 0 without one.
func csiLen(t []byte) int {
	for i, c := range t {
		switch {
		case c >= 0x40 && c < 0x7f:
			return i + 1
		case c < 0x20 || c >= 0x40:
			return 0
		}
	}
	return 0
}

// stringLen returns the length of a control string with its terminator, 0 without one.
func stringLen(t []byte) int {
	for i, c := range t {
		switch {
		case c == 0x07:
			return i + 1
		case c == 0x1b && i+1 < len(t) && t[i+1] == '\\', c == 0xc2 && i+1 < len(t) && t[i+1] == 0x9c:
			return i + 2
		case c == 0x1b:
			return 0
		}
	}
	return 0
}
