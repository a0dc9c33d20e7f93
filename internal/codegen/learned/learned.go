// Package learned makes types of observed results, for tools whose server declares none. It stores shapes and no
// values: kinds, names of fields, and which fields were always there. A change of a shape is a drift with a version.
package learned

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"waldo/internal/protocol/strictjson"
)

// Bounds of one shape. Beyond each of them a part is anything, or an object is a map.
const (
	maxDepth   = 12
	maxFields  = 100
	maxItems   = 1000 // of one list; later ones are not read
	maxResults = 10_000
	// MaxFile bounds a file of shapes or of results, in bytes.
	MaxFile = 64 << 20
)

// format is the version of the file's format.
const format = 1

// Shapes are the shapes of one server's tools.
type Shapes struct {
	Format int              `json:"format"`
	Tools  map[string]*Tool `json:"tools"`
}

// Tool describes the known results of one tool.
type Tool struct {
	Version int   `json:"version"` // one more with each drift
	Results int   `json:"results"` // how many were seen
	Schema  *node `json:"schema"`
}

// node is a part of a shape: a subset of JSON Schema. A nil or empty node is anything.
type node struct {
	Type       []string         `json:"type,omitempty"` // sorted
	Properties map[string]*node `json:"properties,omitempty"`
	Required   []string         `json:"required,omitempty"`
	Rest       *node            `json:"additionalProperties,omitempty"` // of an object whose names are data
	Items      *node            `json:"items,omitempty"`
}

// ErrFormat is returned for a file of shapes that this waldo does not read.
var ErrFormat = errors.New("this waldo cannot read this file of shapes")

// Read reads a file of shapes.
func Read(b []byte) (s Shapes, err error) {
	v, err := strictjson.Parse(b)
	if err != nil {
		return s, errors.Join(ErrFormat, err)
	}
	d := json.NewDecoder(bytes.NewReader(v.Raw()))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Shapes{}, errors.Join(ErrFormat, err)
	}
	if s.Format != format {
		return Shapes{}, fmt.Errorf("%w: format %d, and not %d", ErrFormat, s.Format, format)
	}
	for name, t := range s.Tools {
		if t == nil || t.Schema == nil || t.Version < 1 {
			return Shapes{}, fmt.Errorf("%w: the tool %q", ErrFormat, name)
		}
	}
	return s, nil
}

// Text returns the shapes as a file. Equal shapes are equal files.
func (s Shapes) Text() ([]byte, error) {
	s.Format = format
	b, err := json.MarshalIndent(s, "", "  ")
	return append(b, '\n'), err
}

// Schema returns the shape of a tool's results as a JSON Schema; the zero Value: unknown.
func (s Shapes) Schema(tool string) strictjson.Value {
	t := s.Tools[tool]
	if t == nil {
		return strictjson.Value{}
	}
	b, err := json.Marshal(t.Schema)
	if err != nil {
		return strictjson.Value{}
	}
	v, _ := strictjson.Parse(b)
	return v
}

// Results reads the results in a file: JSON values one after another, each a result or the output of
// `waldo call --json`. It leaves out a result that failed.
func Results(r io.Reader) (all []strictjson.Value, err error) {
	d := json.NewDecoder(io.LimitReader(r, MaxFile))
	for {
		var raw json.RawMessage
		if err := d.Decode(&raw); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("result %d: %w", len(all)+1, err)
		}
		v, err := strictjson.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("result %d: %w", len(all)+1, err)
		}
		if v, ok := inner(v); ok {
			all = append(all, v)
		}
		if len(all) > maxResults {
			return nil, fmt.Errorf("more than %d results", maxResults)
		}
	}
}

// inner takes a result out of the output of `waldo call --json`, as code in a sandbox sees it.
func inner(v strictjson.Value) (strictjson.Value, bool) {
	if v.Member("call_id").IsZero() || v.Member("decision_id").IsZero() || v.Member("content").IsZero() {
		return v, true
	}
	if status, _ := v.Member("status").Text(); status != "ok" || v.Member("is_error").Kind() == 't' {
		return v, false
	}
	if s := v.Member("structured"); !s.IsZero() {
		return s, true
	}
	var text []string
	all, _ := v.Member("content").Elements()
	for _, c := range all {
		if t, ok := c.Member("text").Text(); ok {
			text = append(text, t)
		}
	}
	joined := strings.Join(text, "\n")
	if parsed, err := strictjson.Parse([]byte(joined)); err == nil && (parsed.Kind() == '{' || parsed.Kind() == '[') {
		return parsed, true
	}
	b, err := json.Marshal(joined)
	if err != nil {
		return v, false
	}
	parsed, err := strictjson.Parse(b)
	return parsed, err == nil
}

// Learn adds results of a tool. It returns how its shape drifted from the one before, a line for each change; the first
// results of a tool are no drift.
func (s *Shapes) Learn(tool string, results []strictjson.Value) (drift []string) {
	if len(results) == 0 {
		return nil
	}
	if s.Tools == nil {
		s.Tools = map[string]*Tool{}
	}
	t, known := s.Tools[tool]
	if !known {
		t = &Tool{Version: 1}
		s.Tools[tool] = t
	}
	now := t.Schema
	for _, v := range results {
		seen := shapeOf(v, 0)
		if now == nil {
			now = seen
		} else {
			now = merge(now, seen)
		}
	}
	if known {
		drift = differences(t.Schema, now, "result", nil)
	}
	if len(drift) > 0 {
		t.Version++
	}
	t.Results += len(results)
	t.Schema = now
	return drift
}

