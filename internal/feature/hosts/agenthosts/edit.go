package agenthosts

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Put returns the text of a host's file with one server's entry set to e, and every other byte unchanged as far as
// possible. If the entry already equals e, Put returns the text unchanged.
func (h *Host) Put(file string, text []byte, server string, e Value) ([]byte, error) {
	before, err := h.tree(file, text)
	if err != nil {
		return nil, err
	}
	path := append(slices.Clone(h.Under), server)
	if same(before.Path(path...), &e) {
		return text, nil
	}
	var after []byte
	switch h.Format {
	case TOML:
		after = putTOML(text, path, e)
	case YAML:
		after, err = putYAML(text, path, e)
	default:
		after, err = putJSON(text, path, e)
	}
	if err != nil {
		return nil, &Problem{File: file, Text: err.Error(), Do: "write the entry by hand; waldo install --print shows it"}
	}
	return after, h.verify(file, before, after, path, &e)
}

// Take returns the text without one server's entry.
func (h *Host) Take(file string, text []byte, server string) ([]byte, error) {
	before, err := h.tree(file, text)
	if err != nil {
		return nil, err
	}
	path := append(slices.Clone(h.Under), server)
	if before.Path(path...) == nil {
		return text, nil
	}
	var after []byte
	switch h.Format {
	case TOML:
		after = takeTOML(text, path)
	case YAML:
		after = takeYAML(text, path)
	default:
		after = takeJSON(text, path)
	}
	return after, h.verify(file, before, after, path, nil)
}

// Servers returns the name and value of each entry in a host's file.
func (h *Host) Servers(file string, text []byte) ([]Member, error) {
	v, err := h.tree(file, text)
	if err != nil {
		return nil, err
	}
	under := v.Path(h.Under...)
	if under == nil || under.Kind == Null {
		return nil, nil
	}
	if under.Kind != Map {
		p := fault(under.At, "", "%s must be a mapping of servers, not %s", strings.Join(h.Under, "."), under.Kind)
		p.File = file
		return nil, p
	}
	return under.Members, nil
}

// tree reads a host's file. An empty one is as good as none.
func (h *Host) tree(file string, text []byte) (*Value, error) {
	if blank(text) {
		return &Value{Kind: Map, At: Pos{1, 1}}, nil
	}
	v, err := Parse(h.Format, file, text)
	if err == nil && v.Kind != Map {
		p := fault(v.At, "", "the file must be a mapping, not %s", v.Kind)
		p.File, err = file, p
	}
	return v, err
}

// verify parses the new text: the entry must have the wanted value, and everything else its earlier value. A text
// that fails is never written.
func (h *Host) verify(file string, before *Value, after []byte, path []string, want *Value) error {
	v, err := h.tree(file, after)
	if err == nil && same(v.Path(path...), want) && same(without(before, path), without(v, path)) {
		return nil
	}
	return &Problem{
		File: file, Text: "the entry cannot be changed without touching the rest of the file",
		Do: "write it by hand; waldo install --print shows it",
	}
}

// without returns a copy of v without what stands at path, and without mappings that this leaves empty.
func without(v *Value, path []string) *Value {
	out := *v
	out.Members = nil
	for _, m := range v.Members {
		if m.Name != path[0] {
			out.Members = append(out.Members, m)
			continue
		}
		if len(path) == 1 {
			continue
		}
		if rest := without(&m.Value, path[1:]); rest.Kind != Map && rest.Kind != Null || len(rest.Members) > 0 {
			out.Members = append(out.Members, Member{m.Name, m.At, *rest})
		}
	}
	return &out
}

// newline is how the file ends its lines.
func newline(text []byte) string {
	if bytes.Contains(text, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// lineStart returns where the line of offset begins, lineEnd where the next one does.
func lineStart(text []byte, offset int) int { return bytes.LastIndexByte(text[:offset], '\n') + 1 }

func lineEnd(text []byte, offset int) int {
	if i := bytes.IndexByte(text[offset:], '\n'); i >= 0 {
		return offset + i + 1
	}
	return len(text)
}

// shortened moves an end back, so that blank lines and comments before the next entry stay with that entry.
func shortened(text []byte, from, to int) int {
	for to > from {
		start := lineStart(text, to-1)
		if line := strings.TrimSpace(string(text[start:to])); line != "" && line[0] != '#' {
			break
		}
		to = start
	}
	return max(to, from)
}

// margin is the white space that the line of offset begins with.
func margin(text []byte, offset int) string {
	start := lineStart(text, offset)
	end := start
	for end < len(text) && (text[end] == ' ' || text[end] == '\t') {
		end++
	}
	return string(text[start:end])
}

// splice puts new in the place of text[from:to].
func splice(text []byte, from, to int, new string) []byte {
	return fmt.Appendf(nil, "%s%s%s", text[:from], new, text[to:])
}
