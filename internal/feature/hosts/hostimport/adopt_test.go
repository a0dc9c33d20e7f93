package hostimport

import (
	"fmt"
	"strings"
	"testing"

	"waldo/internal/config"
	"waldo/internal/feature/hosts/agenthosts"
	"waldo/internal/model/display"
)

var options = Options{Workspace: "/work space", Home: "/home/ann"}

// one plans the one server of a Claude Code file.
func one(t *testing.T, entry string) Server {
	t.Helper()
	h, _ := agenthosts.Find("claude")
	return plan1(t, h, `{"mcpServers": {"x": `+entry+`}}`)
}

func plan1(t *testing.T, h *agenthosts.Host, text string) Server {
	t.Helper()
	v, err := agenthosts.Parse(h.Format, "f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	servers, problems := h.Read("f", v, "/work space")
	if len(problems) > 0 || len(servers) != 1 || len(servers[0].Problems) > 0 {
		t.Fatalf("%v %+v", problems, servers)
	}
	return Plan(h, "f", servers, options, map[string]bool{})[0]
}

// No secret appears in the written text, for any place and spelling in the input.
func TestNoSecretIsWritten(t *testing.T) {
	const canary = "hunter2CANARY99"
	for why, entry := range map[string]string{
		"a variable named for it":       `{"command": "x", "env": {"DB_PASSWORD": "` + canary + `"}}`,
		"a variable named for anything": `{"command": "x", "env": {"REGION": "ghp_` + canary + `"}}`,
		"a generated one":               `{"command": "x", "env": {"REGION": "` + canary + `abcdef0123456789"}}`,
		"an address with a password":    `{"command": "x", "env": {"REGION": "postgres://u:` + canary + `@h/d"}}`,
		"a query":                       `{"command": "x", "env": {"REGION": "https://h/?api_key=` + canary + `"}}`,
		"a private key":                 `{"command": "x", "env": {"PEM": "-----BEGIN KEY-----\n` + canary + `"}}`,
		"a flag and its value":          `{"command": "x", "args": ["--api-key", "` + canary + `"]}`,
		"a flag with its value":         `{"command": "x", "args": ["--token=` + canary + `"]}`,
		"a header argument": `{"command": "npx", "args": ["mcp-remote", "https://h/mcp", "--header",` +
			` "Authorization: Bearer ` + canary + `"]}`,
		"a header argument without a space": `{"command": "npx", "args": ["mcp-remote", "https://h/mcp", "--header",` +
			` "Authorization:Bearer ` + canary + `"]}`,
		"docker's variable": `{"command": "docker", "args": ["run", "-e", "GITHUB_TOKEN=` +
			canary + `", "img"]}`,
		"an argument that is an address":  `{"command": "x", "args": ["redis://:` + canary + `@h"]}`,
		"an argument with a known prefix": `{"command": "x", "args": ["sk-ant-` + canary + `"]}`,
		"a bearer token": `{"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer ` +
			canary + `"}}`,
		"another scheme": `{"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "Basic ` +
			canary + `"}}`,
		"another header":             `{"type": "http", "url": "https://h/mcp", "headers": {"X-Api-Key": "` + canary + `"}}`,
		"the password of an address": `{"type": "http", "url": "https://u:` + canary + `@h/mcp"}`,
		"the query of an address":    `{"type": "http", "url": "https://h/mcp?token=` + canary + `"}`,
		"the default of a variable":  `{"command": "x", "env": {"TOKEN": "${T:-` + canary + `}"}}`,
	} {
		s := one(t, entry)
		text, err := Add(nil, []Server{s})
		if err != nil {
			t.Fatalf("%s: %v", why, err)
		}
		if strings.Contains(string(text)+s.Shown+strings.Join(s.Command, " ")+s.URL+s.Held, canary) {
			t.Errorf("%s: %s\n%s", why, s.Shown, text)
		}
		if _, problems := config.Parse("waldo.yaml", text); len(problems) > 0 {
			t.Errorf("%s: %v\n%s", why, problems, text)
		}
		secrets := 0
		_ = s.Each(func(*Secret) error { secrets++; return nil })
		if s.Held == "" && secrets == 0 {
			t.Errorf("%s: it is in force without its secret:\n%s", why, text)
		}
	}
}

// A harmless value stays readable.
func TestHarmlessIsKept(t *testing.T) {
	for _, row := range []struct{ name, value string }{
		{"LOG_LEVEL", "debug"}, {"MAX_TOKENS", "4096"}, {"TOKEN_TTL", "15m"}, {"AUTH_TYPE", "basic"}, {"USE_AUTH", "true"},
		{"GOOGLE_APPLICATION_CREDENTIALS", "/home/ann/key/gcp.json"},
		{"ALLOWED_DIR", "/home/ann/some/long/path-with-0123456789/in/it"}, {"REGION", "eu-central-1"},
		{"API_URL", "https://api.example.com/v1"},
	} {
		if Credential(row.name, row.value) {
			t.Errorf("%s=%s is taken for a credential", row.name, row.value)
		}
	}
}

// Each host's variables become references and folders become paths; a server with a variable that only the host can
// resolve is held back.
func TestVariables(t *testing.T) {
	for _, row := range []struct{ why, host, text, want string }{
		{"a variable", "claude", `{"mcpServers": {"x": {"command": "c", "env": {"T": "${A}"}}}}`, "T=env:A"},
		{"a bearer of a variable", "claude",
			`{"mcpServers": {"x": {"url": "https://h/", "headers": {"authorization": "bearer ${A}"}}}}`, "bearer=env:A"},
		{"home in an argument", "claude", `{"mcpServers": {"x": {"command": "c", "args": ["${HOME}/d"]}}}`, "c /home/ann/d"},
		{"a variable in an argument", "claude", `{"mcpServers": {"x": {"command": "c", "args": ["${A}"]}}}`,
			"held: its command holds '${A}', which waldo does not fill in: write what it stands for"},
		{"text and a variable", "claude", `{"mcpServers": {"x": {"command": "c", "env": {"T": "a${A}"}}}}`,
			"held: T mixes text and variables: let one variable hold the whole value"},
		{"a host that fills nothing in", "claude-desktop", `{"mcpServers": {"x": {"command": "c", "env": {"T": "${A}"}}}}`,
			"T='${A}'"},
		{"Gemini's short form", "gemini", `{"mcpServers": {"x": {"command": "c", "env": {"T": "$A"}}}}`, "T=env:A"},
		{"opencode's variable", "opencode",
			`{"mcp": {"x": {"type": "local", "command": ["c", "d"], "environment": {"T": "{env:A}"}}}}`, "c d T=env:A"},
		{"opencode's file", "opencode",
			`{"mcp": {"x": {"type": "local", "command": ["c"], "environment": {"T": "{file:~/k/t}"}}}}`, "T=file:/home/ann/k/t"},
		{"VS Code's variable", "vscode", `{"servers": {"x": {"command": "c", "env": {"T": "${env:A}"}}}}`, "T=env:A"},
		{"VS Code's question", "vscode", `{"servers": {"x": {"command": "c", "env": {"T": "${input:tok}"}}}}`, "T=store:x.T"},
		{
			"VS Code's folder", "vscode", `{"servers": {"x": {"command": "c", "args": ["${workspaceFolder}/a"],` +
				` "env": {"D": "${workspaceFolder}"}}}}`, "c '/work space/a' D='/work space'",
		},
		{"what only VS Code knows", "vscode", `{"servers": {"x": {"command": "c", "args": ["${command:pick}"]}}}`,
			"held: its command holds '${command:pick}', which waldo does not fill in: write what it stands for"},
		{"Codex hands a variable on", "codex",
			"[mcp_servers.x]\ncommand = 'c'\nenv_vars = ['T', {name = 'U', source = 'local'}]", "T=env:T U=env:U"},
		{"Codex's bearer", "codex", "[mcp_servers.x]\nurl = 'https://h/'\nbearer_token_env_var = 'T'", "bearer=env:T"},
		{
			"a header of a variable", "codex",
			"[mcp_servers.x]\nurl = 'https://h/'\nenv_http_headers = {X-Key = 'K'}\nhttp_headers = {x-region = 'eu'}",
			"https://h/ X-Key=env:K x-region=store:x.x-region",
		},
		{"a header that is waldo's own", "claude", `{"mcpServers": {"x": {"url": "https://h/", "headers": {"Cookie": "a"}}}}`,
			"held: waldo.yaml does not take it: the header Cookie is written by waldo itself"},
		{"plain HTTP elsewhere", "claude", `{"mcpServers": {"x": {"url": "http://h/"}}}`,
			"held: waldo.yaml does not take it: http is taken only on this machine"},
		{"goose's keys", "goose", "extensions:\n  x: {type: stdio, cmd: c, env_keys: [T], envs: {N: 1}}\n", "N=1 T=env:T"},
		{
			"older Zed", "zed", `{"context_servers": {"x": {"source": "custom", "command": {"path": "c", "args": ["d"],` +
				` "env": {"N": "1"}}}}}`, "c d N=1",
		},
		{"another transport", "claude", `{"mcpServers": {"x": {"type": "ws", "url": "https://h/"}}}`,
			"held: waldo does not speak its transport, ws"},
	} {
		h, _ := agenthosts.Find(row.host)
		s := plan1(t, h, row.text)
		got := s.Shown
		for _, e := range s.Env {
			got += " " + e.Name + "=" + display.Shell(e.Value)
		}
		for _, x := range s.Secrets {
			got += " " + x.Variable + "=" + string(x.Ref)
		}
		for _, h := range s.Headers {
			got += " " + h.Variable + "=" + string(h.Ref)
		}
		if s.Bearer != nil {
			got += " bearer=" + string(s.Bearer.Ref)
		}
		if s.Held != "" {
			got = "held: " + s.Held
		}
		if !strings.HasSuffix(got, row.want) {
			t.Errorf("%s: wanted %s, got %s", row.why, row.want, got)
		}
	}
}

// Names fit waldo.yaml and do not collide.
func TestNames(t *testing.T) {
	h := agenthosts.Plain()
	v, err := agenthosts.Parse(agenthosts.JSON, "f",
		[]byte(`{"mcpServers": {"a b": {"command": "c"}, "a.b": {"command": "c"}, "1": {"command": "c"},`+
			` "x__y": {"command": "c"}, "": {"command": "c"}, "é": {"command": "c"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	servers, _ := h.Read("f", v, "")
	var got []string
	all := Plan(h, "f", servers, options, map[string]bool{})
	for _, s := range all {
		got = append(got, s.Name)
	}
	if want := "a-b a-b-2 server-1 x_y server server-2"; strings.Join(got, " ") != want {
		t.Errorf("%v, wanted %s", got, want)
	}
	text, err := Add(nil, all)
	if err != nil {
		t.Fatal(err)
	}
	if _, problems := config.Parse("waldo.yaml", text); len(problems) > 0 {
		t.Error(problems)
	}
}

// Adding changes nothing that was there.
func TestAddKeepsTheRest(t *testing.T) {
	before := "# mine\nversion: 1\nservers: # all\n    old: {command: [x]} # keep\ncapabilities:\n  old.*: {mode: read}\n"
	s := one(t, `{"command": "c"}`)
	text, err := Add([]byte(before), []Server{s})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(before) {
		if !strings.Contains(string(text), line) {
			t.Errorf("%q is gone:\n%s", line, text)
		}
	}
	cfg, problems := config.Parse("waldo.yaml", text)
	if len(problems) > 0 || len(cfg.Servers) != 2 || !s.Same(cfg.Servers["x"]) || s.Same(cfg.Servers["old"]) {
		t.Errorf("%v\n%s", problems, text)
	}
	if _, err := Add([]byte("version: 1\nservers: {old: {command: [x]}}\n"), []Server{s}); err == nil {
		t.Error("servers in braces were edited")
	}
}

// For any host file, the written lines are a valid configuration with exactly the planned servers and no secret.
func FuzzAdd(f *testing.F) {
	for _, s := range []string{
		`{"mcpServers":{"a":{"command":"npx","args":["-y","x"],"env":{"TOKEN":"abc","N":"1"}}}}`,
		`{"mcpServers":{"a":{"type":"http","url":"https://h/mcp","headers":{"Authorization":"Bearer ${A}"}}}}`,
		`{"mcpServers":{"a\n# b":{"command":"\u202e","cwd":"x","trust":true,"\u001b":1}}}`,
		`{"mcpServers":{"yes":{"command":"no","args":["0x10","",": #","-","\ud800"]}}}`,
		"[mcp_servers.a]\ncommand='x'\nenv_vars=['A']\n[mcp_servers.a.env]\nK='v'\n",
		"extensions:\n  a: {type: stdio, cmd: x, env_keys: [K]}\n",
	} {
		for h := range uint8(9) {
			f.Add(h, []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, text []byte) {
		h := agenthosts.All()[int(which)%len(agenthosts.All())]
		v, err := agenthosts.Parse(h.Format, "f", text)
		if err != nil {
			return
		}
		servers, _ := h.Read("f", v, "/p")
		if servers, _ = agenthosts.Whole(servers); len(servers) > 100 {
			return
		}
		all := Plan(h, "f", servers, options, map[string]bool{})
		out, err := Add(nil, all)
		if err != nil {
			t.Fatal(err)
		}
		cfg, wrong := config.Parse("waldo.yaml", out)
		if len(wrong) > 0 {
			t.Fatalf("%v\n%s", wrong, out)
		}
		for _, s := range all {
			if _, in := cfg.Servers[s.Name]; in != (s.Held == "") || in && !s.Same(cfg.Servers[s.Name]) {
				t.Fatalf("%+v\n%+v", s, cfg.Servers[s.Name])
			}
			if err := s.Each(func(x *Secret) error {
				if l := x.Literal.Reveal(); len(l) > 12 && strings.Contains(string(out), l) {
					return fmt.Errorf("%s is written", x.Variable)
				}
				return nil
			}); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
	})
}
