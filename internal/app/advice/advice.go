// Package advice warns of sound contracts that do not do what they seem to do.
package advice

import (
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"

	"waldo/internal/core/policy"
	"waldo/internal/executor/commands"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// Contract is a contract with the policy that it is part of.
type Contract struct {
	contract.Contract
	policy *policy.Policy
}

// Contracts are the contracts that a person wrote for tools of agents.
func Contracts(cfg *contract.Config, p *policy.Policy) iter.Seq[Contract] {
	return func(yield func(Contract) bool) {
		for _, c := range cfg.Contracts {
			if !c.Denied && !c.BuiltIn && !contract.ByTheGateway(c.Pattern) && !yield(Contract{c, p}) {
				return
			}
		}
	}
}

// Decides reports whether the contract decides about a tool of waldo's own.
func (c Contract) Decides(name call.Capability) bool {
	won, ok := c.policy.Lookup(name)
	_, own := won.OwnMode(string(name))
	return ok && own && won.At == c.At
}

// ForServers reports whether the contract is for the tools of servers: *.read covers files.read by chance.
func (c Contract) ForServers() bool {
	first, _, _ := strings.Cut(c.Pattern, ".")
	return c.Root == "" && strings.Contains(first, "*")
}

// Problem returns a problem at a key of the contract, or at the contract if the key is not written.
func (c Contract) Problem(key, code, hint, format string, args ...any) contract.Problem {
	at, written := c.Keys[key]
	if !written {
		at = c.At
	}
	return contract.Problem{At: at, Code: code, Text: fmt.Sprintf(format, args...), Hint: hint}
}

// Warnings returns the warnings for the programs of cli contracts: none is named, or this machine does not have it.
func Warnings(cfg *contract.Config, p *policy.Policy) (out contract.Problems) {
	for c := range Contracts(cfg, p) {
		if c.ForServers() || !c.Decides("cli") {
			continue
		}
		var names []string
		for _, n := range c.Programs {
			names = append(names, strings.TrimSuffix(n, commands.AnyArguments))
		}
		found := commands.Find(names)
		absent := slices.DeleteFunc(names, func(n string) bool { _, ok := found[n]; return ok })
		switch {
		case len(c.Programs) == 0:
			out = append(out, c.Problem("", "cli.programs", "write the programs, as in allow: [git, ls]",
				"cli names no program: its calls are denied"))
		case len(absent) > 0:
			out = append(out, c.Problem("allow", "cli.absent",
				"install them, or take them out; a program is looked for in /usr/local/bin, /usr/bin and /bin",
				"this machine does not have these programs of cli: %s; their calls are denied", strings.Join(absent, ", ")))
		}
	}
	return out
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
