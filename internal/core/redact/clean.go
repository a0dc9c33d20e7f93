package redact

import (
	"strings"
	"unicode/utf8"

	"waldo/internal/detect/unseen"
)

// Clean returns text that is safe to show to a model or on a terminal. It removes escape sequences, control
// characters except line ends and tab, direction marks, tags and other invisible characters. A lone carriage return
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

// plain reports whether s is printable ASCII with line ends and tabs.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 && c != '\n' && c != '\t' && (c != '\r' || i+1 >= len(s) || s[i+1] != '\n') || c >= 0x7f {
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
		if n := unseen.Escape([]byte(s[i:min(len(s), i+unseen.MaxEscape)])); n > 0 {
			i += n
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		switch {
		case r == '\r':
			if i >= len(s) || s[i] != '\n' {
				r = '\n'
			}
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
	case r < 0x20 || r >= 0x7f && r < 0xa0 || unseen.Hidden(r):
		return -1
	case r == 0x2028 || r == 0x2029:
		return '\n'
	}
	return r
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
