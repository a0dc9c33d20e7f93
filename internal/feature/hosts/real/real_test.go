//go:build hosts

// Package real runs real agent hosts against a scripted model, in a network name space of their own:
// each is set up by waldo install and makes calls through waldo. scripts/hosts.sh runs it.
package real

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// code is the model's program: it calls an upstream through the bridge, and computes a value.
	code = "rows = servers.helpdesk.list_customers(limit=3)\nprint('waldo says', 6*7*1000003)"
	want = "42000126"
	said = "The tools have answered, and that is all."
)

// rows are the calls that a model makes in every host, and the text that it must receive.
var rows = []struct {
	name, tool string
	args       map[string]any
	want       string // empty: an approval id
	direct     bool   // the server can be asked without waldo, too
}{
	{"text", "probe_say", map[string]any{}, spoken, true},
	{"error", "probe_fail", map[string]any{}, failed, true},
	{"image", "probe_picture", map[string]any{}, picture, true},
	{"structured", "probe_shape", map[string]any{}, shaped, true},
	{"structured alone", "probe_alone", map[string]any{}, alone, true},
	{"approval", "probe_wait", map[string]any{"n": 1}, "", false},
	{"denial", "probe_deny", map[string]any{"n": 1}, reason, false},
	{"run_python", "run_python", map[string]any{"code": code}, want, false},
}

var (
	waldo = os.Getenv("WALDO_BIN")   // the waldo to test
	cache = os.Getenv("WALDO_CACHE") // where hosts, servers and Chromium are
	npm   = filepath.Join(cache, "npm-hosts", "node_modules")
)

