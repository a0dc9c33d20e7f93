package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

// printServer shows a server to a person; brief: without what was accepted as it is.
func printServer(w io.Writer, s app.ShownServer, brief bool) {
	display.Fprintf(w, "server %s (%s), started: %s\n", s.Server, s.Name, s.Started)
	if s.Package != "" {
		display.Fprintf(w, "  package %s\n", s.Package)
	}
	same := 0
	for _, kind := range []struct {
		word string
		defs []app.Definition
	}{{"tool", s.Tools}, {"prompt", s.Prompts}, {"template", s.Templates}} {
		for _, d := range kind.defs {
			if brief && d.State == app.Same {
				same++
				continue
			}
			display.Fprintf(w, "  %-8s %-7s %s  %s\n", kind.word, d.State, d.Name, short(d.Digest))
			for _, t := range d.Texts {
				if formal(d, t) {
					continue
				}
				display.Fprintf(w, "      %s: %s\n", t.Where, display.Text(display.Blanks(string(display.Lines(t.Text)))))
			}
		}
	}
	for _, name := range s.Gone {
		display.Fprintf(w, "  gone     %s\n", name)
	}
	if same > 0 {
		display.Fprintf(w, "  %s as accepted\n", display.Count(same, "definition"))
	}
}

// formal reports whether a text of a definition is a fixed word of JSON Schema or of MCP, or a name that another line
// has: a person reads the others, --json has all.
func formal(d app.Definition, t app.Text) bool {
	at := t.Where[strings.LastIndex(t.Where, ".")+1:]
	switch at {
	case "name":
		return t.Text == d.Name
	case "type":
		return slices.Contains(schemaTypes, t.Text)
	case "$schema":
		return t.Text == "http://json-schema.org/draft-07/schema#" || t.Text == "https://json-schema.org/draft/2020-12/schema"
	case "required":
		property := ".properties." + t.Text
		return t.Text != "" && slices.ContainsFunc(d.Texts, func(o app.Text) bool {
			return strings.HasSuffix(o.Where, property) || strings.Contains(o.Where, property+".")
		})
	case "taskSupport":
		return t.Text == "forbidden" || t.Text == "optional"
	case "additionalProperties", "properties", "destructiveHint", "idempotentHint", "openWorldHint", "readOnlyHint":
		return t.Text == ""
	}
	return false
}

var schemaTypes = strings.Fields("object array string number integer boolean null")

// short is the beginning of a digest, enough to compare by eye.
func short(digest string) string { return digest[:min(len(digest), len("sha256:")+12)] }

// printLock shows servers to a person or a machine.
func printLock(c *cobra.Command, h *app.App, g *cli.Context, names []string) error {
	bar := terminal.ProgressOf(os.Stderr, "looking at servers", len(names))
	all, err := h.ShowLock(c.Context(), names, bar.Begin)
	bar.Close()
	if err != nil {
		return err
	}
	if g.JSON {
		return terminal.JSON(c.OutOrStdout(), all)
	}
	for _, s := range all {
		printServer(c.OutOrStdout(), s, false)
	}
	display.Fprintf(c.ErrOrStderr(), "nothing was accepted; to accept: waldo lock --accept %s\n", strings.Join(names, " "))
	return nil
}