// name is a field's name, rather than data in the place of one, such as an address.
var name = regexp.MustCompile(`^[A-Za-z_$][A-Za-z_$-]*[0-9]{0,2}$`)

// kinds are the types of JSON Schema by the first byte of a value.
var kinds = map[byte]string{'"': "string", 't': "boolean", 'f': "boolean", 'n': "null", '{': "object", '[': "array"}

// shapeOf returns the shape of one value.
func shapeOf(v strictjson.Value, depth int) *node {
	kind := kinds[v.Kind()]
	if kind == "" {
		kind = "number"
		if !bytes.ContainsAny(v.Raw(), ".eE") {
			kind = "integer"
		}
	}
	n := &node{Type: []string{kind}}
	if depth >= maxDepth {
		return &node{}
	}
	switch kind {
	case "array":
		all, _ := v.Elements()
		for _, e := range all[:min(len(all), maxItems)] {
			n.Items = join(n.Items, shapeOf(e, depth+1))
		}
	case "object":
		fields, _ := v.Members()
		if data(maps.Keys(fields), len(fields)) {
			for _, f := range fields {
				n.Rest = join(n.Rest, shapeOf(f, depth+1))
			}
			break
		}
		n.Properties = map[string]*node{}
		for key, f := range fields {
			n.Properties[key] = shapeOf(f, depth+1)
		}
		n.Required = slices.Sorted(maps.Keys(fields))
		if alike(n.Properties) {
			for _, f := range n.Properties {
				n.Rest = join(n.Rest, f)
			}
			n.Properties, n.Required = nil, nil
		}
	}
	return n
}

// alike reports whether an object's values are objects with the same names of fields. Its own names are then data,
// such as those of users.
func alike(fields map[string]*node) bool {
	var first []string
	for _, f := range fields {
		switch {
		case len(f.Required) == 0 || first != nil && !slices.Equal(first, f.Required):
			return false
		case first == nil:
			first = f.Required
		}
	}
	return len(fields) > 1
}

// data reports whether the names of an object's fields are data: there are many, or one cannot be a name.
func data(keys func(func(string) bool), n int) bool {
	if n > maxFields {
		return true
	}
	for key := range keys {
		if !name.MatchString(key) || len(key) > 64 {
			return true
		}
	}
	return false
}

// join is merge, where nil is nothing seen.
func join(a, b *node) *node {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return merge(a, b)
}

// merge returns the shape that both fit.
func merge(a, b *node) *node {
	if len(a.Type) == 0 || len(b.Type) == 0 {
		return &node{}
	}
	n := &node{Type: slices.Compact(slices.Sorted(slices.Values(slices.Concat(a.Type, b.Type))))}
	if slices.Contains(n.Type, "number") {
		n.Type = slices.DeleteFunc(n.Type, func(k string) bool { return k == "integer" })
	}
	n.Items = join(a.Items, b.Items)
	has := func(n *node) bool { return slices.Contains(n.Type, "object") }
	switch {
	case !has(a):
		n.Properties, n.Required, n.Rest = b.Properties, b.Required, b.Rest
		return n
	case !has(b):
		n.Properties, n.Required, n.Rest = a.Properties, a.Required, a.Rest
		return n
	}
	fields := maps.Clone(a.Properties)
	if fields == nil {
		fields = map[string]*node{}
	}
	for key, f := range b.Properties {
		fields[key] = join(fields[key], f)
	}
	if a.Rest != nil || b.Rest != nil || len(fields) > maxFields {
		n.Rest = join(a.Rest, b.Rest)
		for _, f := range fields {
			n.Rest = join(n.Rest, f)
		}
		return n
	}
	n.Properties = fields
	for _, key := range a.Required {
		if slices.Contains(b.Required, key) {
			n.Required = append(n.Required, key)
		}
	}
	return n
}

// differences describes how a shape differs from the one before, at most 20 lines.
func differences(was, now *node, at string, out []string) []string {
	if was == nil || now == nil || len(out) >= 20 {
		if was != now && len(out) < 20 {
			out = append(out, at+" was not seen before")
		}
		return out
	}
	if !slices.Equal(was.Type, now.Type) {
		out = append(out, fmt.Sprintf("%s was %s and is %s", at, kindsOf(was), kindsOf(now)))
	}
	if was.Rest == nil && now.Rest != nil {
		return append(out, at+" has names that are data")
	}
	for _, key := range slices.Sorted(maps.Keys(now.Properties)) {
		before, ok := was.Properties[key]
		switch {
		case !ok:
			out = append(out, at+"."+key+" is new")
			continue
		case slices.Contains(was.Required, key) && !slices.Contains(now.Required, key):
			out = append(out, at+"."+key+" is not always there")
		}
		out = differences(before, now.Properties[key], at+"."+key, out)
	}
	out = differences(was.Rest, now.Rest, at+"[…]", out)
	out = differences(was.Items, now.Items, at+"[]", out)
	return out[:min(len(out), 20)]
}

func kindsOf(n *node) string {
	if len(n.Type) == 0 {
		return "anything"
	}
	return strings.Join(n.Type, " or ")
}
