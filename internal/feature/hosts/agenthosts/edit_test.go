package agenthosts

import (
	"strings"
	"testing"
)

var gateway = Gateway{Command: []string{"/opt/w aldo/waldo", "serve", "--stdio"}}

func entry(t *testing.T, h *Host) Value {
	t.Helper()
	e, err := h.Entry(gateway)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// One entry is put in and the rest of the file stays byte for byte; taken out again, the file is as
// it was, but for the mapping that had to be made.
func TestPutAndTake(t *testing.T) {
	stdio := `{
      "type": "stdio",
      "command": "/opt/w aldo/waldo",
      "args": ["serve", "--stdio"]
    }`
	flat := `{"type": "stdio", "command": "/opt/w aldo/waldo", "args": ["serve", "--stdio"]}`
	toml := "[mcp_servers.waldo]\ncommand = \"/opt/w aldo/waldo\"\nargs = [\"serve\", \"--stdio\"]\n"
	for _, row := range []struct {
		why, host, before, after, taken string
	}{
		{"no file", "claude", "", "{\n  \"mcpServers\": {\n    \"waldo\": " + stdio + "\n  }\n}\n",
			"{\n  \"mcpServers\": {}\n}\n"},
		{"an empty mapping", "claude", "{}\n", "{\n  \"mcpServers\": {\n    \"waldo\": " + stdio + "\n  }\n}\n",
			"{\n  \"mcpServers\": {}\n}\n"},
		{"others beside it, comments and a trailing comma", "claude",
			"{\n  // mine\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}, // keep, this\n    // and this\n  },\n" +
				"  \"z\": [1,2]\n}",
			"{\n  // mine\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}, // keep, this\n    // and this\n" +
				"    \"waldo\": " + stdio + ",\n  },\n  \"z\": [1,2]\n}",
			"{\n  // mine\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}, // keep, this\n    // and this\n  },\n" +
				"  \"z\": [1,2]\n}"},
		{"no trailing comma, and a comment after the last", "claude",
			"{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"} // keep\n  }\n}\n",
			"{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}, // keep\n    \"waldo\": " + stdio + "\n  }\n}\n",
			"{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"} // keep\n  }\n}\n"},
		{"all on one line", "claude", `{"n":1,"mcpServers":{"a":{"command":"x"}}}`,
			`{"n":1,"mcpServers":{"a":{"command":"x"}, "waldo": ` + flat + `}}`, `{"n":1,"mcpServers":{"a":{"command":"x"} }}`},
		{"tabs and Windows lines", "claude", "{\r\n\t\"n\": 1\r\n}\r\n",
			"{\r\n\t\"n\": 1,\r\n\t\"mcpServers\": {\r\n\t\t\"waldo\": {\r\n\t\t\t\"type\": \"stdio\",\r\n\t\t\t\"command\": " +
				"\"/opt/w aldo/waldo\",\r\n\t\t\t\"args\": [\"serve\", \"--stdio\"]\r\n\t\t}\r\n\t}\r\n}\r\n",
			"{\r\n\t\"n\": 1,\r\n\t\"mcpServers\": {}\r\n}\r\n"},
		{"no file", "codex", "", toml, ""},
		{"others beside it", "codex", "model = \"o\" # fast\n\n[mcp_servers.a]\ncommand = 'x'\n\n# the end",
			"model = \"o\" # fast\n\n[mcp_servers.a]\ncommand = 'x'\n\n# the end\n\n" + toml,
			"model = \"o\" # fast\n\n[mcp_servers.a]\ncommand = 'x'\n\n# the end\n\n"},
		{
			"an old one, with a table below it", "codex",
			"[mcp_servers.waldo]\ncommand = 'old' # c\n[mcp_servers.waldo.env]\nA = \"\"\"\n# x\n\"\"\"\n\n# of b\n[b]\nc = 1\n",
			toml + "\n# of b\n[b]\nc = 1\n", "\n# of b\n[b]\nc = 1\n",
		},
		{
			"no file", "goose", "", "extensions:\n  \"waldo\":\n    name: \"waldo\"\n    enabled: true\n    type: \"stdio\"\n" +
				"    cmd: \"/opt/w aldo/waldo\"\n    args: [\"serve\", \"--stdio\"]\n    timeout: 300\n", "extensions: {}\n",
		},
		{"others beside it", "goose", "# mine\nextensions: # all\n    a:\n        cmd: x\n        args: []\n    # last\n" +
			"GOOSE_MODEL: y\n",
			"# mine\nextensions: # all\n    \"waldo\":\n      name: \"waldo\"\n      enabled: true\n      type: \"stdio\"\n" +
				"      cmd: \"/opt/w aldo/waldo\"\n      args: [\"serve\", \"--stdio\"]\n      timeout: 300\n    a:\n" +
				"        cmd: x\n        args: []\n    # last\nGOOSE_MODEL: y\n",
			"# mine\nextensions: # all\n    a:\n        cmd: x\n        args: []\n    # last\nGOOSE_MODEL: y\n"},
	} {
		h, _ := Find(row.host)
		got, err := h.Put("f", []byte(row.before), "waldo", entry(t, h))
		if err != nil || string(got) != row.after {
			t.Errorf("%s, %s: %v\n%s\nwanted\n%s", row.host, row.why, err, got, row.after)
			continue
		}
		if again, err := h.Put("f", got, "waldo", entry(t, h)); err != nil || string(again) != string(got) {
			t.Errorf("%s, %s: a second time: %v\n%s", row.host, row.why, err, again)
		}
		if taken, err := h.Take("f", got, "waldo"); err != nil || string(taken) != row.taken {
			t.Errorf("%s, %s: taken out: %v\n%q\nwanted\n%q", row.host, row.why, err, taken, row.taken)
		}
	}
}

