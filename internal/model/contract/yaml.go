package contract

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Limits of one file.
const (
	maxFile  = 1 << 20 // bytes
	maxDepth = 24      // of mappings and lists
	maxNodes = 100_000
	maxShown = 100 // problems
)

// codeLiteral marks a problem whose line may show a secret.
const codeLiteral = "secret.literal"

// reader turns text into nodes that hold no surprises, and collects what is wrong.
type reader struct {
	file     string
	problems Problems
	warnings Problems
	nodes    int
	hints    map[*yaml.Node]string // better hints than the general one, by the node that a problem is about
}

func (r *reader) at(n *yaml.Node) Position { return Position{r.file, n.Line, n.Column} }

func (r *reader) fail(n *yaml.Node, code, hint, format string, args ...any) {
	if better := r.hints[n]; better != "" {
		hint = better
	}
	if len(r.problems) < maxShown {
		r.problems = append(r.problems, Problem{At: r.at(n), Code: code, Text: fmt.Sprintf(format, args...), Hint: hint})
	}
}

func (r *reader) warn(at Position, code, hint, format string, args ...any) {
	r.warnings = append(r.warnings, Problem{At: at, Code: code, Text: fmt.Sprintf(format, args...), Hint: hint})
}

// document reads the one YAML document in text. It returns nil where there is nothing to go on
// with: not UTF-8, too large, not YAML, empty, or more than one document.
func (r *reader) document(text []byte) *yaml.Node {
	top := &yaml.Node{Line: 1, Column: 1}
	switch {
	case len(text) > maxFile:
		r.fail(top, "file.size", "", "%d bytes: at most %d are read", len(text), maxFile)
		return nil
	case !utf8.Valid(text):
		r.fail(top, "file.utf8", "save it as UTF-8", "the file is not UTF-8")
		return nil
	}
	for i, line := range strings.Split(string(text), "\n") {
		column := 0
		for _, c := range line {
			column++
			if hidden(c) || c < ' ' && c != '\t' && c != '\r' {
				r.fail(&yaml.Node{Line: i + 1, Column: column}, "yaml.hidden", "remove it", "a character that does not show: U+%04X", c)
				return nil
			}
		}
	}
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		r.warn(r.at(top), "config.empty", "`waldo init` writes one to start from", "the file says nothing: every capability is denied")
		return nil
	} else if err != nil {
		r.syntax(err)
		return nil
	}
	if err := dec.Decode(&more); err == nil {
		r.fail(&more, "yaml.documents", "keep one", "a second document begins here")
		return nil
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err)
		return nil
	}
	if len(doc.Content) != 1 {
		r.fail(top, "yaml.syntax", "", "not a YAML document")
		return nil
	}
	before := len(r.problems)
	r.tame(doc.Content[0], 1)
	if len(r.problems) > before {
		return nil
	}
	return doc.Content[0]
}

// syntax reports an error of the YAML library at the line that it names.
func (r *reader) syntax(err error) {
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
	r.fail(n, "yaml.syntax", hint, "%s", text)
}

// tame refuses what makes YAML mean more than it shows: anchors, aliases, merge keys, tags,
// duplicate keys, keys that are not text, and depth.
func (r *reader) tame(n *yaml.Node, depth int) {
	r.nodes++
	switch {
	case r.nodes == maxNodes:
		r.fail(n, "file.size", "", "more than %d values", maxNodes)
	case depth > maxDepth:
		r.fail(n, "yaml.depth", "", "nested deeper than %d", maxDepth)
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		r.fail(n, "yaml.anchor", "write the value out", "anchors and aliases are not read")
	case n.Style&yaml.TaggedStyle != 0:
		r.fail(n, "yaml.tag", "leave the tag out", "tags are not read")
	}
	if len(r.problems) > 0 && depth > maxDepth || r.nodes >= maxNodes {
		return
	}
	if n.Kind == yaml.MappingNode {
		r.keys(n)
	}
	for _, c := range n.Content {
		r.tame(c, depth+1)
	}
}

func (r *reader) keys(n *yaml.Node) {
	seen := map[string]*yaml.Node{}
	for i := 0; i < len(n.Content); i += 2 {
		k := n.Content[i]
		switch {
		case k.Tag == "!!merge":
			r.fail(k, "yaml.merge", "write the keys out", "merge keys are not read: entries never merge")
		case k.Kind != yaml.ScalarNode || k.Tag != "!!str":
			r.fail(k, "yaml.key", "put it in quotes", "a key must be text")
		case seen[k.Value] != nil:
			r.fail(k, "key.duplicate", "keep one of them", "%q was written before, on line %d", k.Value, seen[k.Value].Line)
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

// field is one key of a mapping and its value.
type field struct {
	name     string
	key, val *yaml.Node
}

// fields returns the known keys of a mapping, and reports the others, those without a value and
// those that this build does not enforce.
func (r *reader) fields(n *yaml.Node, scope string) []field {
	if n.Kind != yaml.MappingNode {
		r.fail(n, "value.type", "write key: value lines", "%s wants a mapping, not %s", scopeName(scope), kind(n))
		return nil
	}
	var out []field
	for i := 0; i+1 < len(n.Content); i += 2 {
		f := field{n.Content[i].Value, n.Content[i], n.Content[i+1]}
		k, ok := keyOf(scope, f.name)
		switch {
		case !ok:
			r.fail(f.key, "key.unknown", meant(f.name, namesOf(scope)), "unknown key %q in %s", f.name, scopeName(scope))
			continue
		case k.By == "":
			r.fail(f.key, "key.not_enforced", "remove it: this build would not hold to it", "%q in %s is not enforced by this build", f.name, scopeName(scope))
		}
		if r.present(f) {
			out = append(out, f)
		}
	}
	return out
}

// entries returns the keys of a mapping whose keys are the operator's own names.
func (r *reader) entries(f field) []field {
	if f.val.Kind != yaml.MappingNode {
		r.fail(f.val, "value.type", "write name: value lines", "%s wants a mapping, not %s", f.name, kind(f.val))
		return nil
	}
	var out []field
	for i := 0; i+1 < len(f.val.Content); i += 2 {
		if e := (field{f.val.Content[i].Value, f.val.Content[i], f.val.Content[i+1]}); r.present(e) {
			out = append(out, e)
		}
	}
	return out
}

func (r *reader) present(f field) bool {
	if f.val.Kind == yaml.ScalarNode && f.val.Tag == "!!null" {
		r.fail(f.key, "value.empty", "give it one, or remove the line", "%q has no value", f.name)
		return false
	}
	return true
}

func kind(n *yaml.Node) string {
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
