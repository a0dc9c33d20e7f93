// Package outline describes the keys of waldo.yaml without the types that they are read into. The JSON Schema and the
// reference page are made from it.
package outline

// AnyPath represents every absolute path as a key.
const AnyPath = "/PATH"

// Mapping is a mapping with keys of waldo's own.
type Mapping struct {
	Name    string // one name, one section of the reference page
	Doc     string // the first text of its section
	Example string // a whole file that shows it
	Keys    []Key
}

// Key is one key of a mapping.
type Key struct {
	Name     string
	Absent   string // meaning of an absent line
	Doc      string // one sentence
	By       string // the package that enforces it
	Shapes   []Shape
	Required bool
}

// Shape describes the values of a key.
type Shape struct {
	Name   string         // as the reference page calls it: text, number, time, one of
	Bounds string         // in the reference page: 1 to 3, at most 1m
	Words  []string       // the allowed words
	Schema map[string]any // of the JSON Schema, without List and Named
	Of     func() Mapping // a mapping with keys of its own
	List   bool           // a list of it
	Named  bool           // a mapping of the operator's own names to it
}
