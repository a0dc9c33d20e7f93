// Package manual explains the commands: mistakes in plain words, the help command and man pages.
package manual

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"waldo/internal/app/fault"
	"waldo/internal/detect/pattern"
	"waldo/internal/model/display"
)

// Flag rewrites an error about a flag in plain words, with a hint.
func Flag(c *cobra.Command, err error) error {
	help := "see " + c.CommandPath() + " --help"
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			return fault.Usage(help, "unknown flag -%s", unknown.GetSpecifiedName())
		}
		name := unknown.GetSpecifiedName()
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if near := display.Nearest(name, names); near != "" {
			help = "did you mean --" + near + "?"
		}
		return fault.Usage(help, "unknown flag --%s", name)
	}
	if empty := (*pflag.ValueRequiredError)(nil); errors.As(err, &empty) {
		what, _ := pflag.UnquoteUsage(empty.GetFlag())
		return fault.Usage(help, "--%s needs a value: %s", empty.GetFlag().Name, cmp.Or(what, "text"))
	}
	if wrong := (*pflag.InvalidValueError)(nil); errors.As(err, &wrong) {
		f := wrong.GetFlag()
		return fault.Usage(help, "--%s must be %s, not %q", f.Name, wantedValue(f.Value, wrong.Unwrap()), wrong.GetValue())
	}
	return fault.Usage(help, "%v", err)
}

// wantedValue describes the values that a flag takes.
func wantedValue(v pflag.Value, cause error) string {
	switch v.Type() {
	case "bool":
		return "true or false"
	case "int", "int64":
		return "a whole number"
	case "float64":
		return "a number"
	case "duration":
		return "a time with its unit, as in 30s, 5m or 2h"
	case "stringSlice":
		return "a list with commas"
	}
	return cause.Error()
}

// Args rewrites an error about arguments in plain words. cause is the error of the command's own check.
func Args(c *cobra.Command, args []string, cause error) error {
	help := "see " + c.CommandPath() + " --help"
	text := cause.Error()
	known := strings.HasPrefix(text, "accepts ") || strings.HasPrefix(text, "requires ") ||
		strings.HasPrefix(text, "unknown command ")
	if !known {
		return fault.Usage(help, "%s", text)
	}
	if c.HasAvailableSubCommands() && len(args) > 0 {
		return Unknown(c, args[0])
	}
	required, most := places(c)
	if len(args) < len(required) {
		hint := help
		if c.Example != "" {
			line, _, _ := strings.Cut(strings.TrimSpace(c.Example), "\n")
			hint = "as in: " + line
		}
		return fault.Usage(hint, "missing %s", strings.Join(required[len(args):], " and "))
	}
	if most < len(args) {
		return fault.Usage(help, "unexpected argument %q", args[most])
	}
	return fault.Usage(help, "wrong number of arguments")
}

// places reads the line of use of a command: the names of the arguments that it needs, and how many it takes.
func places(c *cobra.Command) (required []string, most int) {
	for _, word := range strings.Fields(c.Use)[1:] {
		if word == "|" || strings.HasPrefix(word, "[-") {
			break
		}
		name := strings.TrimSuffix(strings.Trim(word, "[]"), "..")
		if name == "" || strings.ToUpper(name) != name || strings.HasPrefix(name, "-") {
			continue
		}
		most++
		if !strings.HasPrefix(word, "[") {
			required = append(required, name)
		}
	}
	return required, most
}

// Unknown is the error for a word that is not a command below c.
func Unknown(c *cobra.Command, word string) error {
	hint := "see " + c.CommandPath() + " --help"
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			names = append(append(names, sub.Name()), sub.Aliases...)
		}
	}
	if near := display.Nearest(word, names); near != "" {
		hint = "did you mean " + c.CommandPath() + " " + near + "?"
	}
	if c.HasParent() {
		return fault.Usage(hint, "unknown command %q of %s", word, c.CommandPath())
	}
	return fault.Usage(hint, "unknown command %q", word)
}

// Completion adds cobra's command of that name, which writes to the output that root has now. It refuses an unknown
// shell.
func Completion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = cobra.ArbitraryArgs, noShell
		}
	}
}

func noShell(_ *cobra.Command, args []string) error {
	const shells = "bash, zsh, fish or powershell; as in: source <(waldo completion bash)"
	if len(args) == 0 {
		return fault.Usage(shells, "missing the name of a shell")
	}
	return fault.Usage(shells, "unknown shell %q", args[0])
}

// systemCall is an error of the operating system as Go writes it, with the name of the call before the file.
var systemCall = pattern.Lazy(
	`\b(?:stat|lstat|open|openat|read|readlink|mkdir|chdir|execute|fork/exec) ([^\s:]+): ` +
		`(no such file or directory|permission denied|is a directory|not a directory|file exists)`)

// WithoutCalls removes system call names from an error. The file and the reason suffice.
func WithoutCalls(text string) string { return systemCall().ReplaceAllString(text, "$1: $2") }

// NewHelp returns the help command. It reports an unknown command instead of printing the general help.
func NewHelp() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about a command", Example: "  waldo help run\n  waldo help sandbox exec",
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			at, _, err := c.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var out []string
			for _, sub := range at.Commands() {
				if sub.IsAvailableCommand() {
					out = append(out, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			at, rest := c.Root(), args
			for len(rest) > 0 {
				i := slices.IndexFunc(at.Commands(), func(s *cobra.Command) bool {
					return s.Name() == rest[0] || s.HasAlias(rest[0])
				})
				if i < 0 {
					return Unknown(at, rest[0])
				}
				at, rest = at.Commands()[i], rest[1:]
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
	}
}
