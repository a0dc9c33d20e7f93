package config

import (
	"bytes"
	"fmt"
	"strings"

	"waldo/internal/config/outline"
)

// reference returns docs/reference/configuration.md: every key of waldo.yaml, made from the declarations.
func reference(file outline.Mapping) []byte {
	var b bytes.Buffer
	b.WriteString(`# waldo.yaml: every key

Generated from the declarations in ` + "`internal/config`" + `: ` + "`go generate ./internal/config`" + ` writes it anew.
[contract.md](../contract.md) explains what contracts mean. ` + "`schema/waldo.schema.json`" + ` is this page for editors.

An unknown key is an error, and so is a key or a word that this build does not enforce.
`)
	r := referencePage{at: map[string]string{}}
	r.collect(file, "")
	for _, s := range r.sections {
		r.section(&b, s)
	}
	return b.Bytes()
}

// referencePage holds the sections of the page: one for each mapping, at its first place.
type referencePage struct {
	sections []pageSection
	at       map[string]string // name of a mapping to the path of its section
	also     map[string][]string
}

type pageSection struct {
	path string // servers.NAME.limits; "": the top
	outline.Mapping
}

func (r *referencePage) collect(o outline.Mapping, path string) {
	if first, seen := r.at[o.Name]; seen {
		if r.also == nil {
			r.also = map[string][]string{}
		}
		r.also[first] = append(r.also[first], path)
		return
	}
	r.at[o.Name] = path
	r.sections = append(r.sections, pageSection{path, o})
	for _, k := range o.Keys {
		for _, s := range k.Shapes {
			if s.Of != nil {
				r.collect(s.Of(), below(path, k.Name, s))
			}
		}
	}
}

// below is the path of a mapping under a key.
func below(path, name string, s outline.Shape) string {
	if path != "" && !strings.HasPrefix(name, "/") {
		path += "."
	}
	path += name
	switch {
	case s.Named:
		path += ".NAME"
	case s.List:
		path += "[]"
	}
	return path
}

func (r *referencePage) section(b *bytes.Buffer, s pageSection) {
	heading := s.path
	if heading == "" {
		heading = "The top of the file"
		fmt.Fprintf(b, "\n## %s\n", heading)
	} else {
		fmt.Fprintf(b, "\n## `%s`\n", heading)
	}
	if s.Doc != "" {
		fmt.Fprintf(b, "\n%s\n", s.Doc)
	}
	for _, path := range r.also[s.path] {
		fmt.Fprintf(b, "\nThe same keys: `%s`.\n", path)
	}
	if s.Example != "" {
		fmt.Fprintf(b, "\n```yaml\n%s```\n", s.Example)
	}
	b.WriteString("\n| key | value | when absent | what it says | enforced by |\n|---|---|---|---|---|\n")
	for _, k := range s.Keys {
		absent, by := k.Absent, k.By
		if absent == "" {
			absent = "**required**"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", k.Name, r.values(k), absent, k.Doc, by)
	}
}

// values describes the values of a key.
func (r *referencePage) values(k outline.Key) string {
	var all []string
	for _, s := range k.Shapes {
		all = append(all, r.value(s))
	}
	return strings.Join(all, ", or ")
}

func (r *referencePage) value(s outline.Shape) string {
	text := s.Name
	if s.Of != nil {
		path := r.at[s.Of().Name]
		text = fmt.Sprintf("[%s](#%s)", s.Name, anchor(path))
		switch {
		case s.List:
			text = "list of [mappings](#" + anchor(path) + ")"
		case s.Named && len(s.Words) > 0:
			text = "names, each a " + text + " or `" + s.Words[0] + "`"
		case s.Named:
			text = "names, each a " + text
		}
		return text
	}
	if len(s.Words) > 0 {
		text += " `" + strings.Join(s.Words, "`, `") + "`"
	}
	if s.Bounds != "" {
		text += ", " + s.Bounds
	}
	return text
}

// anchor is the name that GitHub gives a heading.
func anchor(heading string) string {
	if heading == "" {
		return "the-top-of-the-file"
	}
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune("./[]", c) {
			return -1
		}
		return c
	}, strings.ToLower(heading))
}
