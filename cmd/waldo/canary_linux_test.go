package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"filippo.io/age"
)

// canaries are one secret for each source, of different alphabets.
func canaries() map[string]string {
	out := map[string]string{}
	for i, source := range []string{"ENV", "DOTENV", "FILE", "AGE", "VAULT", "COMMAND", "STORE", "KEYRING"} {
		sum := sha256.Sum256([]byte{byte(i)})
		out[source] = strings.ToLower(source) + "/Canary+" + base64.RawStdEncoding.EncodeToString(sum[:18]) + "=&x"
	}
	return out
}

// shapes returns a secret as it is and encoded: hexadecimal, base64 at three offsets, for URLs and JSON.
func shapes(s string) []string {
	quoted, _ := json.Marshal(s) // text encodes
	out := []string{
		s, hex.EncodeToString([]byte(s)), strings.ToUpper(hex.EncodeToString([]byte(s))), url.QueryEscape(s),
		url.PathEscape(s), string(quoted[1 : len(quoted)-1]),
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for o := range 3 {
			e := enc.EncodeToString([]byte("\x00\x00"[:o] + s))
			out = append(out, e[[]int{0, 2, 3}[o]:(o+len(s))*8/6])
		}
	}
	return out
}

// sightings says in which shapes which secrets stand in a text.
func sightings(b []byte, all map[string]string) (out []string) {
	for source, s := range all {
		for i, shape := range shapes(s) {
			if bytes.Contains(b, []byte(shape)) {
				out = append(out, fmt.Sprintf("%s in shape %d", source, i))
			}
		}
	}
	return out
}

// TestCanaries gives a server and a run secrets of every source, lets the server tell them in every
// way, and looks for them in all that waldo said and kept, and in the memory of the agent's sandbox.
func TestCanaries(t *testing.T) {
	if os.Getenv("WALDO_CANARIES_INSIDE") == "" { // again, on a bus of its own with a keyring
		args := []string{
			"--", "sh", "-c", `printf pw | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1; exec "$0" ` +
				`-test.run '^TestCanaries$' -test.v`,
		}
		for _, program := range []string{"dbus-run-session", "gnome-keyring-daemon"} {
			if _, err := exec.LookPath(program); err != nil {
				t.Fatalf("%s is missing: scripts/setup.sh installs it", program)
			}
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		c := exec.Command("dbus-run-session", append(args, self)...)
		c.Env = append(os.Environ(), "WALDO_CANARIES_INSIDE=1", "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_RUNTIME_DIR="+dir,
			"DBUS_SESSION_BUS_ADDRESS=")
		b, err := c.CombinedOutput()
		if err != nil || !bytes.Contains(b, []byte("--- PASS: TestCanaries")) {
			t.Fatalf("%v\n%s", err, b)
		}
		return
	}
	all := canaries()
	d := newDen(t, all)
	for _, argv := range [][]string{
		{"tools", "--detail", "full"}, {"tools", "--json"}, {"call", "mole.tell"}, {"call", "mole.fail"},
		{"call", "mole.tell", "--json"}, {"explain", "mole.tell"}, {"secret", "list"}, {"secret", "check", "--json"},
		{"check"}, {"run", "--env", "ASK=yes", d.agent}, {"run", "--json", "--env", "ASK=yes", d.agent}, {"log"},
		{"log", "export"}, {"--config", d.missing, "serve", "--stdio"},
	} {
		d.waldo(t, argv...)
	}
	d.serve(t)
	if !strings.Contains(d.said.String(), "\ntell [SECRET]") {
		t.Errorf("control: the agent's code was told nothing: %s", d.said.String())
	}
	if saw := sightings(d.said.Bytes(), all); len(saw) > 0 {
		t.Errorf("waldo said: %q", saw)
	}
	files := 0
	err := filepath.WalkDir(d.state, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		if saw := sightings(b, all); len(saw) > 0 {
			t.Errorf("%s holds %q", path, saw)
		}
		return err
	})
	if err != nil || files < 6 {
		t.Errorf("%d files of state: %v", files, err)
	}
	d.controls(t, all)
}

// den is a folder with secrets of every source, a configuration that names them, and all that
// waldo said there.
type den struct {
	dir, state, config, missing, agent string
	said                               bytes.Buffer
}

