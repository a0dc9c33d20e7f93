// Package agenthosts knows the configuration files of agent hosts: their paths, each host's spelling of MCP servers,
// and how to change one entry without touching the rest. A file is hostile input: it is parsed within limits, shown
// escaped, and never run.
package agenthosts

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Host is one agent host.
type Host struct {
	Name    string   // as typed: claude
	Title   string   // as people say it: Claude Code
	Others  []string // other names that people type
	Format  Format
	Under   []string // where the servers stand in its file
	dialect dialect
	user    func(e Env) []string // candidates; the first is created if none exists
	project []string             // likewise, in the project's folder; nil: it has no such file
	Restart string               // how to make the host read its file again
	Outside string               // the setting that switches off its own shell, editor and fetch; empty: not known
}

// Env holds the variables that determine the files' paths.
type Env struct {
	Home   string
	OS     string // as runtime.GOOS says it
	Lookup func(string) (string, bool)
}

// Here returns the Env of this process.
func Here() (Env, error) {
	home, err := os.UserHomeDir()
	return Env{Home: home, OS: runtime.GOOS, Lookup: os.LookupEnv}, err
}

func (e Env) get(variable string) string {
	if e.Lookup == nil {
		return ""
	}
	v, _ := e.Lookup(variable)
	return v
}

