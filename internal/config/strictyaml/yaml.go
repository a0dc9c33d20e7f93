// Package strictyaml reads YAML without hidden meaning: no anchors, tags or merge keys, no key twice, no character
// without a form, no value on which YAML readers disagree. It collects every problem with its place and a hint.
package strictyaml

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"waldo/internal/detect/unseen"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

// Limits of one file.
const (
	MaxFile  = 1 << 20 // bytes
	maxDepth = 24      // of mappings and lists
	maxNodes = 100_000
	maxShown = 100 // problems
)

// Reader turns text into nodes that hold no surprises, and collects problems.
type Reader struct {
	File     string // only shown in positions
	Problems contract.Problems
	Warnings contract.Problems
	Hints    map[*yaml.Node]string // better hints than the general one, by the node that a problem is about
	nodes    int
}

// At is the place of a node.
func (r *Reader) At(n *yaml.Node) contract.Position {
	return contract.Position{File: r.File, Line: n.Line, Column: n.Column}
}

// Fail notes a problem. The hint can be empty.
func (r *Reader) Fail(n *yaml.Node, code, hint, format string, args ...any) {
	if better := r.Hints[n]; better != "" {
		hint = better
	}
	if len(r.Problems) < maxShown {
		r.Problems = append(r.Problems, contract.Problem{
			At: r.At(n), Code: code, Text: fmt.Sprintf(format, args...), Hint: hint,
		})
	}
}

// Warn notes a warning.
func (r *Reader) Warn(at contract.Position, code, hint, format string, args ...any) {
	r.Warnings = append(r.Warnings, contract.Problem{At: at, Code: code, Text: fmt.Sprintf(format, args...), Hint: hint})
}

// Document reads the one YAML document in text. It returns nil where there is nothing to go on
// with: not UTF-8, too large, not YAML, empty, or more than one document.
func (r *Reader) Document(text []byte) *yaml.Node {
	top := &yaml.Node{Line: 1, Column: 1}
	switch {
	case len(text) > MaxFile:
		r.Fail(top, "file.size", "", "%d bytes: at most %d are read", len(text), MaxFile)
		return nil
	case !utf8.Valid(text):
		r.Fail(top, "file.utf8", "save it as UTF-8", "the file is not UTF-8")
		return nil
	}
	for i, line := range strings.Split(string(text), "\n") {
		column := 0
		for _, c := range line {
			column++
			if unseen.InFile(c) || c < ' ' && c != '\t' && c != '\r' {
				r.Fail(&yaml.Node{Line: i + 1, Column: column}, "yaml.hidden", "remove it",
					"a character that does not show: U+%04X", c)
				return nil
			}
		}
	}
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		r.Warn(r.At(top), "config.empty", "`waldo init` writes one to start from",
			"the file says nothing: every capability is denied")
		return nil
	} else if err != nil {
		r.syntax(err)
		return nil
	}
	if err := dec.Decode(&more); err == nil {
		r.Fail(&more, "yaml.documents", "keep one", "a second document begins here")
		return nil
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err)
		return nil
	}
	if len(doc.Content) != 1 {
		r.Fail(top, "yaml.syntax", "", "not a YAML document")
		return nil
	}
	before := len(r.Problems)
	r.tame(doc.Content[0], 1)
	if len(r.Problems) > before {
		return nil
	}
	return doc.Content[0]
}

// syntax reports an error of the YAML library at the line that it names.
func (r *Reader) syntax(err error) {
	n := &yaml.Node{Line: 1, Column: 1}
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		number, said, _ := strings.Cut(rest, ": ")
		if line, err := strconv.Atoi(number); err == nil {
			n.Line, text = line, said
		}
	}
	hint := ""
	if strings.Contains(text, "found character that cannot start any token") || strings.Contains(text, "tab") {
		hint = "indent with spaces, not tabs"
	}
	if strings.Contains(text, "did not find expected ',' or '") {
		hint = "at this line or below it a { or [ is not closed, or a comma is missing"
	}
	r.Fail(n, "yaml.syntax", hint, "%s", text)
}

