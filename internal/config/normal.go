package config

import (
	"go.yaml.in/yaml/v3"

	"waldo/internal/model/contract"
)

// Normal returns the configuration as YAML in one spelling: the file's content in its order, with shorthands
// expanded. Parsing it again gives the same decisions.
func Normal(c *contract.Config) ([]byte, error) {
	root := newOrdered()
	file.each(c, root.put)
	return yaml.Marshal(root.Node)
}

// ordered is a mapping that keeps the order of its keys.
type ordered struct{ *yaml.Node }

func newOrdered() ordered { return ordered{&yaml.Node{Kind: yaml.MappingNode}} }

func (o ordered) put(key string, v any) {
	k, n := &yaml.Node{}, &yaml.Node{}
	_ = k.Encode(key) // text always encodes
	if m, ok := v.(ordered); ok {
		n = m.Node
	} else {
		_ = n.Encode(v) // as do lists and mappings of text, numbers and true or false
	}
	o.Content = append(o.Content, k, n)
}
