package contract

import "strings"

// Pattern is the key of an entry: a capability's name in which each '*' matches any run of characters, including dots
// and the empty run.
type Pattern string

// Exact reports whether the pattern holds no '*' and so names one capability.
func (p Pattern) Exact() bool { return !strings.Contains(string(p), "*") }

// Match reports whether the pattern matches the whole of name. It takes time in proportion to
// len(p) times len(name) at worst.
func (p Pattern) Match(name string) bool {
	s, i, j := string(p), 0, 0
	star, mark := -1, 0 // the last '*' seen, and where its run ends in name
	for j < len(name) {
		switch {
		case i < len(s) && s[i] == '*':
			star, mark = i, j
			i++
		case i < len(s) && s[i] == name[j]:
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(s) && s[i] == '*' {
		i++
	}
	return i == len(s)
}

// Covers reports whether every name that q matches is matched by p too. A '*' is never part of a
// name, so q is covered exactly where p matches the text of q with its stars taken as letters.
func (p Pattern) Covers(q Pattern) bool { return p.Match(string(q)) }

// Beats reports whether p is more specific than q: p matches fewer names than q, and no other.
// Patterns that only overlap do not beat each other: between them the strictest decides.
func (p Pattern) Beats(q Pattern) bool { return p != q && q.Covers(p) }

// Meets reports whether p and q could match the same name. It compares only the text before their first stars, so it
// can return true for disjoint patterns.
func (p Pattern) Meets(q Pattern) bool {
	a, _, _ := strings.Cut(string(p), "*")
	b, _, _ := strings.Cut(string(q), "*")
	return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
}

// Fault says what is wrong with a pattern as a key of capabilities, or "".
func (p Pattern) Fault() (text, hint string) {
	s := string(p)
	switch {
	case s == "":
		return "the name of a capability is empty", ""
	case len(s) > maxName:
		return "the name of a capability is longer than 128 characters", ""
	case strings.Contains(s, "**"):
		return "a pattern has two '*' side by side", "one '*' matches any characters, dots among them"
	case strings.Contains(s, "__") && !strings.Contains(s, "."):
		return "\"__\" is how a dot looks on the wire", "write " + strings.Replace(s, "__", ".", 1)
	case strings.HasPrefix(s, ".") || strings.HasSuffix(s, ".") || strings.Contains(s, ".."):
		return "a dot stands between two parts of a name", ""
	case !Name(strings.ReplaceAll(s, "*", "")) && strings.Trim(s, "*") != "":
		return "a name is letters, digits and any of . _ - / :", ""
	}
	return "", ""
}

const maxName = 128

// Name reports whether s may be the name of a capability: 1 to 128 ASCII letters, digits and
// any of . _ - / : (wider than MCP's own rule for tool names, narrow enough to print).
func Name(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-/:", c) >= 0) {
			return false
		}
	}
	return true
}