// arch is a processor as npm calls it.
var arch = map[string]string{"amd64": "x64", "arm64": "arm64"}

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "probe" {
		probe()
		return
	}
	if waldo == "" || cache == "" {
		fmt.Fprintln(os.Stderr, "run scripts/hosts.sh: it installs the hosts and says where they are")
		os.Exit(1)
	}
	if err := loopback(); err != nil {
		fmt.Fprintln(os.Stderr, "loopback:", err)
		os.Exit(1)
	}
	if c, err := net.DialTimeout("tcp", "1.1.1.1:443", 2*time.Second); err == nil {
		c.Close()
		fmt.Fprintln(os.Stderr, "this is not a network name space of its own: hosts would call home")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// loopback switches lo on, in a new network name space.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// host is one real host: its file's earlier content, and how to prompt it.
type host struct {
	name  string
	files map[string]string // below its home; MODEL stands for the model's address, PROBE for entry
	entry string            // of the probe itself, for a host without waldo; SELF stands for this program
	env   []string
	argv  []string
	blind []string // rows that it does not give to its model, with waldo or without
	meta  bool     // it gives its model the whole of a result with isError, _meta and so the facts with it
}

var hosts = []host{
	{name: "claude", files: map[string]string{".claude.json": `{"hasCompletedOnboarding": true, "numStartups": 1PROBE}`},
		entry: `, "mcpServers": {"probe": {"type": "stdio", "command": "SELF", "args": ["probe"]}}`,
		env: []string{
			"ANTHROPIC_BASE_URL=MODEL", "ANTHROPIC_API_KEY=scripted", "ENABLE_TOOL_SEARCH=false", "DISABLE_AUTOUPDATER=1",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		},
		argv: []string{
			"@anthropic-ai/claude-code-linux-x64/claude", "-p", "Run the tool.", "--allowedTools", "mcp__waldo__*,mcp__probe__*",
		}},
	{name: "codex",
		files: map[string]string{".codex/config.toml": "# mine\nmodel = \"scripted\"\nmodel_provider = \"scripted\" # " +
			"kept\n\n[model_providers.scripted]\nname = \"scripted\"\nbase_url = \"MODEL/v1\"\nwire_api = \"responses\"\n" +
			"env_key = \"SCRIPTED_KEY\"\nPROBE"},
		entry: "\n[mcp_servers.probe]\ncommand = \"SELF\"\nargs = [\"probe\"]\n",
		env:   []string{"SCRIPTED_KEY=x"},
		argv: []string{
			"node", "@openai/codex/bin/codex.js", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
			"Run the tool.",
		}},
	{name: "gemini",
		files: map[string]string{".gemini/settings.json": "{\n  // mine\n  \"security\": {\"auth\": {\"selectedType\": " +
			"\"gemini-api-key\"}, \"folderTrust\": {\"enabled\": false}},\n  \"privacy\": {\"usageStatisticsEnabled\": " +
			"false}PROBE\n}\n"},
		entry: `, "mcpServers": {"probe": {"command": "SELF", "args": ["probe"]}}`,
		env:   []string{"GEMINI_API_KEY=x", "GOOGLE_GEMINI_BASE_URL=MODEL", "GEMINI_CLI_TRUST_WORKSPACE=true"},
		argv: []string{
			"node", "@google/gemini-cli/bundle/gemini.js", "-m", "gemini-2.5-flash", "-p", "Run the tool.", "--yolo",
		}, meta: true},
	{name: "opencode",
		files: map[string]string{".config/opencode/opencode.json": "{\n  // mine\n  \"$schema\": " +
			"\"https://opencode.ai/config.json\",\n  \"autoupdate\": false,\n  \"model\": \"scripted/scripted\",\n" +
			"  \"provider\": {\"scripted\": {\"npm\": \"@ai-sdk/openai-compatible\", \"name\": \"scripted\", \"options\": " +
			"{\"baseURL\": \"MODEL/v1\", \"apiKey\": \"x\"}, \"models\": {\"scripted\": {\"name\": \"scripted\", " +
			"\"attachment\": true, \"modalities\": {\"input\": [\"text\", \"image\"], \"output\": [\"text\"]}}}}},PROBE\n}\n"},
		entry: `"mcp": {"probe": {"type": "local", "command": ["SELF", "probe"], "enabled": true}}`,
		env: []string{
			"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1",
			"OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		},
		argv: []string{"opencode-linux-x64/bin/opencode", "run", "Run the tool."}},
}

// The host starts waldo itself.
func TestStdio(t *testing.T) {
	for _, h := range hosts {
		t.Run(h.name, func(t *testing.T) { complete(t, h, "stdio") })
	}
}

// The host reaches a waldo that listens, with a token that stands in its environment alone.
func TestHTTP(t *testing.T) {
	for _, h := range hosts {
		t.Run(h.name, func(t *testing.T) { complete(t, h, "http") })
	}
}

// The control: the host starts the server itself. A gateway cannot show the model more than the host then shows.
func TestDirect(t *testing.T) {
	for _, h := range hosts {
		t.Run(h.name, func(t *testing.T) { complete(t, h, "direct") })
	}
}

// waldo import reads the entry that a host's own command wrote: the command, and no secret.
func TestImport(t *testing.T) {
	for name, add := range map[string][]string{
		"claude": {"@anthropic-ai/claude-code-linux-x64/claude", "mcp", "add", "-s", "user", "added", "-e",
			"API_TOKEN=hunter2-canary", "--", "/opt/added", "two words"},
		"codex": {"node", "@openai/codex/bin/codex.js", "mcp", "add", "added", "--env", "API_TOKEN=hunter2-canary", "--",
			"/opt/added", "two words"},
		"gemini": {"node", "@google/gemini-cli/bundle/gemini.js", "mcp", "add", "-s", "user", "-e",
			"API_TOKEN=hunter2-canary", "added", "/opt/added", "two words"},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			env := []string{
				"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir(), "TERM=dumb",
				"WALDO_STATE=" + filepath.Join(home, "state"),
			}
			if out, err := run(t, home, env, located(add)...); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			out, err := run(t, home, env, waldo, "import", "--from", name)
			if err != nil || !strings.Contains(out, "runs    /opt/added 'two words'") ||
				!strings.Contains(out, "secret  API_TOKEN from store:added.API_TOKEN, moved") {
				t.Errorf("%v\n%s", err, out)
			}
			if b, err := os.ReadFile(filepath.Join(home, ".config", "waldo", "waldo.yaml")); err != nil ||
				strings.Contains(string(b)+out, "hunter2") {
				t.Errorf("%v\n%s", err, b)
			}
			if out, err := run(t, home, env, waldo, "check"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// located returns a command with the place of the host in it.
func located(argv []string) []string {
	argv = slices.Clone(argv)
	for i, a := range argv[:2] {
		if strings.Contains(a, "/") {
			argv[i] = filepath.Join(npm, strings.ReplaceAll(a, "-x64/", "-"+arch[runtime.GOARCH]+"/"))
		}
	}
	return argv
}

// complete lets a host make the calls of the rows, through waldo as waldo install configured it, or directly. It
// looks for each answer in the model's input.
func complete(t *testing.T, h host, way string) {
	m := &model{said: said}
	for _, r := range rows {
		if way != "direct" || r.direct {
			m.steps = append(m.steps, step{r.tool, r.args})
		}
	}
	home, work, env := ready(t, h, way, m)
	start := time.Now()
	out, err := run(t, work, env, located(h.argv)...)
	took := time.Since(start)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || !strings.Contains(out, said) || len(m.got) != len(m.steps) {
		for _, r := range m.seen {
			t.Logf("the model was asked: %.3000s", r)
		}
		t.Fatalf("%d of %d answers, %v\n%.8000s", len(m.got), len(m.steps), err, out)
	}
	waiting := ""
	if way != "direct" {
		waiting = recorded(t, home, env)
	}
	received(t, h, way, m, waiting, took)
}

// ready puts the files of a host into a home of its own, sets waldo up for it unless it is to be asked directly, and
// has the model answer. It returns the home, the folder that the host works in, and its environment.
func ready(t *testing.T, h host, way string, m *model) (home, work string, env []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: m}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	home = t.TempDir()
	address, entry := "http://"+l.Addr().String(), ""
	if way == "direct" {
		entry = strings.ReplaceAll(h.entry, "SELF", self)
	}
	for name, text := range h.files {
		put(t, filepath.Join(home, name), strings.NewReplacer("MODEL", address, "PROBE", entry).Replace(text))
	}
	config := filepath.Join(home, "waldo", "waldo.yaml")
	env = append([]string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir(), "NO_COLOR=1", "TERM=dumb",
		"WALDO_STATE=" + filepath.Join(home, "state"), "WALDO_CONFIG=" + config,
	}, h.env...)
	for i := range env {
		env[i] = strings.ReplaceAll(env[i], "MODEL", address)
	}
	if way != "direct" {
		env = install(t, h, way == "http", home, config, self, env)
	}
	work = filepath.Join(home, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	return home, work, env
}

// install sets a host up, as a person would, and returns the environment that it is started with.
func install(t *testing.T, h host, listen bool, home, config, self string, env []string) []string {
	contracts := "version: 1\nservers:\n  helpdesk: {command: [" + waldo + ", helpdesk]}\n  probe: {command: [" + self +
		", probe]}\ncapabilities:\n" +
		"  run_python: {transport: sandboxed_exec, mode: high_risk, isolation: namespace, approval: none}\n" +
		"  helpdesk.list_customers: {transport: mcp, mode: read, approval: none}\n  probe.*: {transport: mcp, mode: read, " +
		"approval: none}\n  probe.probe_wait: {transport: mcp, mode: write, approval: always}\n  probe.probe_deny: " +
		"{transport: mcp, mode: read, approval: none, rules: [{when: \"args.n > 0.0\", deny: true, reason: \"" +
		reason + "\"}]}\n"
	put(t, config, contracts)
	var flags []string
	if listen {
		token, hash := token(t, home, env)
		put(t, config, contracts+"gateway: {auth: {tokens: {"+h.name+": "+hash+"}}}\n")
		flags = []string{"--url", serve(t, home, env), "--token-env", "SCRIPTED_TOKEN"}
		env = append(env, "SCRIPTED_TOKEN="+token)
	}
	for range 2 { // the second time changes nothing
		if out, err := run(t, home, env, append([]string{waldo, "install", h.name}, flags...)...); err != nil {
			t.Fatalf("waldo install: %v\n%s", err, out)
		}
	}
	return env
}

// recorded looks for the calls in the log, and returns the id of the approval that one of them waits for.
func recorded(t *testing.T, home string, env []string) string {
	log, err := run(t, home, env, waldo, "log", "--json")
	for _, name := range []string{`"run_python"`, `"helpdesk.list_customers"`, `"probe.probe_say"`} {
		if err != nil || !strings.Contains(log, name) {
			t.Errorf("the log has no %s: %v\n%.4000s", name, err, log)
		}
	}
	if out, err := run(t, home, env, waldo, "log", "verify"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	// The list of waiting calls is empty once the waldo of a host over stdio has ended.
	waiting := regexp.MustCompile(`a_[a-z2-7]{26}`).FindString(log)
	if waiting == "" {
		t.Errorf("no call waits for an approval:\n%.4000s", log)
	}
	return waiting
}

// received compares the model's input with each row, and checks that it holds no facts, which cost tokens.
func received(t *testing.T, h host, way string, m *model, waiting string, took time.Duration) {
	i := 0
	var told []string
	for _, r := range rows {
		if way == "direct" && !r.direct {
			continue
		}
		got, want := m.got[i], r.want
		i++
		if want == "" {
			want = waiting
		}
		shown := strings.Contains(got, want)
		if r.name == "image" {
			shown = pictured(got, want)
		}
		blind := slices.Contains(h.blind, r.name)
		switch {
		case shown && way == "direct" && blind:
			t.Errorf("%s: %s shows its model this without waldo: %.3000s", r.name, h.name, got)
		case !shown && !blind && (way != "direct" || r.name != "structured alone"): // of waldo's own, hosts differ
			t.Errorf("%s: the model of %s did not receive %q, but: %.3000s", r.name, h.name, want, got)
		}
		noError := r.name != "error" && r.name != "approval" && r.name != "denial"
		if (noError || !h.meta) && (strings.Contains(got, "waldo/facts") || strings.Contains(got, "side_effect")) {
			t.Errorf("%s: the model of %s received facts: %.3000s", r.name, h.name, got)
		}
		told = append(told, fmt.Sprintf("%s %s (%d)", r.name, map[bool]string{true: "yes", false: "NO"}[shown], len(got)))
	}
	t.Logf("%s, %s, %.1f s: the model received (bytes): %s", h.name, way, took.Seconds(), strings.Join(told, ", "))
}

// token makes a token for a client, and the hash of it for waldo.yaml.
func token(t *testing.T, dir string, env []string) (token, hash string) {
	t.Helper()
	out, err := run(t, dir, env, waldo, "token", "host", "--json")
	var v struct{ Token, Hash string }
	if err == nil {
		err = json.Unmarshal([]byte(out), &v)
	}
	if err != nil || v.Token == "" {
		t.Fatalf("waldo token: %v\n%s", err, out)
	}
	return v.Token, v.Hash
}

// serve starts a waldo that listens, for as long as the test takes, and returns its address.
func serve(t *testing.T, dir string, env []string) string {
	t.Helper()
	cmd := exec.Command(waldo, "serve", "--listen", "127.0.0.1:0")
	cmd.Dir, cmd.Env = dir, env
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if _, address, ok := strings.Cut(lines.Text(), "listening on "); ok {
			go func() { _, _ = io.Copy(io.Discard, said) }()
			return address
		}
	}
	t.Fatal("waldo serve --listen did not say where")
	return ""
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, dir string, env []string, argv ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, env, 5*time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}
