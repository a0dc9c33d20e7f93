package wellknown

import (
	"slices"
	"strings"
	"testing"
)

func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All() {
		if len(s.Match) == 0 || !strings.HasPrefix(s.Source, "https://") {
			t.Errorf("%v has no name or no source", s)
		}
		for _, m := range s.Match {
			if seen[m] || unversioned(m) != m {
				t.Errorf("%s stands twice or with a version", m)
			}
			seen[m] = true
		}
		tools := slices.Concat(s.Read, s.Own, s.Write, s.Destructive)
		if len(tools) == 0 || slices.Contains(tools, "*") || slices.Contains(s.Hosts, "*") {
			t.Errorf("%s: %v %v", s.Match, tools, s.Hosts)
		}
		slices.Sort(tools)
		if len(slices.Compact(slices.Clone(tools))) != len(tools) {
			t.Errorf("%s: a tool has two classes: %v", s.Match, tools)
		}
		for variable, value := range s.Data {
			if variable == "" || !strings.HasPrefix(value, "/data/") {
				t.Errorf("%s: %s=%s is not in the data folder", s.Match, variable, value)
			}
		}
	}
}

// TestFind: the program that runs has the row, not a word that looks like it.
func TestFind(t *testing.T) {
	for command, want := range map[string]bool{
		"npx -y @modelcontextprotocol/server-memory":         true,
		"npx -y @modelcontextprotocol/server-memory@2026.1":  true,
		"/usr/bin/npx @modelcontextprotocol/server-memory":   true,
		"uvx mcp-server-time==1.0":                           true,
		"uvx mcp-server-time@latest":                         true,
		"/opt/bin/github-mcp-server stdio":                   true,
		"npx -y evil @modelcontextprotocol/server-memory":    false,
		"npx -p evil @modelcontextprotocol/server-memory":    false,
		"npx --package=evil mcp-server-time":                 false,
		"node /opt/x.js @modelcontextprotocol/server-memory": false,
		"npx": false,
		"":    false,
	} {
		if _, got := Find(strings.Fields(command)); got != want {
			t.Errorf("%q: %v", command, got)
		}
	}
}

func TestPaths(t *testing.T) {
	got := Paths([]string{"/bin/x", "/a/b/", "--repository=/c", "rel", "/a/b", "k=/d"})
	if !slices.Equal(got, []string{"/a/b", "/c"}) {
		t.Error(got)
	}
}