// tame refuses what makes YAML mean more than it shows: anchors, aliases, merge keys, tags,
// duplicate keys, keys that are not text, and depth.
func (r *Reader) tame(n *yaml.Node, depth int) {
	r.nodes++
	switch {
	case r.nodes == maxNodes:
		r.Fail(n, "file.size", "", "more than %d values", maxNodes)
	case depth > maxDepth:
		r.Fail(n, "yaml.depth", "", "nested deeper than %d", maxDepth)
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		r.Fail(n, "yaml.anchor", "write the value out", "anchors and aliases are not read")
	case n.Style&yaml.TaggedStyle != 0:
		r.Fail(n, "yaml.tag", "leave the tag out", "tags are not read")
	}
	if len(r.Problems) > 0 && depth > maxDepth || r.nodes >= maxNodes {
		return
	}
	if n.Kind == yaml.MappingNode {
		r.keys(n)
	}
	for _, c := range n.Content {
		r.tame(c, depth+1)
	}
}

func (r *Reader) keys(n *yaml.Node) {
	seen := map[string]*yaml.Node{}
	for i := 0; i < len(n.Content); i += 2 {
		k := n.Content[i]
		switch {
		case k.Tag == "!!merge":
			r.Fail(k, "yaml.merge", "write the keys out", "merge keys are not read: entries never merge")
		case k.Kind != yaml.ScalarNode || k.Tag != "!!str":
			r.Fail(k, "yaml.key", "put it in quotes", "a key must be text")
		case seen[k.Value] != nil:
			r.Fail(k, "key.duplicate", "keep one of them", "%q was written before, on line %d", k.Value, seen[k.Value].Line)
		default:
			seen[k.Value] = k
		}
	}
}

// vague reports a plain word that YAML 1.1 takes for true or false and YAML 1.2 for text.
func vague(n *yaml.Node) bool {
	if n.Style != 0 {
		return false
	}
	switch strings.ToLower(n.Value) {
	case "y", "n", "yes", "no", "on", "off":
		return true
	}
	return false
}

// Field is one key of a mapping and its value.
type Field struct {
	Name     string
	Key, Val *yaml.Node
}

// Known describes a mapping to a reader, which refuses other keys.
type Known interface {
	Called() string // in messages
	Names() []string
}

// limits are the keys below limits:, which are often written one level too high.
var limits = []string{"memory_mb", "cpu_seconds", "pids", "files", "disk_mb", "output_kb"}

// Fields returns the known keys of a mapping, and reports the others and those without a value.
func (r *Reader) Fields(n *yaml.Node, m Known) []Field {
	if n.Kind != yaml.MappingNode {
		r.Fail(n, "value.type", "write key: value lines", "%s wants a mapping, not %s", m.Called(), Kind(n))
		return nil
	}
	var out []Field
	for i := 0; i+1 < len(n.Content); i += 2 {
		f := Field{n.Content[i].Value, n.Content[i], n.Content[i+1]}
		if !slices.Contains(m.Names(), f.Name) {
			hint := display.Meant(f.Name, m.Names())
			if f.Name == "addresses" || f.Name == "internal" {
				hint = f.Name + ": belongs at the top of the file"
			}
			if slices.Contains(m.Names(), "limits") && slices.Contains(limits, f.Name) {
				hint = fmt.Sprintf("it belongs below limits:, as in limits: {%s: …}", f.Name)
			}
			r.Fail(f.Key, "key.unknown", hint, "unknown key %q in %s", f.Name, m.Called())
			continue
		}
		if r.present(f) {
			out = append(out, f)
		}
	}
	return out
}

// Entries returns the keys of a mapping whose keys are the operator's own names.
func (r *Reader) Entries(f Field) []Field {
	if f.Val.Kind != yaml.MappingNode {
		r.Fail(f.Val, "value.type", "write name: value lines", "%s wants a mapping, not %s", f.Name, Kind(f.Val))
		return nil
	}
	var out []Field
	for i := 0; i+1 < len(f.Val.Content); i += 2 {
		if e := (Field{f.Val.Content[i].Value, f.Val.Content[i], f.Val.Content[i+1]}); r.present(e) {
			out = append(out, e)
		}
	}
	return out
}

func (r *Reader) present(f Field) bool {
	if f.Val.Kind == yaml.ScalarNode && f.Val.Tag == "!!null" {
		r.Fail(f.Key, "value.empty", "give it one, or remove the line", "%q has no value", f.Name)
		return false
	}
	return true
}

// Kind names the kind of a node, for a message.
func Kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!null":
		return "nothing"
	}
	return "text"
}
