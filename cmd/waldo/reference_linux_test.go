package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"waldo/cmd/waldo/exitcode"
)

//go:generate env WALDO_UPDATE=1 go test -run TestReference .

// docs/reference/cli.md is the page that the commands give. WALDO_UPDATE=1 writes it anew.
func TestReference(t *testing.T) {
	path, want := filepath.Join("..", "..", "docs", "reference", "cli.md"), commandReference()
	if os.Getenv("WALDO_UPDATE") != "" {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if has, err := os.ReadFile(path); err != nil || !bytes.Equal(has, want) {
		t.Error("docs/reference/cli.md is not the page that the commands give: go generate ./cmd/waldo")
	}
}

// commandReference returns the page: every command with its text, flags and examples.
func commandReference() []byte {
	var b bytes.Buffer
	b.WriteString("# Commands\n\nGenerated from the commands: `go generate ./cmd/waldo` writes it anew. `waldo man DIR` " +
		"writes man pages.\n`waldo COMMAND --help` shows the same.\n\n## Exit codes\n\n| code | meaning |\n|--:|---|\n")
	for _, x := range []struct {
		code int
		text string
	}{{0, "done"}, {exitcode.Problems, "a check found problems, or the program of a tool failed"},
		{exitcode.Usage, "wrong usage or configuration"},
		{exitcode.Denied, "refused by contract"}, {exitcode.Waiting, "waiting for a human, or refused by one"},
		{exitcode.Timeout, "limit of time or processor time"}, {exitcode.Failed, "failure of waldo itself"},
		{exitcode.Cancelled, "cancelled by Ctrl-C or SIGTERM"}, {exitcode.OOM, "killed for memory"}} {
		fmt.Fprintf(&b, "| %d | %s |\n", x.code, x.text)
	}
	root := newRoot(&global{})
	b.WriteString("\n## Flags of every command\n\n")
	flagTable(&b, root.PersistentFlags())
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" {
				continue
			}
			fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n```\n%s\n```\n", sub.CommandPath(), strings.TrimSuffix(sub.Short, "."),
				sub.UseLine())
			if long := strings.TrimSpace(sub.Long); long != "" {
				fmt.Fprintf(&b, "\n```text\n%s\n```\n", long)
			}
			if sub.LocalNonPersistentFlags().HasAvailableFlags() {
				b.WriteString("\n")
				flagTable(&b, sub.LocalNonPersistentFlags())
			}
			if sub.Example != "" {
				fmt.Fprintf(&b, "\n```sh\n%s\n```\n", strings.Trim(sub.Example, "\n"))
			}
			each(sub)
		}
	}
	each(root)
	return b.Bytes()
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
