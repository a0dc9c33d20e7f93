package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"waldo/internal/cli"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"waldo/internal/cli/exitcode"
)

//go:generate env WALDO_UPDATE=1 go test -run TestReference .

// TestReference: docs/reference/cli has a page for each command and an index, as the commands give them.
// WALDO_UPDATE=1 writes them anew.
func TestReference(t *testing.T) {
	folder, want := filepath.Join("..", "..", "docs", "reference", "cli"), commandReference()
	if len(want) < 20 {
		t.Fatalf("control: only %d pages", len(want))
	}
	if os.Getenv("WALDO_UPDATE") != "" {
		if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)); err != nil {
			t.Fatal(err)
		}
		for name, page := range want {
			if err := os.WriteFile(filepath.Join(folder, name), page, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, page := range want {
		if has, err := os.ReadFile(filepath.Join(folder, name)); err != nil || !bytes.Equal(has, page) {
			t.Errorf("docs/reference/cli/%s is not the page that the command gives: go generate ./cmd/waldo", name)
		}
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if want[f.Name()] == nil {
			t.Errorf("docs/reference/cli/%s is of no command: go generate ./cmd/waldo", f.Name())
		}
	}
}

// commandReference returns the pages by their file names: README.md is the index, NAME.md a command with those below it.
func commandReference() map[string][]byte {
	var index bytes.Buffer
	index.WriteString("# Commands\n\nGenerated from the commands: `go generate ./cmd/waldo` writes these pages anew. " +
		"`waldo man DIR` writes man pages.\n`waldo COMMAND --help` shows the same.\n\n")
	root, pages := newRoot(withFeatures(&cli.Context{})), map[string][]byte{}
	index.WriteString("| command | task |\n|---|---|\n")
	for _, c := range root.Commands() {
		if !listed(c) {
			continue
		}
		fmt.Fprintf(&index, "| [%s](%s.md) | %s |\n", c.CommandPath(), c.Name(), strings.TrimSuffix(c.Short, "."))
		var page bytes.Buffer
		describe(&page, c, "#")
		pages[c.Name()+".md"] = page.Bytes()
	}
	index.WriteString("\n## Flags of every command\n\n")
	flagTable(&index, root.PersistentFlags())
	index.WriteString("\n## Exit codes\n\n| code | meaning |\n|--:|---|\n")
	for _, x := range []struct {
		code int
		text string
	}{{0, "done"}, {exitcode.Problems, "a check found problems, or the program of a tool failed"},
		{exitcode.Usage, "wrong usage or configuration"},
		{exitcode.Denied, "refused by contract"}, {exitcode.Waiting, "waiting for a human, or refused by one"},
		{exitcode.Timeout, "limit of time or processor time"}, {exitcode.Failed, "failure of waldo itself"},
		{exitcode.Cancelled, "cancelled by Ctrl-C or SIGTERM"}, {exitcode.OOM, "killed for memory"}} {
		fmt.Fprintf(&index, "| %d | %s |\n", x.code, x.text)
	}
	pages["README.md"] = index.Bytes()
	return pages
}

// listed reports whether a command has a place in the reference.
func listed(c *cobra.Command) bool {
	return !c.Hidden && c.Name() != "help" && c.Name() != "completion"
}

// describe writes a command with its text, flags and examples, and then those below it.
func describe(b *bytes.Buffer, c *cobra.Command, heading string) {
	c.InheritedFlags() // merges the flags of every command, as its execution does: the usage then says [flags]
	fmt.Fprintf(b, "%s %s\n\n%s.\n\n```\n%s\n```\n", heading, c.CommandPath(), strings.TrimSuffix(c.Short, "."),
		c.UseLine())
	if long := strings.TrimSpace(c.Long); long != "" {
		fmt.Fprintf(b, "\n```text\n%s\n```\n", long)
	}
	if c.LocalNonPersistentFlags().HasAvailableFlags() {
		b.WriteString("\n")
		flagTable(b, c.LocalNonPersistentFlags())
	}
	if c.Example != "" {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", strings.Trim(c.Example, "\n"))
	}
	for _, sub := range c.Commands() {
		if listed(sub) {
			b.WriteString("\n")
			describe(b, sub, "##")
		}
	}
}

func flagTable(b *bytes.Buffer, flags *pflag.FlagSet) {
	b.WriteString("| flag | meaning |\n|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, text := pflag.UnquoteUsage(f)
		name := strings.TrimSpace("--" + f.Name + " " + value)
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" {
			text += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", name, strings.NewReplacer("|", "\\|", "*", "\\*", "<", "&lt;").Replace(text))
	})
}
