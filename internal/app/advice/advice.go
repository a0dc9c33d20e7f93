// Package advice warns of sound contracts that do not do what they seem to do.
package advice

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"waldo/internal/core/policy"
	"waldo/internal/executor/commands"
	"waldo/internal/executor/files"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// Warnings returns the warnings for a configuration. It looks at folders and programs of this machine.
func Warnings(cfg *contract.Config, p *policy.Policy) contract.Problems {
	var out contract.Problems
	tools := 0
	for _, c := range cfg.Contracts {
		if c.Denied || c.BuiltIn || contract.ByTheGateway(c.Pattern) {
			continue
		}
		tools++
		out = append(out, ownTools(c, p)...)
	}
	if len(cfg.Agent.Providers) > 0 && tools == 0 {
		out = append(out, contract.Problem{At: contract.Position{File: cfg.File, Line: 1, Column: 1}, Code: "agent.tools",
			Text: "agent: has no tool, because no contract allows one",
			Hint: "write a contract under capabilities, such as run_python: {mode: high_risk, approval: none}"})
	}
	return out
}

// ownTools returns the warnings for those of waldo's own tools that a contract decides about.
func ownTools(c contract.Contract, p *policy.Policy) contract.Problems {
	decides := func(name call.Capability) bool {
		won, ok := p.Lookup(name)
		_, own := won.OwnMode(string(name))
		return ok && own && won.At == c.At
	}
	var out contract.Problems
	warn := func(key, code, hint, format string, args ...any) {
		at, written := c.Keys[key]
		if !written {
			at = c.At
		}
		out = append(out, contract.Problem{At: at, Code: code, Text: fmt.Sprintf(format, args...), Hint: hint})
	}
	var writing []string
	inFolder := false
	for _, t := range files.Tools("") {
		name := t.Tool.Capability
		if !decides(name) {
			continue
		}
		inFolder = true
		if own, _ := c.Resolve(string(name), &contract.Config{}).OwnMode(string(name)); own == contract.Write {
			writing = append(writing, string(name))
		}
	}
	if first, _, _ := strings.Cut(c.Pattern, "."); c.Root == "" && strings.Contains(first, "*") {
		return nil // it is for the tools of servers
	}
	if len(writing) > 0 && c.Root != "" && c.Mode == contract.Read && c.Approval.When != contract.Always {
		warn("mode", "mode.covers", "name the tools that read: files.read, files.list, files.stat, files.search; or write "+
			"mode: write or approval: always", "mode: read of %q covers tools that write (danger 2) and run without a question: %s",
			c.Pattern, strings.Join(writing, ", "))
	}
	if absent, why := AbsentRoot(c); inFolder && c.Root == "" {
		warn("", "root.missing", "write root, as in root: ./project; it is relative to the folder of this file",
			"%q names no folder: its calls are denied", c.Pattern)
	} else if inFolder && absent != "" {
		warn("root", "root.absent", "make the folder, or name another: it is relative to the folder of this file", "%s", why)
	}
	if decides("fetch") && len(c.Network.Allow) == 0 && !c.Network.Internal {
		warn("", "fetch.hosts", "write the hosts, as in network: {allow: [api.example.com]}",
			"fetch names no host: its calls are denied")
	}
	if decides("cli") {
		programs(c, warn)
	}
	return out
}

// programs warns of a cli contract without programs, and of programs that this machine does not have.
func programs(c contract.Contract, warn func(key, code, hint, format string, args ...any)) {
	var names []string
	for _, n := range c.Programs {
		names = append(names, strings.TrimSuffix(n, commands.AnyArguments))
	}
	found := commands.Find(names)
	absent := slices.DeleteFunc(names, func(n string) bool { _, ok := found[n]; return ok })
	switch {
	case len(c.Programs) == 0:
		warn("", "cli.programs", "write the programs, as in allow: [git, ls]", "cli names no program: its calls are denied")
	case len(absent) > 0:
		warn("allow", "cli.absent", "install them, or take them out; a program is looked for in /usr/local/bin, /usr/bin and /bin",
			"this machine does not have these programs of cli: %s; their calls are denied", strings.Join(absent, ", "))
	}
}

// AbsentRoot returns the root of a contract as a full path, with a text for the operator, if this machine has no such
// folder. It returns "" otherwise.
func AbsentRoot(c contract.Contract) (folder, why string) {
	if c.Root == "" {
		return "", ""
	}
	folder, err := c.At.Beside(c.Root)
	if err != nil {
		return c.Root, err.Error()
	}
	if info, err := os.Stat(folder); err == nil && info.IsDir() {
		return "", ""
	}
	return folder, "root: " + folder + " is not a folder of this machine; calls are denied until it is"
}
