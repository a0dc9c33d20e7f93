package display

import (
	"fmt"
	"strings"
)

// Shell returns text as one exact shell word on one line. It writes characters that a terminal, a shell or a reader
// could misread as escapes in $'…'. So a hostile file cannot control the screen or imitate another letter. A pasted
// word gives the same bytes in bash.
func Shell(s string) string {
	plain, printable := s != "", true
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_./:=@%+,", c) >= 0:
		case c >= ' ' && c < 0x7f:
			plain = false
		default:
			plain, printable = false, false
		}
	}
	switch {
	case plain:
		return s
	case printable && !strings.Contains(s, "'"):
		return "'" + s + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for _, r := range strings.ToValidUTF8(s, "\ufffd") {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\'' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= ' ' && r < 0x7f:
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// ShellAll returns a command as a shell line.
func ShellAll(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = Shell(w)
	}
	return strings.Join(out, " ")
}

// ASCII returns one line of a file for a terminal: it escapes unprintable characters.
func ASCII(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\ufffd") {
		if r == '\t' || r >= ' ' && r < 0x7f {
			b.WriteRune(r)
		} else {
			b.WriteString(Escaped(r))
		}
	}
	return b.String()
}

// Escaped is a character by its number, as \u00e9.
func Escaped(r rune) string {
	if r < 0x10000 {
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}
