package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"waldo/internal/model/display"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write a man page for each command into a directory", Args: cobra.ExactArgs(1),
		Long:    "Writes waldo.1, waldo-run.1 and so on, made from the commands themselves, and replaces what has these names.",
		Example: "  waldo man ~/.local/share/man/man1\n  man waldo-run",
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			n := 0
			var each func(c *cobra.Command) error
			each = func(c *cobra.Command) error {
				if c.Hidden || c.Name() == "help" {
					return nil
				}
				c.InitDefaultHelpFlag()
				name := manName(c) + ".1"
				if err := os.WriteFile(filepath.Join(args[0], name), []byte(manPage(c)), 0o644); err != nil {
					return err
				}
				n++
				for _, sub := range c.Commands() {
					if err := each(sub); err != nil {
						return err
					}
				}
				return nil
			}
			c.Root().InitDefaultCompletionCmd()
			if err := each(c.Root()); err != nil {
				return err
			}
			display.Fprintf(c.OutOrStdout(), "%s in %s\n", display.Count(n, "man page"), args[0])
			return nil
		},
	}
}

// manName is the name of a command's page, as in waldo-sandbox-exec.
func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage is the page of a command in the macros of man(7).
func manPage(c *cobra.Command) string {
	var b strings.Builder
	line := func(s ...string) { b.WriteString(strings.Join(s, "") + "\n") }
	section := func(title, text string) {
		if text != "" {
			line(".SH ", title)
			line(".nf")
			line(roff(text))
			line(".fi")
		}
	}
	line(`.TH "`, strings.ToUpper(roff(manName(c))), `" 1 "" "waldo `, roff(version), `" "waldo manual"`)
	line(".SH NAME")
	line(roff(manName(c)), ` \- `, roff(c.Short))
	line(".SH SYNOPSIS")
	line(".B ", roff(c.UseLine()))
	section("DESCRIPTION", strings.TrimSpace(c.Long))
	for _, of := range []struct {
		title string
		flags *pflag.FlagSet
	}{{"OPTIONS", c.NonInheritedFlags()}, {"GLOBAL OPTIONS", c.InheritedFlags()}} {
		if of.flags.HasAvailableFlags() {
			line(".SH ", of.title)
		}
		of.flags.VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			value, text := pflag.UnquoteUsage(f)
			if f.Shorthand != "" {
				value = strings.TrimLeft(value+", -"+f.Shorthand, " ")
			}
			if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" {
				text += " (default " + f.DefValue + ")"
			}
			line(".TP")
			line(".B ", roff("--"+f.Name+" "+value))
			line(roff(text))
		})
	}
	section("EXAMPLES", strings.TrimRight(c.Example, "\n"))
	var also []string
	if c.HasParent() {
		also = append(also, manName(c.Parent()))
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			also = append(also, manName(sub))
		}
	}
	line(".SH SEE ALSO")
	for i, name := range also {
		end := ","
		if i == len(also)-1 {
			end = ""
		}
		line(".BR ", roff(name), " (1)", end)
	}
	return b.String()
}

// roff writes text so that no character of it is an order to the formatter.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, `"`, `\(dq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		var b strings.Builder
		if strings.HasPrefix(l, ".") {
			b.WriteString(`\&`)
		}
		for _, r := range l {
			if r < 0x80 {
				b.WriteRune(r)
			} else {
				b.WriteString(fmt.Sprintf(`\[u%04X]`, r))
			}
		}
		lines[i] = b.String()
	}
	return strings.Join(lines, "\n")
}
