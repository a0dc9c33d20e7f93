// Package preview says what code, a command or a query would do, for the question to a human: in words, and as it
// stands.
package preview

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

const (
	maxLines = 400      // of a text that is shown
	maxBytes = 32 << 10 // of such a text
	width    = 400      // bytes of one shown line; the rest of a longer one follows below it
)

// of names what each of waldo's own capabilities runs, and the argument that holds it.
var of = map[string]struct{ what, argument string }{
	"run_python": {"Python", "code"}, "run_javascript": {"JavaScript", "code"}, "run_typescript": {"TypeScript", "code"},
	"run_shell": {"a command line with /bin/sh", "command"},
}

// RunsCode reports whether a capability runs the agent's code.
func RunsCode(c call.Capability) bool { return of[string(c)].argument == "code" }

// Sandboxed returns what a call that runs code or a command would do; nil for other calls. The lines of the agent's
// text have numbers, so that none passes for one of waldo's.
func Sandboxed(d policy.Decision) []string {
	args := d.Call.Args.Values()
	known, own := of[string(d.Call.Capability)]
	text, isText := args[known.argument].(string)
	argv, isArgv := args["argv"].([]any)
	switch {
	case own && isText:
		return slices.Concat([]string{"runs " + known.what + bounds(d)}, touches(d), Numbered("it", text))
	case !own && isArgv && d.Contract.Transport == contract.SandboxedExec:
		lines := slices.Concat([]string{"runs a command" + bounds(d)}, touches(d), Numbered("the command line", shell(argv)))
		if dir, _ := args["dir"].(string); dir != "" {
			lines = append(lines, "it starts in "+string(display.Line(word(dir)))+" below /workspace")
		}
		if in, _ := args["stdin"].(string); in != "" {
			lines = append(lines, Numbered("its standard input", in)...)
		}
		return lines
	}
	return nil
}

// Query returns what a call of sql.query would do.
func Query(_ context.Context, d policy.Decision) []string {
	args := d.Call.Args.Values()
	text, _ := args["sql"].(string)
	where := d.Contract.Database
	if where == "" {
		where = "no database: its contract names none"
	}
	return append([]string{"asks " + where + ", where waldo refuses all but reading"}, Numbered("the statement", text)...)
}

// bounds says where and for how long code runs.
func bounds(d policy.Decision) string {
	level, wall := d.Contract.Isolation, d.Contract.Timeout
	if r := d.Call.Run; r != nil {
		if r.Isolation != "" {
			level = r.Isolation
		}
		if r.Limits.Wall > 0 && (wall == 0 || r.Limits.Wall < wall) {
			wall = r.Limits.Wall
		}
	}
	s := " in a sandbox"
	if level != "" {
		s += " (" + level + ")"
	}
	if wall > 0 {
		s += fmt.Sprintf(", for at most %v", wall.Round(time.Millisecond))
	}
	return s
}

// mounts returns which files of this machine the sandbox sees at their path in it.
func mounts(d policy.Decision) (lines []string) {
	say := func(writable bool, source, target string) {
		how := "it reads "
		if writable {
			how = "it reads and changes "
		}
		lines = append(lines, how+source+", as "+target)
	}
	if d.Call.Run != nil && len(d.Call.Run.Mounts) > 0 {
		for _, m := range d.Call.Run.Mounts {
			say(m.Writable, m.Source, m.Target)
		}
		return lines
	}
	for _, m := range d.Contract.Mounts {
		from, _ := m.At.Beside(m.From)
		say(m.Writable, from, m.Target)
	}
	return lines
}

// touches says what the sandbox reaches besides its workspace.
func touches(d policy.Decision) []string {
	c, hosts, input := d.Contract, slices.Clone(d.Contract.Network.Allow), d.Contract.Input
	if c.Network.Internal {
		hosts = append(hosts, "the hosts of internal_only")
	}
	for _, m := range slices.Sorted(maps.Keys(c.Network.Packages)) {
		hosts = append(hosts, "packages of "+m)
	}
	secrets, root := slices.Sorted(maps.Keys(c.Secrets)), c.Template
	if r := d.Call.Run; r != nil {
		if len(r.Hosts) > 0 {
			hosts = slices.Clone(r.Hosts)
		}
		if r.Public {
			hosts = append(hosts, "every public host")
		}
		if len(r.Secrets) > 0 {
			secrets = slices.DeleteFunc(secrets, func(s string) bool { return !slices.Contains(r.Secrets, s) })
		}
		if r.Input != "" {
			input = r.Input
		}
		if r.Template != "" {
			root = r.Template
		}
	}
	lines := []string{"it reaches no network"}
	if len(hosts) > 0 {
		lines[0] = "it reaches " + strings.Join(hosts, ", ")
	}
	if full, err := c.Keys["input"].Beside(input); err == nil && input == c.Input && input != "" {
		input = full // it is relative to the configuration
	}
	if input != "" {
		lines = append(lines, "it reads the folder "+input)
	}
	lines = append(lines, mounts(d)...)
	if root != "" && root != "host" {
		lines = append(lines, "its root is the template "+root)
	}
	for i, s := range secrets {
		if slices.Contains(c.Reveal, s) {
			secrets[i] += " (which it sees)"
		}
	}
	if len(secrets) > 0 {
		lines = append(lines, "it has the secrets "+strings.Join(secrets, ", "))
	}
	return lines
}

// Numbered returns the lines of a text behind a line that says how many there are. It cuts a text that is too long, and
// says so first.
func Numbered(what, text string) []string {
	count, rest := strings.Count(text, "\n"), text
	if !strings.HasSuffix(text, "\n") {
		count++
	}
	var lines []string
	shown, whole := 0, true
	for n := 0; n < count && whole; n++ {
		l, more, ended := strings.Cut(rest, "\n")
		if rest = more; ended {
			l = strings.TrimSuffix(l, "\r")
		}
		whole = len(l) <= 2*maxBytes
		l = l[:min(len(l), 2*maxBytes)]
		l = string(display.Line(strings.ReplaceAll(l, "\t", "    "))) // the arguments, which are shown too, have the tabs
		for mark := fmt.Sprintf("%4d  ", n+1); mark != ""; {
			if len(lines) >= maxLines || shown >= maxBytes {
				whole = false
				break
			}
			at := min(len(l), width)
			for at < len(l) && at > width-4 && l[at]&0xc0 == 0x80 { // not within a character
				at--
			}
			lines, shown = append(lines, mark+l[:at]), shown+at
			if l, mark = l[at:], "   +  "; l == "" {
				mark = ""
			}
		}
	}
	head := fmt.Sprintf("%s has %d lines", what, count)
	if count == 1 {
		head = what + " has 1 line"
	}
	if !whole {
		head += fmt.Sprintf(" and %d bytes. ONLY ITS BEGINNING IS SHOWN", len(text))
	}
	return append([]string{head + ":"}, lines...)
}

// shell writes an argument list as a line for a shell.
func shell(argv []any) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		s, _ := a.(string)
		words[i] = word(s)
	}
	return strings.Join(words, " ")
}

// word quotes a word for a shell, if it needs that.
func word(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@%+,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
