// Package data holds what secrets and personal data look like, as tables.
package data

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
)

var (
	//go:embed tokens.tsv
	tokens string
	//go:embed names.tsv
	names string
)

// Token is the form of a token of a vendor: a prefix, then at least Min letters, digits and characters of More.
type Token struct {
	ID, Vendor, Source, Example string
	Prefix, More                string
	Min                         int
}

// Tokens returns the forms of tokens. A row that cannot be read is a fault of the build.
var Tokens = sync.OnceValue(func() (out []Token) {
	for _, c := range rows(tokens, 5) {
		t := Token{ID: c[0], Vendor: c[1], Source: c[3], Example: reversed(c[4])}
		prefix, rest, ok := strings.Cut(c[2], "[A-Za-z0-9")
		more, count, ok2 := strings.Cut(rest, "]{")
		n, err := strconv.Atoi(strings.TrimSuffix(count, ",}"))
		if !ok || !ok2 || err != nil || len(prefix) < 2 {
			panic("tokens.tsv: " + c[2])
		}
		t.Prefix, t.More, t.Min = prefix, more, n
		out = append(out, t)
	}
	return out
})

// Names returns the words of a kind, with a dash between their parts.
func Names(kind string) (out []string) {
	for _, c := range rows(names, 2) {
		if c[0] == kind {
			out = append(out, c[1])
		}
	}
	return out
}

func rows(table string, columns int) (out [][]string) {
	for l := range strings.Lines(table) {
		if l = strings.TrimRight(l, "\n"); l == "" || l[0] == '#' {
			continue
		}
		c := strings.Split(l, "\t")
		if len(c) != columns {
			panic("a row of a table in package data has not its columns: " + l)
		}
		out = append(out, c)
	}
	return out
}

func reversed(s string) string {
	b := []byte(s)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}
