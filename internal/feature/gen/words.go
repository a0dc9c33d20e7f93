package gen

import (
	"errors"
	"strings"
)

var errQuote = errors.New("a quote or a backslash at the end has no partner")

// split splits a command as a shell does (POSIX, Shell Command Language, 2.2 Quoting). It expands nothing: $, ~, * and
// the like stay as they are.
func split(command string) ([]string, error) {
	var words []string
	var word strings.Builder
	in, quote := false, rune(0)
	text := []rune(command)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote == '\'' && c == '\'', quote == '"' && c == '"':
			quote = 0
		case quote == '\'':
			word.WriteRune(c)
		case c == '\\':
			if i++; i == len(text) {
				return nil, errQuote
			}
			if quote == '"' && !strings.ContainsRune("$`\"\\\n", text[i]) {
				word.WriteRune('\\')
			}
			if text[i] != '\n' {
				word.WriteRune(text[i])
				in = true
			}
		case quote == '"':
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, in = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if in {
				words = append(words, word.String())
			}
			word.Reset()
			in = false
		default:
			word.WriteRune(c)
			in = true
		}
	}
	if quote != 0 {
		return nil, errQuote
	}
	if in {
		words = append(words, word.String())
	}
	return words, nil
}
