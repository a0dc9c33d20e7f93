package manual

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"waldo/internal/app/fault"
)

// Write writes a page for each command below root into a folder, and returns how many.
func Write(root *cobra.Command, dir, version string) (n int, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fault.Usage("give a folder that you can write", "%v", err)
	}
	var each func(c *cobra.Command) error
	each = func(c *cobra.Command) error {
		if c.Hidden || c.Name() == "help" {
			return nil
		}
		c.InitDefaultHelpFlag()
		name := Name(c) + ".1"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(manPage(c, version)), 0o644); err != nil {
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
	root.InitDefaultCompletionCmd()
	return n, each(root)
}

// Name is the name of a command's page, as in waldo-sandbox-exec.
func Name(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage is the page of a command in the macros of man(7).
func manPage(c *cobra.Command, version string) string {
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
	line(`.TH "`, strings.ToUpper(roff(Name(c))), `" 1 "" "waldo `, roff(version), `" "waldo manual"`)
	line(".SH NAME")
	line(roff(Name(c)), ` \- `, roff(c.Short))
	line(".SH SYNOPSIS")
	c.InheritedFlags() // merges the flags of every command, as its execution does: the usage then says [flags]
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
		also = append(also, Name(c.Parent()))
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			also = append(also, Name(sub))
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
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, `"`, `\(dq`, "`", `\(ga`, "^", `\(ha`, "~",
		`\(ti`).Replace(text)
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