func newDen(t *testing.T, all map[string]string) *den {
	t.Helper()
	d := &den{dir: t.TempDir()}
	d.state, d.config, d.missing, d.agent = filepath.Join(d.dir, "state"), filepath.Join(d.dir, "waldo.yaml"),
		filepath.Join(d.dir, "missing.yaml"), filepath.Join(d.dir, "agent.py")
	for k, v := range map[string]string{"WALDO_STATE": d.state, "WALDO_CONFIG": d.config, "CANARY": all["ENV"],
		"WALDO_AGE_IDENTITY": d.keep(t, "identity", ""),
		"VAULT_ADDR":         fakeVault(t, all["VAULT"]), "VAULT_TOKEN": "hvs.token-of-the-test", "NO_COLOR": "1"} {
		t.Setenv(k, v)
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	d.keep(t, "identity", id.String())
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, id.Recipient())
	if err == nil {
		_, err = w.Write([]byte("CANARY='" + all["AGE"] + "'\n"))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	d.piped(t, all["STORE"], "secret", "set", "kept")
	ring := exec.Command("secret-tool", "store", "--label=x", "service", "waldo-canary", "username", "test")
	ring.Stdin = strings.NewReader(all["KEYRING"])
	if b, err := ring.CombinedOutput(); err != nil {
		t.Fatalf("the keyring: %v %s", err, b)
	}
	mole, err := filepath.Abs("testdata/canary/mole.py")
	if err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer("@DOTENV", "dotenv:"+d.keep(t, ".env", "CANARY='"+all["DOTENV"]+"'\n")+"#CANARY", "@FILE",
		"file:"+d.keep(t, "file", all["FILE"]),
		"@AGE", "age:"+d.keep(t, "sealed.age", sealed.String())+"#CANARY", "@COMMAND", d.keep(t, "printed", all["COMMAND"]),
		"@MOLE", mole).Replace(`
  a: {from: "env:CANARY"}
  b: {from: "@DOTENV"}
  c: {from: "@FILE"}
  d: {from: "@AGE"}
  e: {from: "vault:secret/app#canary"}
  f: {command: [cat, "@COMMAND"]}
  g: {from: "store:kept"}
  h: {from: "keyring:waldo-canary/test"}
servers: {mole: {command: [python3, "@MOLE"], secrets: {SECRET_ENV: a, SECRET_DOTENV: b, SECRET_FILE: c, SECRET_AGE: d, SECRET_VAULT: e, SECRET_COMMAND: f, SECRET_STORE: g, SECRET_KEYRING: h}}}
capabilities:
  mole.*: {mode: read, approval: none}
  run_python: {transport: sandboxed_exec, mode: high_risk, isolation: namespace, filesystem: workspace_only, approval: none, timeout_seconds: 30REVEAL}
`)
	d.keep(t, "waldo.yaml", "version: 1\nsecrets:"+strings.Replace(names, "REVEAL", "", 1))
	d.keep(t, "revealed.yaml", "version: 1\nsecrets:"+
		strings.Replace(names, "REVEAL", ", secrets: {A: a, F: f}, reveal: [A, F]", 1))
	d.keep(t, "missing.yaml", "version: 1\nsecrets:\n  z: {from: \"env:NOWHERE\"}"+strings.Replace(names, "REVEAL", "", 1))
	script, err := os.ReadFile("testdata/canary/agent.py")
	if err != nil {
		t.Fatal(err)
	}
	var needles []string
	for _, s := range all {
		up := []byte(s)
		for i := range up {
			up[i]++
		}
		needles = append(needles, hex.EncodeToString(up))
	}
	d.keep(t, "agent.py", strings.Replace(string(script), "NEEDLES", strings.Join(needles, " "), 1))
	return d
}

// keep writes a file beside the state.
func (d *den) keep(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// waldo runs a command and keeps what it says.
func (d *den) waldo(t *testing.T, argv ...string) string {
	t.Helper()
	return d.piped(t, "", argv...)
}

func (d *den) piped(t *testing.T, in string, argv ...string) string {
	t.Helper()
	var out bytes.Buffer
	run(argv, strings.NewReader(in), &out, &out)
	d.said.Write(out.Bytes())
	return out.String()
}

// serve asks a gateway for its tools and calls some.
func (d *den) serve(t *testing.T) {
	t.Helper()
	lines := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"mole__tell","arguments":{}}}
{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"mole__fail","arguments":{}}}
`
	if got := d.piped(t, lines, "serve", "--stdio"); !strings.Contains(got, "tells. [SECRET]") ||
		strings.Count(got, `"jsonrpc"`) < 4 {
		t.Errorf("the gateway said %.2000s", got)
	}
}

var scanned = regexp.MustCompile(`environment (\d+) memory (\d+) of (\d+) bytes`)

// controls shows that the server had every secret, that what it says shows them all, that the search
// finds them, and that the sandbox's search finds those that a contract reveals.
func (d *den) controls(t *testing.T, all map[string]string) {
	t.Helper()
	counted := d.waldo(t, "call", "mole.count")
	for source, s := range all {
		sum := sha256.Sum256([]byte(s))
		if !strings.Contains(counted, hex.EncodeToString(sum[:])) {
			t.Errorf("control: the server had no secret of %s: %s", source, counted)
		}
	}
	c := exec.Command("/usr/bin/python3", "testdata/canary/mole.py")
	for source, s := range all {
		c.Env = append(c.Env, "SECRET_"+source+"="+s)
	}
	c.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"tell",` +
		`"arguments":{}}}` + "\n")
	b, err := c.Output()
	if saw := sightings(b, all); err != nil || len(saw) < 8*len(all) {
		t.Errorf("control: without waldo %d sightings, %v", len(saw), err)
	}
	sealed := scanned.FindStringSubmatch(d.waldo(t, "run", d.agent))
	open := scanned.FindStringSubmatch(d.waldo(t, "--config", filepath.Join(d.dir, "revealed.yaml"), "run", d.agent))
	if len(sealed) == 0 || len(open) == 0 || len(sealed[3]) < 7 {
		t.Fatalf("no scan of memory: %q %q in %s", sealed, open, d.said.String())
	}
	if sealed[1] != "0" || sealed[2] != "0" {
		t.Errorf("the sandbox of the agent: %s", sealed[0])
	}
	if open[1] != "2" || open[2] == "0" {
		t.Errorf("control: a sandbox with two secrets: %s", open[0])
	}
}

// fakeVault serves one secret of KV version 2.
func fakeVault(t *testing.T, value string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := map[string]any{"data": map[string]any{"data": map[string]string{"canary": value}}}
		if strings.HasPrefix(r.URL.Path, "/v1/sys/internal/ui/mounts/") {
			answer = map[string]any{"data": map[string]any{
				"path": "secret/", "type": "kv", "options": map[string]string{"version": "2"},
			}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(s.Close)
	return s.URL
}