// Put refuses an edit that would change the rest of the file, and a file that is not a host's.
func TestPutRefuses(t *testing.T) {
	for _, row := range []struct{ why, host, text, want string }{
		{"an inline table cannot grow", "codex", "mcp_servers = {a = {command = 'x'}}\n", "without touching the rest"},
		{"a mapping in braces", "goose", "extensions: {a: {cmd: x}}\n", "is written in braces"},
		{"a list at the top", "claude", "[]", "the file must be a mapping, not a list"},
		{"servers that are text", "cursor", `{"mcpServers": "x", "a": 1}`, "without touching the rest"},
		{"a key twice", "claude", `{"mcpServers": {}, "mcpServers": {}}`, "the key mcpServers was written before"},
		{"lines that end in two ways", "goose", "a: 1\rextensions:\n  b: {cmd: x}\n", "do not all end alike"},
	} {
		h, _ := Find(row.host)
		if got, err := h.Put("f", []byte(row.text), "waldo", entry(t, h)); err == nil ||
			!strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: wanted %q, got %v\n%s", row.why, row.want, err, got)
		}
	}
}

// The text that an editor gives is judged by reading it again, not by trusting the editor.
func TestVerify(t *testing.T) {
	h, _ := Find("claude")
	before, _ := h.tree("f", []byte(`{"a": 1, "mcpServers": {"x": {}}}`))
	path, e := []string{"mcpServers", "waldo"}, text("w")
	for _, row := range []struct {
		why, after string
		good       bool
	}{
		{"the control", `{"mcpServers": {"waldo": "w", "x": {}}, "a": 1}`, true},
		{"another key changed", `{"mcpServers": {"waldo": "w", "x": {}}, "a": 2}`, false},
		{"another server is gone", `{"mcpServers": {"waldo": "w"}, "a": 1}`, false},
		{"something more", `{"mcpServers": {"waldo": "w", "x": {}}, "a": 1, "b": 1}`, false},
		{"not the entry", `{"mcpServers": {"waldo": "v", "x": {}}, "a": 1}`, false},
		{"no longer JSON", `{"mcpServers": {"waldo": "w", "x": {}}, "a": 1`, false},
	} {
		if err := h.verify("f", before, []byte(row.after), path, &e); (err == nil) != row.good {
			t.Errorf("%s: %v", row.why, err)
		}
	}
}

// For any file, an edit either refuses or changes one entry alone.
func FuzzEdit(f *testing.F) {
	for _, s := range []string{
		"", "{}", `{"mcpServers":{"a":{},}, /* x */ }`, "{\n\t\"mcpServers\": {\n\t\t\"waldo\": 1, // c\n\t}\n}",
		"[mcp_servers.a]\nx=1\n", "mcp_servers.waldo.x = 1\n[[z]]\n",
		"extensions:\n  a: {}\n  waldo:\n    x: |\n      y\n# z\n", "extensions: {}\nb: 1", "extensions:\nb: 1",
	} {
		for h := range uint8(9) {
			f.Add(h, []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, text []byte) {
		h := All()[int(which)%len(All())]
		before, err := h.tree("f", text)
		if err != nil {
			return
		}
		e, path := entry(t, h), append(append([]string{}, h.Under...), "waldo")
		put, err := h.Put("f", text, "waldo", e)
		if err != nil {
			return
		}
		if again, err := h.Put("f", put, "waldo", e); err != nil || string(again) != string(put) {
			t.Fatalf("%s: a second time: %v", h.Name, err)
		}
		taken, err := h.Take("f", put, "waldo")
		if err != nil {
			return // refused: as good
		}
		after, err := h.tree("f", taken)
		if err != nil || !same(without(before, path), without(after, path)) {
			t.Fatalf("%s: %v\n%q\n%q\n%q", h.Name, err, text, put, taken)
		}
	})
}
