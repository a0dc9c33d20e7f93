package contract

import (
	"slices"
	"strings"
)

// ReadOutput reads a file of the session's workspace: a read, and no program runs.
const ReadOutput = "read_output"

// builtIns are the names of waldo's own capabilities.
var builtIns = []string{"run_python", "run_javascript", "run_typescript", "run_shell", "exec", ReadOutput}

// ownTools are waldo's own tools that work only with a contract in a file, and how each is reached.
var ownTools = map[string]Transport{
	"files.read": Direct, "files.write": Direct, "files.edit": Direct, "files.list": Direct, "files.search": Direct,
	"files.stat": Direct, "files.move": Direct, "files.delete": Direct, "files.extract": Direct,
	"fetch": Direct, "sql.query": Direct, "sql.schema": Direct,
	"cli": SandboxedExec,
}

// byTheGateway are the names of waldo's own tools that the gateway answers itself, some in the lean mode
// alone. They need no contract.
var byTheGateway = []string{"search_tools", "call_tool", "run_code", RequestApproval}

// BuiltIns returns the names of waldo's own capabilities that also work without a file.
func BuiltIns() []string { return slices.Clone(builtIns) }

// ByTheGateway reports whether a name is that of a tool which the gateway answers itself.
func ByTheGateway(name string) bool { return slices.Contains(byTheGateway, name) }

// Own returns the names of waldo's own tools and capabilities, which no tool of a server may have.
func Own() []string { return slices.Concat(builtIns, byTheGateway) }

// Resolve completes a contract for one capability that it matches: it takes the missing fields from the capability's
// name. Transport stays empty if the name does not give it; such a call is denied.
func (c Contract) Resolve(capability string, cfg *Config) Contract {
	first, rest, dotted := strings.Cut(capability, ".")
	_, served := cfg.Servers[first]
	if c.Transport == "" {
		switch {
		case c.Server != "" || dotted && served:
			c.Transport = MCP
		case slices.Contains(builtIns, capability):
			c.Transport = SandboxedExec
		default:
			c.Transport = ownTools[capability]
		}
	}
	if _, written := c.Keys["filesystem"]; c.Transport == SandboxedExec && !written {
		c.Filesystem = WorkspaceOnly // opens nothing of the host: the session's own files
	}
	if c.Transport != MCP {
		return c
	}
	if c.Server == "" && dotted {
		c.Server = first
	}
	if c.Tool == "" {
		c.Tool = capability
		if dotted {
			c.Tool = rest
		}
	}
	return c
}
