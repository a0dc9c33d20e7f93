package generating

import (
	"os"
	"slices"
	"strings"

	"waldo/internal/app/codefiles"
	"waldo/internal/app/fault"
	"waldo/internal/codegen"
	"waldo/internal/codegen/learned"
)

// learned returns the shapes beside the generated code, with those of the files of --learn, and their drift.
func (n *generation) learned() (learned.Shapes, []drift, error) {
	shapes, err := codefiles.Shapes(n.out, n.name)
	drifts := []drift{}
	if err != nil {
		return shapes, nil, err
	}
	for _, pair := range n.learn {
		tool, file, ok := strings.Cut(pair, "=")
		if !ok || tool == "" || file == "" {
			return shapes, nil, fault.Usage("as in --learn get_customer=seen.json", "--learn %s: it is TOOL=FILE", pair)
		}
		f, err := os.Open(file)
		if err != nil {
			return shapes, nil, fault.Usage("waldo call CAPABILITY --json prints a result for it", "--learn %s: %v", pair, err)
		}
		results, err := learned.Results(f)
		_ = f.Close()
		if err != nil {
			return shapes, nil, fault.Usage("a file holds JSON values, as waldo call --json prints them", "--learn %s: %v", pair,
				err)
		}
		if len(results) == 0 {
			return shapes, nil, fault.Usage("waldo call CAPABILITY --json prints one", "--learn %s: no result of a call that succeeded",
				pair)
		}
		if changes := shapes.Learn(tool, results); len(changes) > 0 {
			drifts = append(drifts, drift{tool, shapes.Tools[tool].Version, changes})
		}
	}
	return shapes, drifts, nil
}

// known refuses --learn for a name that the server does not list as a tool.
func known(learn []string, tools []codegen.Tool) error {
	for _, pair := range learn {
		tool, _, _ := strings.Cut(pair, "=")
		if !slices.ContainsFunc(tools, func(t codegen.Tool) bool { return t.Name == tool }) {
			return fault.Usage("the tool's own name, without its server's", "--learn %s: the server has no tool %q", pair, tool)
		}
	}
	return nil
}
