package launch

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/config"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/network/egress"
)

// TestProfiles: each profile is complete, its lines are what egress reads, and its seeds are what the host reads.
func TestProfiles(t *testing.T) {
	if got := strings.Join(Names(), " "); got != "claude codex gemini opencode" {
		t.Fatal(got)
	}
	for _, name := range Names() {
		p, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Program == "" || p.Package == "" || p.OwnSandbox == "" || len(p.Allow) == 0 || len(p.Off) == 0 ||
			compare(p.Tested.From, p.Tested.Below) >= 0 || p.Credentials[p.Login].Host == "" {
			t.Errorf("%s: %+v", name, p)
		}
		for _, lines := range [][]string{p.Allow, p.LoginAllow, p.Off} {
			if _, err := egress.ParseRules(lines); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, line := range p.Allow { // whole hosts are for nobody
			if !strings.Contains(line, "/") || strings.HasSuffix(line, ".com/*") {
				t.Errorf("%s allows all of a host: %s", name, line)
			}
		}
		h := home{dir: t.TempDir(), person: t.TempDir(), words: map[string]string{"project": `/a "b"`, "waldo": waldoAt,
			"tail": "tail", "session": sessionAt, "home": homeAt}}
		if err := h.seed(p); err != nil {
			t.Error(err)
		}
	}
	if _, err := Find("../claude"); err == nil {
		t.Error("a path is no host")
	}
}

// TestVersions: the range has its lower end, and not its upper.
func TestVersions(t *testing.T) {
	v := Versions{"2.1.100", "2.3.0"}
	for version, want := range map[string]bool{"2.1.100": true, "2.2.9": true, "2.1.99": false, "2.3.0": false, "2.2": true,
		"": false, "x": false, "3": false, "2.3.0-beta": false} {
		if v.Has(version) != want {
			t.Errorf("%q: %v", version, !want)
		}
	}
}

// TestSettings: of the person's settings only named keys go along, never what runs a program; what the host wrote into
// its home stays; and nothing is written through a link that a session left.
func TestSettings(t *testing.T) {
	p, err := Find("claude")
	if err != nil {
		t.Fatal(err)
	}
	person, dir := t.TempDir(), t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(person, ".claude/settings.json"), `{"model": "opus", "apiKeyHelper": "evil", "env": {"A": "evil"},
		"hooks": {"Stop": ["evil"]}, "statusLine": {"command": "evil"}, "mcpServers": {"x": {"command": "evil"}}}`)
	put(filepath.Join(person, ".claude/CLAUDE.md"), "mine")
	put(filepath.Join(person, ".claude/agents/a.md"), "agent")
	put(filepath.Join(person, ".claude/agents/run.sh"), "evil")
	if err := os.Chmod(filepath.Join(person, ".claude/agents/run.sh"), 0o700); err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(t.TempDir(), "victim")
	put(victim, "untouched")
	put(filepath.Join(dir, ".claude.json"), `{"history": 3, "mcpServers": {"planted": {"command": "evil"}}}`)
	if err := os.MkdirAll(filepath.Join(dir, ".claude"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(dir, ".claude/settings.json")); err != nil {
		t.Fatal(err)
	}
	h := home{dir: dir, person: person, words: map[string]string{"project": "/p", "tail": "last20"}}
	if err := h.seed(p); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string { b, _ := os.ReadFile(filepath.Join(dir, name)); return string(b) }
	settings, state := read(".claude/settings.json"), read(".claude.json")
	if !strings.Contains(settings, `"model": "opus"`) || strings.Contains(settings+state, "evil") {
		t.Errorf("settings: %s\nstate: %s", settings, state)
	}
	if !strings.Contains(state, `"history": 3`) || !strings.Contains(state, "last20") {
		t.Errorf("state: %s", state)
	}
	if read(".claude/CLAUDE.md") != "mine" || read(".claude/agents/a.md") != "agent" || read(".claude/agents/run.sh") != "" {
		t.Error("what is copied")
	}
	if b, _ := os.ReadFile(victim); string(b) != "untouched" {
		t.Error("the seed was written through a link")
	}
}

// TestTOML: lines of a TOML file go along where they are whole and of a kept key.
func TestTOML(t *testing.T) {
	person := t.TempDir()
	text := "model = \"o9\" \nnotify = [\"evil\"]\nmodel_provider = \"evil\"\nmodel_verbosity = \"\"\"\npersonality = 3\n" +
		"[mcp_servers.x]\nmodel = \"evil\"\n"
	if err := os.WriteFile(filepath.Join(person, "c.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := home{person: person}.lines(Seed{From: "c.toml", Keep: []string{"model", "model_verbosity", "personality"}})
	if got != "model = \"o9\"\npersonality = 3" {
		t.Errorf("%q", got)
	}
}

// TestPlaceholders: no two are the same, and a JWT is one that has not expired.
func TestPlaceholders(t *testing.T) {
	a, b := placeholder("sk-ant-api03-"), placeholder("sk-ant-api03-")
	if a == b || !strings.HasPrefix(a, "sk-ant-api03-") || len(a) < 60 {
		t.Error(a, b)
	}
	parts := strings.Split(placeholder("jwt"), ".")
	if len(parts) != 3 {
		t.Fatal(parts)
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	var c struct{ Exp int64 }
	if err != nil || json.Unmarshal(claims, &c) != nil || c.Exp < 3_000_000_000 {
		t.Errorf("%s: %v", claims, err)
	}
}

// TestCredential: a key of the environment, or the token of a login, goes into requests; the sandbox's variable and every
// other of the same key hold the placeholder.
func TestCredential(t *testing.T) {
	for _, v := range []string{"ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY", "CODEX_ACCESS_TOKEN",
		"GEMINI_API_KEY", "GOOGLE_CLOUD_ACCESS_TOKEN"} {
		t.Setenv(v, "")
	}
	const real = "sk-ant-oat01-9f3kQz7Lw2Xv8Bn4Tc6Rj1Ys5Hd0Pm"
	make := func(host, person string, cfg *contract.Config) plan {
		t.Helper()
		profile, err := Find(host)
		if err != nil {
			t.Fatal(err)
		}
		p := plan{asked: asked{profile: profile, person: person}, secrets: map[string]contract.Secret{}}
		if err := p.contractOf(cfg); err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := make("claude", t.TempDir(), config.Default()); p.key != "" || len(p.secrets) != 0 {
		t.Errorf("no key at all: %+v", p.secrets)
	}
	person := t.TempDir()
	put(t, filepath.Join(person, ".claude/.credentials.json"), `{"claudeAiOauth": {"accessToken": "`+real+`"}}`)
	p := make("claude", person, config.Default())
	s := p.secrets["launch.claude"]
	if p.key != "CLAUDE_CODE_OAUTH_TOKEN" || !slices.Contains(s.Spec.Command, "--token") || s.Inject.As != "bearer" ||
		!strings.HasPrefix(s.Inject.Placeholder, "sk-ant-oat01-") || strings.Contains(s.Inject.Placeholder, "9f3kQz") {
		t.Errorf("a login: %q %+v", p.key, s)
	}
	for _, f := range []struct{ host, name, text, key, auth string }{
		{"gemini", ".gemini/oauth_creds.json", `{"access_token": "` + real + `"}`, "GOOGLE_CLOUD_ACCESS_TOKEN", "oauth-personal"},
		{"opencode", ".local/share/opencode/auth.json", `{"openai": {"type": "api", "key": "` + real + `"}}`, "OPENAI_API_KEY", ""},
	} {
		none := make(f.host, person, config.Default()) // the control
		put(t, filepath.Join(person, f.name), f.text)
		p := make(f.host, person, config.Default())
		s := p.secrets["launch."+f.host]
		if none.key != "" || p.key != f.key || p.words()["auth"] != f.auth || len(s.Spec.Command) != 5 || s.Spec.Command[4] != f.key {
			t.Errorf("%s: %q %q %q %+v", f.host, none.key, p.key, p.words()["auth"], s)
		}
		if !slices.Equal(p.profile.LoginAllow, p.contract.Network.Allow[len(p.profile.Allow):]) {
			t.Errorf("%s: %q", f.host, p.contract.Network.Allow)
		}
	}
	if p := make("gemini", t.TempDir(), config.Default()); p.words()["auth"] != "gemini-api-key" || p.contract.Env["GOOGLE_GENAI_USE_GCA"] != "" {
		t.Errorf("without a login: %v", p.words())
	}
	t.Setenv("OPENAI_API_KEY", real)
	p = make("codex", person, config.Default())
	s = p.secrets["launch.codex"]
	if p.key != "OPENAI_API_KEY" || s.Spec.From != "env:OPENAI_API_KEY" ||
		p.contract.Env["CODEX_API_KEY"] != s.Inject.Placeholder {
		t.Errorf("a key: %q %+v %v", p.key, s, p.contract.Env)
	}
	if text, err := json.Marshal(p.contract); err != nil || strings.Contains(string(text), real) {
		t.Errorf("the contract holds the key: %v", err)
	}
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestOffer: servers of the host's own configuration are named, so that the person takes them over.
func TestOffer(t *testing.T) {
	for _, row := range []struct {
		host, file, text string
		want             bool
	}{
		{"claude", ".claude.json", `{"mcpServers": {"x": {"command": "x"}}}`, true},
		{"claude", ".claude.json", `{"mcpServers": {}}`, false},
		{"codex", ".codex/config.toml", "[mcp_servers.x]\ncommand = \"x\"\n", true},
		{"codex", ".codex/config.toml", "model = \"o9\"\n", false},
		{"opencode", ".config/opencode/opencode.json", `{"mcp": {"x": {}}}`, true},
	} {
		profile, err := Find(row.host)
		if err != nil {
			t.Fatal(err)
		}
		person := t.TempDir()
		name := filepath.Join(person, row.file)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		text := plan{asked: asked{profile: profile, person: person}}.offer()
		if strings.Contains(text, "waldo import --from "+row.host) != row.want {
			t.Errorf("%s: %q", row.text, text)
		}
	}
}

// TestSealsPolicy: the file that names the witnesses is sealed in the project, whatever its name, and where it links to.
func TestSealsPolicy(t *testing.T) {
	project, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	linked := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Mkdir(filepath.Join(project, "conf"), 0o700), os.Symlink(project, linked),
		os.WriteFile(filepath.Join(project, "conf", "w[1]"), nil, 0o600),
		os.Symlink("conf/w[1]", filepath.Join(project, "witnesses"))); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		policy string
		want   []string
	}{
		{"", nil}, // the control
		{filepath.Join(t.TempDir(), "elsewhere"), nil},
		{filepath.Join(project, "conf/w[1]"), []string{"conf/w[1]"}},
		{filepath.Join(linked, "conf/w[1]"), []string{"conf/w[1]"}},
		{filepath.Join(project, "witnesses"), []string{"conf/w[1]", "witnesses"}},
	} {
		cfg := config.Default()
		cfg.Log.Policy = row.policy
		p := plan{asked: asked{project: project}, secrets: map[string]contract.Secret{}}
		if err := errors.Join(p.contractOf(cfg), p.look()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.sealed, row.want) {
			t.Errorf("%q: sealed %q, want %q", row.policy, p.sealed, row.want)
		}
	}
	p := plan{asked: asked{project: project}}
	if got := p.sealing(filepath.Join(project, "later")); !slices.Equal(got, []string{"later"}) {
		t.Errorf("a file that is not there yet: %q", got)
	}
}

// TestWorktree: a linked working tree brings its repository only where each leads to the other. A file .git alone can
// name any repository.
func TestWorktree(t *testing.T) {
	for _, c := range []struct {
		why, file, text string // a file that is not as git writes it
		want            bool
	}{
		{why: "control", want: true},
		{why: "relative paths", file: "tree/.git", text: "gitdir: ../main/.git/worktrees/w", want: true},
		{why: "leads back elsewhere", file: "main/.git/worktrees/w/gitdir", text: "DIR/other/.git"},
		{why: "leads back nowhere", file: "main/.git/worktrees/w/gitdir"},
		{why: "of another repository", file: "main/.git/worktrees/w/commondir", text: "../../../../other/.git"},
		{why: "a submodule", file: "tree/.git", text: "gitdir: DIR/main/.git/modules/w"},
		{why: "the repository itself", file: "tree/.git", text: "gitdir: DIR/main/.git"},
		{why: "through a link", file: "tree/.git", text: "gitdir: DIR/link/.git/worktrees/w"},
		{why: "the home's", file: "tree/.git", text: "gitdir: DIR/home/.git/worktrees/w"},
	} {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("HOME", filepath.Join(dir, "home"))
		put := func(name, text string) {
			at := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755),
				os.WriteFile(at, []byte(strings.ReplaceAll(text, "DIR", dir)+"\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		for _, repo := range []string{"main/.git/", "home/.git/", "main/.git/modules/"} {
			put(repo+"worktrees/w/gitdir", "DIR/tree/.git")
			put(repo+"worktrees/w/commondir", "../..")
		}
		put("tree/.git", "gitdir: DIR/main/.git/worktrees/w")
		put("main/.git/hooks/pre-commit", "x")
		if err := os.Symlink(filepath.Join(dir, "main"), filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		if c.file != "" {
			put(c.file, c.text)
		}
		p, err := prepare(asked{project: filepath.Join(dir, "tree"), command: "sh"}, t.TempDir(), config.Default())
		if err = errors.Join(err, p.look()); err != nil {
			t.Fatal(err)
		}
		common := filepath.Join(dir, "main/.git")
		mounted := slices.ContainsFunc(p.contract.Mounts, func(m contract.Mount) bool {
			return m.From == common && m.Writable
		})
		shown := slices.ContainsFunc(p.rows(), func(r row) bool {
			return r.Name == "writes" && strings.Contains(r.Text, common)
		})
		sealed := slices.Contains(p.sealed, filepath.Join(common, "hooks"))
		if mounted != c.want || shown != c.want || sealed != c.want || !c.want && len(p.contract.Mounts) > 1 {
			t.Errorf("%s: %+v", c.why, p.contract.Mounts)
		}
	}
}

// TestLaunchAsks: what the configuration's contract for launch asks for before it acts is asked for.
func TestLaunchAsks(t *testing.T) {
	for _, want := range []contract.Contract{{}, {Witness: true}, {Confirm: true}} { // the first is the control
		cfg := config.Default()
		want.Pattern = call.Launch
		cfg.Contracts = append(cfg.Contracts, want)
		p := plan{asked: asked{project: t.TempDir()}, secrets: map[string]contract.Secret{}}
		if err := p.contractOf(cfg); err != nil || p.contract.Witness != want.Witness || p.contract.Confirm != want.Confirm {
			t.Errorf("witness %v, confirm %v, want %v and %v (%v)", p.contract.Witness, p.contract.Confirm, want.Witness,
				want.Confirm, err)
		}
	}
}

// TestLaunchLevel: a level that the configuration names is not replaced by another; the run then refuses one that cannot
// hold a project. Without one it is the usual.
func TestLaunchLevel(t *testing.T) {
	for text, want := range map[string]string{"isolation: gvisor": "gvisor", "isolation: confined": "confined", "mode: write": "namespace"} {
		cfg, problems := config.Parse("waldo.yaml", []byte("version: 1\ncapabilities:\n  launch: {approval: none, mode: write, "+
			strings.TrimPrefix(text, "mode: write")+"}\n"))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		p := plan{asked: asked{project: t.TempDir()}, secrets: map[string]contract.Secret{}}
		if err := p.contractOf(cfg); err != nil || p.contract.Isolation != want {
			t.Errorf("%s: isolation %s, %v", text, p.contract.Isolation, err)
		}
	}
}

// TestStart: what waldo init writes for each host is sound, names its requests, and adds nothing to its profile. So is it
// with each line that a person can take the # from.
func TestStart(t *testing.T) {
	for _, name := range Names() {
		text, next, err := startOf(name, "/a folder")
		if err != nil || next == "" || strings.Contains(string(text), "HOST") || strings.Contains(string(text), "TITLE") {
			t.Errorf("%s: %s %v", name, text, err)
		}
		p, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range slices.Concat(p.Allow, p.LoginAllow) {
			if !strings.Contains(string(text), "\n  #   "+line+"\n") {
				t.Errorf("%s has no line %q", name, line)
			}
		}
		more := string(text)
		for _, key := range []string{"packages", "network", "protect", "env", "fetch"} {
			if more = strings.Replace(more, "# "+key+": ", key+": ", 1); !strings.Contains(more, "  "+key+": ") {
				t.Errorf("%s has no %s", name, key)
			}
		}
		for _, text := range []string{string(text), more} {
			cfg, problems := config.Parse("waldo.yaml", []byte(text))
			if len(problems) > 0 || len(cfg.Warnings) > 0 {
				t.Fatalf("%s: %v %v\n%s", name, problems, cfg, text)
			}
			a := plan{asked: asked{profile: p, project: "/a folder"}, secrets: map[string]contract.Secret{}}
			if err := a.contractOf(cfg); err != nil {
				t.Fatal(err)
			}
			if own := len(a.contract.Network.Allow) == len(p.Allow); own != (text != more) || a.contract.Denied || a.contract.BuiltIn {
				t.Errorf("%s: %+v", name, a.contract)
			}
		}
	}
	if _, _, err := startOf("../claude", "x"); err == nil {
		t.Error("a path is no host")
	}
}
