package contract

import (
	"maps"
	"slices"
	"strings"
)

// ReadOutput reads a file of the session's workspace: a read, and no program runs.
const ReadOutput = "read_output"

// builtIns are the names of waldo's own capabilities.
var builtIns = []string{"run_python", "run_javascript", "run_typescript", "run_shell", "exec", ReadOutput}

// GitConfig writes what a session of an agent host set in git's configuration. waldo itself calls it, at the end.
const GitConfig = "git_config"

// launch is the capability of a session of an agent host, and its channel.
const launch = "launch"

// ownTool is how one of waldo's own tools is reached, and the least class that it has, regardless of its contract.
type ownTool struct {
	transport Transport
	mode      Mode
}

// ownTools are waldo's own tools that work only with a contract in a file.
var ownTools = map[string]ownTool{
	"files.read": {Direct, Read}, "files.list": {Direct, Read}, "files.search": {Direct, Read}, "files.stat": {Direct, Read},
	"files.write": {Direct, Write}, "files.edit": {Direct, Write}, "files.move": {Direct, Write},
	"files.extract": {Direct, Write}, "files.restore": {Direct, Write},
	"files.delete": {Direct, HighRisk},
	"fetch":        {Direct, Read}, "sql.query": {Direct, Read}, "sql.schema": {Direct, Read},
	GitConfig: {Direct, Write},
	"cli":     {SandboxedExec, Read}, // rules of its programs raise it, by the arguments
}

// OwnMode returns the least class of a capability that is one of waldo's own tools; false for another. A server can
// have a tool of the same name: the contract's transport says which is meant.
func (c Contract) OwnMode(capability string) (Mode, bool) {
	t, ok := ownTools[capability]
	return t.mode, ok && t.transport == c.Transport
}

// OwnTools returns the names of waldo's own tools that work only with a contract in a file.
func OwnTools() []string { return slices.Sorted(maps.Keys(ownTools)) }

// byTheGateway are the names of waldo's own tools that the gateway answers itself, some in the lean mode
// alone. They need no contract.
var byTheGateway = []string{"search_tools", "call_tool", "run_code"}

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
	if c.Transport == A2A { // a peer is reached as a server is
		name := c.Server
		if name == "" {
			name = first
		}
		if cfg.Servers[name].Peer {
			c.Transport = MCP
		}
	}
	if c.Transport == "" {
		switch {
		case capability == launch:
			c.Transport = SandboxedExec
		case c.Server != "" || dotted && served:
			c.Transport = MCP
		case slices.Contains(builtIns, capability):
			c.Transport = SandboxedExec
		default:
			c.Transport = ownTools[capability].transport
		}
	}
	if capability == launch || capability == GitConfig { // for no agent
		c.Channel = launch
	}
	if _, written := c.Keys["filesystem"]; c.Transport == SandboxedExec && !written {
		c.Filesystem = WorkspaceOnly // opens nothing of the host: the session's own files
	}
	if own, ok := c.OwnMode(capability); ok {
		c.Mode = min(c.Mode, own) // the stricter
		c.Danger = max(c.Danger, own.Danger())
	}
	if c.Transport != MCP {
		return c
	}
	if c.Server == "" && dotted {
		c.Server = first
	}
	if s, known := cfg.Servers[c.Server]; known { // its tools reach what it reaches
		c.Network = s.Network
		c.Network.Unheld = s.Placement == "outside"
		if len(c.Secrets) == 0 { // and its process has what it has
			c.Secrets = s.Secrets
		}
		if _, asked := c.Keys["isolation"]; !asked {
			c.Isolation = s.Isolation
		}
	}
	if c.Tool == "" {
		c.Tool = capability
		if dotted {
			c.Tool = rest
		}
	}
	return c
}