// config is the folder for configuration as Linux programs have it.
func (e Env) config() string {
	if dir := e.get("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(e.Home, ".config")
}

// app is the folder for an application's own files as desktop programs have it.
func (e Env) app(name string) string {
	switch e.OS {
	case "darwin":
		return filepath.Join(e.Home, "Library", "Application Support", name)
	case "windows":
		if dir := e.get("APPDATA"); dir != "" {
			return filepath.Join(dir, name)
		}
		return filepath.Join(e.Home, "AppData", "Roaming", name)
	}
	return filepath.Join(e.config(), name)
}

// or returns the folder that a variable names, else the other one.
func (e Env) or(variable, other string) string {
	if dir := e.get(variable); filepath.IsAbs(dir) {
		return dir
	}
	return other
}

var all = []*Host{
	{Name: "claude", Title: "Claude Code", Others: []string{"claude-code"}, Under: []string{"mcpServers"}, dialect: braces,
		user: func(e Env) []string {
			if dir := e.get("CLAUDE_CONFIG_DIR"); filepath.IsAbs(dir) {
				return []string{filepath.Join(dir, ".claude.json")}
			}
			return []string{filepath.Join(e.Home, ".claude.json")}
		},
		project: []string{".mcp.json"}, Restart: "start claude again; it asks once before it uses a project's server",
		Outside: `permissions: {"deny": ["Bash", "Edit", "Write", "NotebookEdit", "WebFetch", "WebSearch"]} in .claude/settings.json`},
	{Name: "claude-desktop", Title: "Claude Desktop", Under: []string{"mcpServers"}, dialect: plain,
		user:    func(e Env) []string { return []string{filepath.Join(e.app("Claude"), "claude_desktop_config.json")} },
		Restart: "quit Claude Desktop and open it again"},
	{Name: "codex", Title: "Codex", Format: TOML, Under: []string{"mcp_servers"}, dialect: codex,
		user: func(e Env) []string {
			return []string{filepath.Join(e.or("CODEX_HOME", filepath.Join(e.Home, ".codex")), "config.toml")}
		},
		project: []string{".codex/config.toml"},
		Restart: "start codex again; it reads a project's file once the project is trusted",
		Outside: `sandbox_mode = "read-only" and [tools] web_search = false in config.toml: its shell still reads`},
	{Name: "gemini", Title: "Gemini CLI", Others: []string{"gemini-cli"}, Under: []string{"mcpServers"}, dialect: gemini,
		user:    func(e Env) []string { return []string{filepath.Join(e.Home, ".gemini", "settings.json")} },
		project: []string{".gemini/settings.json"},
		Restart: "start gemini again, or /mcp refresh; it wants the folder trusted",
		Outside: `"tools": {"exclude": ["run_shell_command", "write_file", "replace", "web_fetch", "google_web_search"]} in ` +
			".gemini/settings.json"},
	{Name: "opencode", Title: "opencode", Under: []string{"mcp"}, dialect: opencode,
		user: func(e Env) []string {
			dir := filepath.Join(e.config(), "opencode")
			return []string{filepath.Join(dir, "opencode.json"), filepath.Join(dir, "opencode.jsonc")}
		},
		project: []string{"opencode.json", "opencode.jsonc"}, Restart: "start opencode again",
		Outside: `"tools": {"bash": false, "edit": false, "write": false, "patch": false, "webfetch": false} in opencode.json`},
	{Name: "vscode", Title: "VS Code", Others: []string{"code", "vs-code"}, Under: []string{"servers"}, dialect: vscode,
		user:    func(e Env) []string { return []string{filepath.Join(e.app("Code"), "User", "mcp.json")} },
		project: []string{".vscode/mcp.json"}, Restart: "run MCP: List Servers and start it"},
	{Name: "cursor", Title: "Cursor", Under: []string{"mcpServers"}, dialect: vscode,
		user:    func(e Env) []string { return []string{filepath.Join(e.Home, ".cursor", "mcp.json")} },
		project: []string{".cursor/mcp.json"}, Restart: "switch it on under Settings, MCP"},
	{Name: "zed", Title: "Zed", Under: []string{"context_servers"}, dialect: zed,
		user: func(e Env) []string {
			dir := e.config()
			if e.OS == "darwin" {
				dir = filepath.Join(e.Home, ".config")
			}
			if e.OS == "windows" {
				return []string{filepath.Join(e.app("Zed"), "settings.json")}
			}
			return []string{filepath.Join(dir, "zed", "settings.json")}
		},
		project: []string{".zed/settings.json"}, Restart: "Zed reads it at once"},
	{Name: "goose", Title: "goose", Format: YAML, Under: []string{"extensions"}, dialect: goose,
		user: func(e Env) []string {
			if e.OS == "windows" {
				return []string{filepath.Join(e.app("Block"), "goose", "config", "config.yaml")}
			}
			return []string{filepath.Join(e.config(), "goose", "config.yaml")}
		},
		Restart: "start goose again"},
}

// All returns every host, in the order in which they are listed.
func All() []*Host { return all }

// Plain is the form that most hosts share: mcpServers in JSON.
func Plain() *Host {
	return &Host{Name: "mcp.json", Title: "mcp.json", Under: []string{"mcpServers"}, dialect: braces}
}

// Find returns the host that people call by this name.
func Find(name string) (*Host, bool) {
	for _, h := range all {
		if h.Name == name {
			return h, true
		}
		for _, o := range h.Others {
			if o == name {
				return h, true
			}
		}
	}
	return nil, false
}

// User returns the user's own file: the first candidate that is there, else the first.
func (h *Host) User(e Env) string { return firstThere(h.user(e)) }

// Project returns the file in a project's folder; empty: the host has none.
func (h *Host) Project(dir string) string {
	var paths []string
	for _, p := range h.project {
		paths = append(paths, filepath.Join(dir, filepath.FromSlash(p)))
	}
	return firstThere(paths)
}

func firstThere(paths []string) string {
	for _, p := range paths {
		if _, err := os.Lstat(p); err == nil {
			return p
		}
	}
	if len(paths) == 0 {
		return ""
	}
	return paths[0]
}

// Guess returns the host that a file belongs to, by its name and content, or Plain.
func Guess(file string, v *Value) *Host {
	slashed := filepath.ToSlash(file)
	for _, row := range []struct{ end, host string }{
		{".claude.json", "claude"}, {".mcp.json", "claude"}, {"claude_desktop_config.json", "claude-desktop"},
		{".gemini/settings.json", "gemini"}, {"opencode.json", "opencode"}, {"opencode.jsonc", "opencode"},
		{".vscode/mcp.json", "vscode"}, {"/User/mcp.json", "vscode"}, {".cursor/mcp.json", "cursor"},
		{"zed/settings.json", "zed"},
	} {
		if strings.HasSuffix(slashed, row.end) {
			h, _ := Find(row.host)
			if v.Path(h.Under...) != nil {
				return h
			}
		}
	}
	for _, h := range all {
		if h.Under[0] != "mcpServers" && h.Format == FormatOf(file) && v.Path(h.Under...) != nil {
			return h
		}
	}
	return Plain()
}

// FormatOf tells the format by the file's name.
func FormatOf(file string) Format {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".toml":
		return TOML
	case ".yaml", ".yml":
		return YAML
	}
	return JSON
}
