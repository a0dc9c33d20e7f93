package main

import (
	"io"
	"os"
	"strings"

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
	}{{"tool", s.Tools}, {"prompt", s.Prompts}, {"template", s.Templates}, {"resource", s.Resources}} {
		for _, d := range kind.defs {
			if brief && d.State == app.Same {
				same++
				continue
			}
			display.Fprintf(w, "  %-8s %-7s %s  %s\n", kind.word, d.State, d.Name, short(d.Digest))
			if text := firstWords(d.Description); text != "" {
				display.Fprintf(w, "      %s\n", text)
			}
			for _, m := range d.Marks {
				display.Fprintf(w, "      look here: %s %s: %s\n", m.Where, m.Why, m.Text)
			}
		}
	}
	if s.Unlisted != "" {
		display.Fprintf(w, "  its resources cannot be listed: %s\n", s.Unlisted)
	}
	for _, name := range s.Gone {
		display.Fprintf(w, "  gone     %s\n", name)
	}
	if same > 0 {
		display.Fprintf(w, "  %s as accepted\n", display.Count(same, "definition"))
	}
}

// short is the beginning of a digest, enough to compare by eye.
func short(digest string) string { return digest[:min(len(digest), len("sha256:")+12)] }

// firstWords is the beginning of a description, on one line.
func firstWords(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 100 {
		return string(r[:99]) + "…"
	}
	return text
}

// printLock shows servers to a person or a machine.
func printLock(c *cobra.Command, h *app.App, g *global, names []string) error {
	bar := terminal.ProgressOf(os.Stderr, "looking at servers", len(names))
	all, err := h.ShowLock(c.Context(), names, bar.Begin)
	bar.Close()
	if err != nil {
		return err
	}
	if g.json {
		return terminal.JSON(c.OutOrStdout(), all)
	}
	for _, s := range all {
		printServer(c.OutOrStdout(), s, false)
	}
	display.Fprintf(c.ErrOrStderr(), "nothing was accepted; to accept: waldo lock --accept %s\n", strings.Join(names, " "))
	return nil
}
