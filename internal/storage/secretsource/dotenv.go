package secretsource

import (
	"fmt"
	"strings"

	"waldo/internal/model/secret"
)

// ParseError says which line of a .env file is refused, and why. It shows nothing of the line.
type ParseError struct {
	Line int // from 1
	Why  string
}

func (e *ParseError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Why) }

// The reasons of a ParseError: fixed texts, so that none can carry a secret.
const (
	whyForm      = "want NAME=VALUE"
	whyTwice     = "the name stands here twice"
	whyControl   = "it holds a control character"
	whyQuote     = "a quote is not closed, or something follows it"
	whyEscape    = `only \n, \t, \", \$ and \\ are known between double quotes`
	whyAmbiguous = "readers of .env files disagree about this value: put it between single quotes"
)

// ParseEnv parses a .env file of at most 64 KiB: NAME=VALUE, an optional "export " before it, empty lines, and lines
// that start with '#'. A value is plain, 'literal', or "with escapes". Nothing is expanded. ParseEnv refuses values
// that programs read in different ways ($, quotes, backslashes, '#' or spaces in a plain value), and a name given
// twice.
func ParseEnv(text []byte) (map[string]secret.Value, error) {
	if len(text) > maxFile {
		return nil, ErrTooBig
	}
	out := map[string]secret.Value{}
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if t := strings.TrimLeft(line, " \t"); t == "" || t[0] == '#' {
			continue
		}
		name, raw, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if !ok || !secret.Variable(name) {
			return nil, &ParseError{i + 1, whyForm}
		}
		v, why := envValue(raw)
		if _, twice := out[name]; twice {
			why = whyTwice
		}
		if why != "" {
			return nil, &ParseError{i + 1, why}
		}
		out[name] = secret.NewValue(v)
	}
	return out, nil
}

// envValue reads what follows the '='; why is empty when it is good.
func envValue(raw string) (v, why string) {
	if strings.ContainsFunc(raw, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return "", whyControl
	}
	switch {
	case strings.HasPrefix(raw, "'"):
		v, rest, ok := strings.Cut(raw[1:], "'")
		if !ok || rest != "" {
			return "", whyQuote
		}
		return v, ""
	case strings.HasPrefix(raw, `"`):
		return doubleQuoted(raw[1:])
	case strings.ContainsAny(raw, "$'\"`\\# \t"):
		return "", whyAmbiguous
	}
	return raw, ""
}

// doubleQuoted reads up to the closing quote, which must be the last byte.
func doubleQuoted(s string) (v, why string) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			if i != len(s)-1 {
				return "", whyQuote
			}
			return b.String(), ""
		case '$', '`':
			return "", whyAmbiguous
		case '\\':
			i++
			at := -1
			if i < len(s) {
				at = strings.IndexByte(`nt"$\`, s[i])
			}
			if at < 0 {
				return "", whyEscape
			}
			b.WriteByte("\n\t\"$\\"[at])
		default:
			b.WriteByte(c)
		}
	}
	return "", whyQuote
}
