package agenthosts

import (
	"errors"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseYAML parses one YAML document. It refuses anchors, aliases and merge keys: readers interpret them differently.
func parseYAML(text []byte) (*Value, *Problem) {
	if len(text) > maxConfig {
		return nil, fault(Pos{1, 1}, "", "%d bytes: at most %d are read", len(text), maxConfig)
	}
	node, p := readYAML(text)
	if p != nil || node == nil {
		return &Value{Kind: Map, At: Pos{1, 1}}, p
	}
	v, p := yamlValue(node, 1)
	if p != nil {
		return nil, p
	}
	if v.Kind == Null {
		v.Kind = Map // an empty file
	}
	return &v, nil
}

// readYAML returns the top node; nil: the file says nothing.
func readYAML(text []byte) (*yaml.Node, *Problem) {
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	var doc, more yaml.Node
	err := dec.Decode(&doc)
	if err == nil {
		if err = dec.Decode(&more); err == nil {
			return nil, fault(Pos{more.Line, more.Column}, "keep one", "a second document begins here")
		}
		if errors.Is(err, io.EOF) && len(doc.Content) == 1 {
			return doc.Content[0], nil
		}
	}
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	at := Pos{1, 1}
	why2 := said(err, "yaml: ")
	if rest, ok := strings.CutPrefix(why2, "line "); ok {
		number, why, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil && n > 0 {
			at.Line, why2 = n, why
		}
	}
	return nil, fault(at, "", "not YAML: %s", why2)
}

func yamlValue(n *yaml.Node, depth int) (Value, *Problem) {
	v := Value{At: Pos{n.Line, n.Column}}
	if depth > maxDepth {
		return v, fault(v.At, "", "nested deeper than %d", maxDepth)
	}
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return v, fault(v.At, "write the value out", "anchors and aliases are not read")
	}
	switch n.Kind {
	case yaml.MappingNode:
		v.Kind = Map
		seen := unique{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			at := Pos{k.Line, k.Column}
			if k.Kind != yaml.ScalarNode || k.Tag == "!!merge" {
				return v, fault(at, "write the keys out", "a key must be text")
			}
			if p := seen.add(k.Value, at); p != nil {
				return v, p
			}
			val, p := yamlValue(n.Content[i+1], depth+1)
			if p != nil {
				return v, p
			}
			v.Members = append(v.Members, Member{k.Value, at, val})
		}
	case yaml.SequenceNode:
		v.Kind = List
		for _, c := range n.Content {
			item, p := yamlValue(c, depth+1)
			if p != nil {
				return v, p
			}
			v.Items = append(v.Items, item)
		}
	default:
		v.Kind, v.Text = map[string]Kind{"!!null": Null, "!!bool": Bool, "!!int": Number, "!!float": Number}[n.Tag], n.Value
		if v.Kind == Null && n.Tag != "!!null" {
			v.Kind = Text
		}
		if v.Kind == Null {
			v.Text = ""
		}
	}
	return v, nil
}
