package codegen

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// literal returns a string literal of a language on one line. Every character that does not print is escaped: line
// ends, control and bidirectional characters, U+2028. wide is the form of an escape above U+FFFF.
func literal(s, wide string) string {
	if plain(s) {
		return `"` + s + `"`
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x7f || strconv.IsPrint(r) && r != utf8.RuneError:
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, wide, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// plain reports whether every character of a text stands for itself in a literal.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func pythonText(s string) string     { return literal(s, `\U%08x`) }
func typescriptText(s string) string { return literal(s, `\u{%x}`) }

// Bounds of documentation, in characters and in parameters.
const (
	maxDescription = 4000
	maxMeaning     = 400
	maxMeanings    = 200
)

// clip cuts a text to n characters.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// documentation returns the lines that describe a tool.
func documentation(t Tool, params *object) []string {
	var out []string
	add := func(text string) { out = append(out, strings.Split(text, "\n")...) }
	if strings.TrimSpace(t.Title) != "" {
		add(clip(t.Title, maxMeaning))
	}
	if strings.TrimSpace(t.Description) != "" {
		add(clip(t.Description, maxDescription))
	}
	n := 0
	for _, f := range params.fields {
		if strings.TrimSpace(f.meaning) == "" || n == maxMeanings {
			continue
		}
		if n++; n == 1 {
			out = append(out, "", "Parameters:")
		}
		out = append(out, "  "+clip(f.name, maxMeaning)+": "+strings.Join(strings.Fields(clip(f.meaning, maxMeaning)), " "))
	}
	if len(out) == 0 {
		return []string{"The tool " + clip(t.Name, maxMeaning)}
	}
	return out
}
