// Package wellknown is a small catalogue of MCP servers: which hosts, folders and classes of tools each
// needs, with a source per row. waldo proposes what it says; an operator decides.
package wellknown

import (
	"bytes"
	_ "embed"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"waldo/internal/detect/pattern"
)

// Server is one row of servers.yaml, which explains its keys.
type Server struct {
	Match       []string          `yaml:"match"`
	Hosts       []string          `yaml:"hosts"`
	Data        map[string]string `yaml:"data"`
	Folders     bool              `yaml:"folders"`
	Read        []string          `yaml:"read"`
	Own         []string          `yaml:"own"`
	Write       []string          `yaml:"write"`
	Destructive []string          `yaml:"destructive"`
	Settle      map[string]Settle `yaml:"settle"`
	Source      string            `yaml:"source"`
}

// Settle is how to find out whether a call of a tool happened, as in a contract.
type Settle struct {
	By       string            `yaml:"by"` // a tool of the server that reads
	Args     map[string]string `yaml:"args"`
	Happened string            `yaml:"happened"`
}

//go:embed servers.yaml
var text []byte

// All returns every row. It panics where servers.yaml is malformed, which a test excludes.
var All = sync.OnceValue(func() []Server {
	var file struct {
		Servers []Server `yaml:"servers"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		panic(err)
	}
	return file.Servers
})

// launchers are programs whose first non-option argument names the package to run.
var launchers = []string{"npx", "uvx"}

// Find returns the row of a server's command: of its program, or of the package that npx or uvx runs.
func Find(command []string) (Server, bool) {
	if len(command) == 0 {
		return Server{}, false
	}
	name := filepath.Base(command[0])
	if slices.Contains(launchers, name) {
		at := slices.IndexFunc(command[1:], func(w string) bool { return !strings.HasPrefix(w, "-") })
		if at < 0 || slices.ContainsFunc(command[1:1+at], takesValue) {
			return Server{}, false
		}
		name = unversioned(command[1+at])
	}
	for _, s := range All() {
		if slices.Contains(s.Match, name) {
			return s, true
		}
	}
	return Server{}, false
}

// takesValue reports an option of a launcher that names another package, or whose value is the next word.
func takesValue(option string) bool {
	return !slices.Contains([]string{"-y", "--yes", "-q", "--quiet"}, option)
}

var version = pattern.Lazy(`^(.+?)(==.*|@[^/]*)$`)

// unversioned is the name of a package without its version: a@1, @s/a@1 and a==1.
func unversioned(pkg string) string {
	if m := version().FindStringSubmatch(pkg); m != nil && m[1] != "" {
		return m[1]
	}
	return pkg
}

// Paths returns the absolute paths among the arguments of a command, each once.
func Paths(command []string) (out []string) {
	for _, w := range command[min(1, len(command)):] {
		if _, value, ok := strings.Cut(w, "="); ok && strings.HasPrefix(w, "-") {
			w = value
		}
		if path.IsAbs(w) && !slices.Contains(out, path.Clean(w)) {
			out = append(out, path.Clean(w))
		}
	}
	return out
}
