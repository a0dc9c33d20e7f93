package agenthosts

import (
	"fmt"
	"strings"
	"unicode/utf8"
	"waldo/internal/model/display"
)

// Limits of one file. A file of this size is read whole; no legitimate file has this depth.
const (
	maxFile  = 16 << 20 // bytes: some hosts keep their history beside their servers
	maxDepth = 64       // of mappings and lists
)

// Pos is a place in a file.
type Pos struct {
	Line   int `json:"line"`   // from 1
	Column int `json:"column"` // from 1, in characters
}

// Kind is the type of a Value. The zero Kind is null.
type Kind uint8

// The kinds.
const (
	Null Kind = iota
	Bool
	Number
	Text
	List
	Map
)

// String returns the kind as a message says it.
func (k Kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "text", "a list", "a mapping"}[k%6]
}

// Value is one value of a file of any format, with its place. Text holds text decoded, and numbers
// and true or false as they were written.
type Value struct {
	Kind    Kind
	Text    string
	Items   []Value
	Members []Member // in the order of the file, no name twice
	At      Pos
}

// Member is one key of a mapping and its value.
type Member struct {
	Name  string
	At    Pos
	Value Value
}

// Get returns the member of a mapping, or nil if it is missing or v is not a mapping.
func (v *Value) Get(name string) *Value {
	if v == nil {
		return nil
	}
	for i := range v.Members {
		if v.Members[i].Name == name {
			return &v.Members[i].Value
		}
	}
	return nil
}

// Path follows names down from v; nil: one of them is not there.
func (v *Value) Path(names ...string) *Value {
	for _, n := range names {
		v = v.Get(n)
	}
	return v
}

// same reports whether two values are equal, regardless of their positions and the order of their keys.
func same(a, b *Value) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Kind != b.Kind || a.Text != b.Text || len(a.Items) != len(b.Items) || len(a.Members) != len(b.Members) {
		return false
	}
	for i := range a.Items {
		if !same(&a.Items[i], &b.Items[i]) {
			return false
		}
	}
	for i := range a.Members {
		if !same(&a.Members[i].Value, b.Get(a.Members[i].Name)) {
			return false
		}
	}
	return true
}

// Problem is one thing wrong with a host's file. It shows nothing of a value, which may be a secret.
type Problem struct {
	File string `json:"file"`
	At   Pos    `json:"at"`
	Text string `json:"text"`
	Do   string `json:"hint,omitempty"`
}

// Error gives file:line:column, as editors know it.
func (p *Problem) Error() string {
	if p.At.Line == 0 {
		return fmt.Sprintf("%s: %s", display.Shell(p.File), p.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s", display.Shell(p.File), p.At.Line, p.At.Column, p.Text)
}

// Hint says what to do.
func (p *Problem) Hint() string { return p.Do }

// fault is a Problem that does not know its file yet.
func fault(at Pos, hint, format string, a ...any) *Problem {
	return &Problem{At: at, Text: fmt.Sprintf(format, a...), Do: hint}
}

// lines finds places by offset.
type lines struct {
	text   []byte
	starts []int // of each line
}

func newLines(text []byte) *lines {
	l := &lines{text: text, starts: []int{0}}
	for i, c := range text {
		if c == '\n' {
			l.starts = append(l.starts, i+1)
		}
	}
	return l
}

func (l *lines) at(offset int) Pos {
	offset = min(max(offset, 0), len(l.text))
	low, high := 0, len(l.starts)
	for high-low > 1 {
		if mid := (low + high) / 2; l.starts[mid] <= offset {
			low = mid
		} else {
			high = mid
		}
	}
	return Pos{low + 1, 1 + utf8.RuneCount(l.text[l.starts[low]:offset])}
}

// unique holds the names of one mapping. Hosts disagree about which of two equal keys counts, so a
// file with two has no one meaning.
type unique map[string]Pos

func (u unique) add(name string, at Pos) *Problem {
	if first, twice := u[name]; twice {
		return fault(at, "keep one of them", "the key %s was written before, on line %d", display.Shell(name), first.Line)
	}
	u[name] = at
	return nil
}

// Format is how a file is written.
type Format uint8

// The formats. JSON is read with comments and trailing commas: several hosts take them.
const (
	JSON Format = iota
	TOML
	YAML
)

// Parse reads a file of one of the formats. It refuses what is too large or too deep, is not UTF-8
// or says a key twice.
func Parse(f Format, file string, text []byte) (*Value, error) {
	v, p := parse(f, text)
	if p != nil {
		p.File = file
		return nil, p
	}
	return v, nil
}

func parse(f Format, text []byte) (*Value, *Problem) {
	switch {
	case len(text) > maxFile:
		return nil, fault(Pos{1, 1}, "", "%d bytes: at most %d are read", len(text), maxFile)
	case !utf8.Valid(text):
		return nil, fault(Pos{1, 1}, "save it as UTF-8", "the file is not UTF-8")
	}
	switch f {
	case TOML:
		return parseTOML(text)
	case YAML:
		return parseYAML(text)
	}
	return parseJSON(text)
}

const mark = "\ufeff" // a byte order mark, which some editors put first

// blank reports text that says nothing: a file of it is as good as none.
func blank(text []byte) bool { return strings.TrimSpace(strings.TrimPrefix(string(text), mark)) == "" }
