package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/budget"
	"waldo/internal/core/grant"
	"waldo/internal/core/policy"
	"waldo/internal/core/redact"
	"waldo/internal/executor/admit"
	"waldo/internal/executor/commands"
	"waldo/internal/executor/keyfiles"
	"waldo/internal/executor/sandboxegress"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/model/secret"
	"waldo/internal/network/egress"
	"waldo/internal/sandbox"
	"waldo/internal/storage/workspace"
)

// fake is a driver that starts nothing and records its arguments.
type fake struct {
	name    string
	fails   error // of Start
	runs    error // of Run
	facts   facts.Facts
	leaves  map[string]string // files in /workspace/output at the end
	profile sandbox.Profile
	command sandbox.Command
	stdin   string
	started int
	closed  int
}

func (d *fake) Name() string                         { return d.name }
func (d *fake) Probe(context.Context) sandbox.Report { return sandbox.Report{} }

func (d *fake) Start(_ context.Context, p sandbox.Profile) (sandbox.Sandbox, error) {
	d.started++
	d.profile = p
	if d.fails != nil {
		return nil, d.fails
	}
	return d, nil
}

func (d *fake) Run(_ context.Context, c sandbox.Command) (facts.Facts, error) {
	d.command = c
	if c.Stdin != nil {
		b, _ := io.ReadAll(c.Stdin)
		d.stdin = strings.ReplaceAll(string(b), "\x00", "") // separates words, and pads a job
	}
	f := d.facts
	if f.Status == "" {
		f = facts.New()
		f.Status = facts.OK
		f.SideEffect = facts.Confirmed // a driver's word on it counts for nothing
	}
	for n := range d.leaves {
		f.Files.Written = append(f.Files.Written, "/workspace/output/"+n)
	}
	return f, d.runs
}

func (d *fake) Abilities() sandbox.Abilities { return sandbox.Abilities{} }
func (d *fake) Export(target, dir string) ([]string, error) {
	if target != "/workspace/output" {
		return nil, errors.New("not exported")
	}
	var names []string
	for n, text := range d.leaves {
		names = append(names, n)
		if err := os.WriteFile(filepath.Join(dir, n), []byte(text), 0o600); err != nil {
			return names, err
		}
	}
	return append(names, "old"), nil // one that was there before and was not written
}

func (d *fake) Close() error { d.closed++; return nil }

var limits = sandbox.Limits{
	Wall: 30 * time.Second, CPU: 10 * time.Second, Memory: 512 << 20, Pids: 64, Files: 64,
	Disk: 256 << 20, Inodes: 20_000, Output: 200 << 10,
}

func worker(d *fake) *Runner {
	return &Runner{Drivers: map[string]sandbox.Driver{"namespace": d}, Auto: "namespace", Default: limits, Most: limits,
		Work: admit.Own(), Means: &means{}, Known: &redact.Registry{}}
}

// allowed makes a grant for a call that is allowed.
func allowed(
	t testing.TB, capability call.Capability, args string, change ...func(*contract.Contract),
) (*grant.Grant, policy.Decision) {
	t.Helper()
	a, err := call.ParseArgs([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	d := policy.Decision{Danger: 3,
		ID: id.New(id.Decision), Effect: policy.Allow,
		Call: call.Call{ID: id.New(id.Call), Capability: capability, Args: a, Session: "n_1", Principal: "os:1", Depth: 2},
	}
	for _, f := range change {
		f(&d.Contract)
	}
	g, why := grant.Issue(d, nil, a)
	if why != nil {
		t.Fatal(why)
	}
	return g, d
}

func TestAGrantRunsOnce(t *testing.T) {
	d := &fake{}
	r := worker(d)
	g, _ := allowed(t, "exec", `{"argv":["true"]}`)
	out, err := r.Execute(context.Background(), g)
	if err != nil {
		t.Fatal("control:", err)
	}
	if !out.Structured.IsZero() {
		t.Errorf("a run gave a structure: %s", out.Structured.Raw())
	}
	if _, err := r.Execute(context.Background(), g); !errors.Is(err, grant.ErrSpent) || d.started != 1 {
		t.Errorf("%v, %d sandboxes", err, d.started)
	}
	if _, err := r.Execute(context.Background(), new(grant.Grant)); !errors.Is(err, grant.ErrSpent) {
		t.Errorf("a zero grant: %v", err)
	}
}

func TestProfile(t *testing.T) {
	d := &fake{}
	g, _ := allowed(t, "run_python", `{"code":"print(1)"}`)
	if _, err := worker(d).Execute(context.Background(), g); err != nil {
		t.Fatal(err)
	}
	p := d.profile
	if !id.Is(id.Sandbox, p.ID) || p.Template.Name != "host" || len(p.Network.Hosts) != 0 || len(p.Mounts) != 0 ||
		p.Limits != limits {
		t.Errorf("%+v", p)
	}
	for _, m := range p.Tmpfs {
		if m.Bytes != limits.Disk || m.Inodes != limits.Inodes || m.Export != (m.Target == target(workspace.Output)) || m.Seed != "" {
			t.Errorf("%+v", m)
		}
	}
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/workspace/tmp", "TMPDIR=/workspace/tmp", "LANG=C.UTF-8"}
	if !slices.Equal(d.command.Env, env) || d.command.Bridge != nil || d.closed != 1 {
		t.Errorf("env %q, bridge %v, closed %d", d.command.Env, d.command.Bridge, d.closed)
	}
	if !strings.HasSuffix(d.stdin, "print(1)") ||
		slices.ContainsFunc(d.command.Argv, func(a string) bool { return strings.Contains(a, "print(1)") }) {
		t.Errorf("the script did not enter through stdin alone: %q", d.command.Argv)
	}
}

func TestRefusedBeforeAnythingStarts(t *testing.T) {
	files := func(c *contract.Contract) { c.Filesystem = contract.WorkspaceOnly }
	for _, row := range []struct {
		why, capability, args, code string
		change                      func(*contract.Contract)
	}{
		{"no code", "run_python", `{}`, "args.invalid", nil},
		{"code that is no text", "run_python", `{"code":7}`, "args.invalid", nil},
		{"a script over the limit", "run_python", `{"code":"` + strings.Repeat("x", 1<<20+1) + `"}`, "args.invalid", nil},
		{"args that are no texts", "run_python", `{"code":"","args":[1]}`, "args.invalid", nil},
		{"no command", "run_shell", `{}`, "args.invalid", nil},
		{"a command over the limit", "run_shell", `{"command":"` + strings.Repeat("x", MaxCommand+1) + `"}`,
			"args.invalid", nil},
		{"a command with NUL", "run_shell", `{"command":"a\u0000b"}`, "args.invalid", nil},
		{"no argv", "exec", `{}`, "args.invalid", nil},
		{"an empty program", "exec", `{"argv":[""]}`, "args.invalid", nil},
		{"a NUL in argv", "exec", `{"argv":["a","b\u0000"]}`, "args.invalid", nil},
		{"a program under a capability that names none", "tools.any", `{"argv":["ls"]}`, "program.denied", nil},
		{"a program that the contract does not name", "cli", `{"argv":["rm"]}`, "program.denied",
			func(c *contract.Contract) { c.Programs = []string{"ls"} }},
		{"exec narrowed to named programs", "exec", `{"argv":["rm"]}`, "program.denied",
			func(c *contract.Contract) { c.Programs = []string{"ls"} }},
		{"a level that is not there", "exec", `{"argv":["ls"]}`, "isolation.absent",
			func(c *contract.Contract) { c.Isolation = "gvisor" }},
		{"files without a workspace", "run_python", `{"code":"","files":{"a":"b"}}`, "files.denied", nil},
		{"a file above the folder", "run_python", `{"code":"","files":{"../a":"b"}}`, "args.invalid", files},
		{"an absolute file", "run_python", `{"code":"","files":{"/etc/a":"b"}}`, "args.invalid", files},
		{"more files than may come", "run_python", `{"code":"","files":{` + many(MaxFiles+1) + `}}`, "args.invalid", files},
		{"files into a folder of the operator's", "run_python", `{"code":"","files":{"a":"b"}}`, "files.denied",
			func(c *contract.Contract) {
				c.Filesystem, c.Input = contract.WorkspaceOnly, t.TempDir()
			}},
		{"a folder that cannot be looked through", "run_python", `{"code":""}`, "input.keys",
			func(c *contract.Contract) { c.Input = crowded(t) }},
		{"a file of two kinds", "run_python", `{"code":"","files":{"a":{"base64":"YQ==","x":"y"}}}`, "args.invalid", files},
		{"a file that is not base64", "run_python", `{"code":"","files":{"a":{"base64":"*"}}}`, "args.invalid", files},
		{"a session that is no text", "run_python", `{"code":"","session":7}`, "args.invalid", nil},
		{"a session without a name", "run_python", `{"code":"","session":""}`, "args.invalid", nil},
		{"a session with a path", "run_python", `{"code":"","session":"../a"}`, "args.invalid", nil},
		{"a session with a long name", "run_python", `{"code":"","session":"` + strings.Repeat("a", maxNameOfOne+1) + `"}`,
			"args.invalid", nil},
	} {
		t.Run(row.why, func(t *testing.T) {
			d := &fake{}
			r := worker(d)
			dir := t.TempDir()
			r.Means.(*means).workspace = func(call.Session) (*workspace.Workspace, error) {
				return workspace.Open(dir, id.New(id.Workspace))
			}
			change := func(*contract.Contract) {}
			if row.change != nil {
				change = row.change
			}
			g, _ := allowed(t, call.Capability(row.capability), row.args, change)
			out, err := r.Execute(context.Background(), g)
			if err != nil || !out.IsError || out.Facts.Status != facts.Denied || out.Facts.SideEffect != facts.None ||
				d.started != 0 {
				t.Fatalf("%v; %+v; %d sandboxes", err, out, d.started)
			}
			if w := out.Facts.Warnings; len(w) != 1 || !strings.HasPrefix(w[0], row.code+": ") {
				t.Errorf("reasons %q, want %s", w, row.code)
			}
		})
	}
	d := &fake{}
	g, _ := allowed(t, "cli", `{"argv":["ls","-l"]}`, func(c *contract.Contract) { c.Programs = []string{"ls"} })
	w := worker(d)
	w.Commands = commands.Find([]string{"ls"})
	if out, err := w.Execute(context.Background(), g); err != nil || out.IsError || d.started != 1 {
		t.Errorf("control: %v %+v", err, out)
	}
}

// crowded is a folder with more names of keys than are hidden.
func crowded(t *testing.T) string {
	dir := t.TempDir()
	for i := range keyfiles.MaxFound + 1 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(".env.", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestIsolationIsNeverWeakened(t *testing.T) {
	r := &Runner{
		Auto: "namespace", Drivers: map[string]sandbox.Driver{
			"namespace": &fake{name: "namespace"}, "gvisor": &fake{name: "gvisor"},
		},
	}
	for _, row := range []struct{ why, contract, asked, want string }{
		{"nobody says", "", "", "namespace"},
		{"auto means the same", "auto", "auto", "namespace"},
		{"the contract says", "gvisor", "", "gvisor"},
		{"the contract leaves it open", "auto", "gvisor", "gvisor"},
		{"both say the same", "gvisor", "gvisor", "gvisor"},
		{"the caller cannot weaken it", "gvisor", "namespace", "isolation.contract"},
		{"nor choose another", "namespace", "gvisor", "isolation.contract"},
		{"a level that is missing has no stand-in", "microvm", "", "isolation.absent"},
		{"nor when it is asked for", "", "microvm", "isolation.absent"},
	} {
		d, why := r.driver(row.contract, row.asked)
		got := ""
		if why != nil {
			got = why.Code
		} else {
			got = d.Name()
		}
		if got != row.want {
			t.Errorf("%s: %s, want %s", row.why, got, row.want)
		}
	}
}

func TestLimitsOnlyNarrow(t *testing.T) {
	most := limits
	most.Wall = time.Minute
	for _, row := range []struct {
		why      string
		asked    sandbox.Limits
		contract time.Duration
		want     func(*sandbox.Limits)
	}{
		{"nothing asked is the default", sandbox.Limits{}, 0, func(*sandbox.Limits) {}},
		{"less is less", sandbox.Limits{Memory: 1 << 20, Pids: 2, CPU: time.Second}, 0,
			func(l *sandbox.Limits) { l.Memory, l.Pids, l.CPU = 1<<20, 2, time.Second }},
		{
			"more is cut", sandbox.Limits{
				Memory: 1 << 40, Disk: 1 << 40, Output: 1 << 40, Files: 1 << 20, Inodes: 1 << 30, Pids: 1 << 20, CPU: time.Hour,
			}, 0, func(*sandbox.Limits) {},
		},
		{"less than nothing is nothing asked", sandbox.Limits{Memory: -1, Wall: -1}, 0, func(*sandbox.Limits) {}},
		{"the contract's timeout stands for the default", sandbox.Limits{}, 45 * time.Second,
			func(l *sandbox.Limits) { l.Wall = 45 * time.Second }},
		{"and ends at the most", sandbox.Limits{}, time.Hour, func(l *sandbox.Limits) { l.Wall = time.Minute }},
		{"what is asked stays under the contract's", sandbox.Limits{Wall: 50 * time.Second}, 8 * time.Second,
			func(l *sandbox.Limits) { l.Wall = 8 * time.Second }},
		{"or is less", sandbox.Limits{Wall: 5 * time.Second}, 8 * time.Second,
			func(l *sandbox.Limits) { l.Wall = 5 * time.Second }},
	} {
		want := limits
		row.want(&want)
		if got := narrow(row.asked, limits, most, row.contract); got != want {
			t.Errorf("%s: %+v, want %+v", row.why, got, want)
		}
	}
	if got := narrow(sandbox.Limits{Wall: time.Hour, Memory: 1}, sandbox.Limits{}, sandbox.Limits{},
		time.Hour); got != (sandbox.Limits{}) {
		t.Errorf("a runner without limits gave %+v", got)
	}
}

func TestAMissingInterpreterIsSaid(t *testing.T) {
	saved := interpreters["python"]
	interpreters["python"] = []string{"/usr/bin/no-such-python"}
	defer func() { interpreters["python"] = saved }()
	d := &fake{}
	g, _ := allowed(t, "run_python", `{"code":""}`)
	out, err := worker(d).Execute(context.Background(), g)
	if err != nil || d.started != 0 || out.Facts.ExitCode == nil || *out.Facts.ExitCode != 127 ||
		out.Facts.Status != facts.Failed ||
		!strings.Contains(out.Content[0].Text, "hint: install python3") {
		t.Errorf("%v %+v", err, out)
	}
}

func TestSideEffects(t *testing.T) {
	for _, row := range []struct {
		why    string
		bell   facts.SideEffect
		noBell bool
		hosts  []string
		err    error
		want   facts.SideEffect
	}{
		{"a sandbox without bridge and network reaches nothing", 0, true, nil, nil, facts.None},
		{"the bridge says none", facts.None, false, nil, nil, facts.None},
		{"the bridge says confirmed", facts.Confirmed, false, nil, nil, facts.Confirmed},
		{"the bridge does not know", facts.Unknown, false, nil, nil, facts.Unknown},
		{"what went over a network nobody knows", facts.None, false, []string{"a.example"}, nil, facts.Unknown},
		{"a run that waldo lost nobody knows", facts.None, false, nil, errors.New("lost"), facts.Unknown},
	} {
		d := &fake{runs: row.err}
		r := worker(d)
		if !row.noBell {
			r.Bridge = bridged(func(
				_ context.Context, run call.Call, conn net.Conn, _ *call.Suspension,
			) func() facts.SideEffect {
				if run.Session != "n_1" || run.Depth != 2 {
					t.Errorf("the bridge serves %+v", run)
				}
				return func() facts.SideEffect { _ = conn.Close(); return row.bell }
			})
		}
		r.Means.(*means).egress = func(_ policy.Decision, n contract.Network) (*sandboxegress.Egress, error) {
			rules, err := egress.ParseRules(n.Allow)
			if err != nil {
				return nil, err
			}
			s, err := egress.NewServer(&egress.Dialer{Policy: &egress.Policy{Rules: rules}}, egress.Options{})
			return &sandboxegress.Egress{Server: s, Hosts: n.Allow}, err
		}
		g, dec := allowed(t, "run_python", `{"code":""}`, func(c *contract.Contract) { c.Network.Allow = row.hosts })
		out, err := r.Execute(context.Background(), g)
		if (err != nil) != (row.err != nil) || out.Facts.SideEffect != row.want || out.Facts.CallID != dec.Call.ID ||
			out.Facts.DecisionID != dec.ID {
			t.Errorf("%s: %v, %+v", row.why, err, out.Facts)
		}
		if (d.command.Bridge == nil) != row.noBell || !slices.Equal(d.profile.Network.Hosts, row.hosts) {
			t.Errorf("%s: bridge %v, hosts %q", row.why, d.command.Bridge, d.profile.Network.Hosts)
		}
	}
}

func TestToolsAreForScriptsAlone(t *testing.T) {
	for capability, args := range map[string]string{"exec": `{"argv":["ls"]}`, "run_shell": `{"command":"ls"}`} {
		d := &fake{}
		r := worker(d)
		r.Bridge = bridged(func(
			context.Context, call.Call, net.Conn, *call.Suspension,
		) func() facts.SideEffect {
			t.Errorf("%s got a bridge", capability)
			return func() facts.SideEffect { return facts.None }
		})
		g, _ := allowed(t, call.Capability(capability), args)
		if _, err := r.Execute(context.Background(), g); err != nil || d.command.Bridge != nil {
			t.Errorf("%s: %v, bridge %v", capability, err, d.command.Bridge)
		}
	}
}

func TestStartFailsWithoutEffect(t *testing.T) {
	g, _ := allowed(t, "exec", `{"argv":["ls"]}`)
	out, err := worker(&fake{fails: errors.New("no namespaces"), name: "namespace"}).Execute(context.Background(), g)
	if err == nil || !strings.Contains(err.Error(), "no namespaces") || out.Facts.SideEffect != facts.None ||
		out.Facts.Status != facts.Failed {
		t.Errorf("%v %+v", err, out.Facts)
	}
	if strings.Contains(out.Content[0].Text, "namespaces") {
		t.Errorf("the agent is told %q", out.Content[0].Text)
	}
}

func TestWorkspace(t *testing.T) {
	root, ident := t.TempDir(), id.New(id.Workspace)
	d := &fake{leaves: map[string]string{"new.txt": "text"}}
	r := worker(d)
	opened := 0
	r.Means.(*means).workspace = func(s call.Session) (*workspace.Workspace, error) {
		opened++
		return workspace.Open(root, ident)
	}
	g, _ := allowed(t, "run_python", `{"code":"","files":{"data/in.csv":"1,2"}}`,
		func(c *contract.Contract) { c.Filesystem = contract.WorkspaceOnly })
	out, err := r.Execute(context.Background(), g)
	if err != nil || !slices.Equal(out.Facts.Files.Artifacts, []string{"output/new.txt"}) {
		t.Fatalf("%v, artifacts %q", err, out.Facts.Files.Artifacts)
	}
	if b, err := os.ReadFile(filepath.Join(root, ident, "input/data/in.csv")); err != nil || string(b) != "1,2" {
		t.Errorf("%q %v", b, err)
	}
	if b, err := os.ReadFile(filepath.Join(root, ident, "output/new.txt")); err != nil || string(b) != "text" {
		t.Errorf("%q %v", b, err)
	}
	r.Default.Inodes = 4 // the folder itself, data, data/in.csv and one more
	for files, code := range map[string]string{`{"data/b":""}`: "", `{"data/c":"","d":""}`: "args.invalid"} {
		g, _ := allowed(t, "run_python", `{"code":"","files":`+files+`}`,
			func(c *contract.Contract) { c.Filesystem = contract.WorkspaceOnly })
		if out, err := r.Execute(context.Background(), g); err != nil || (out.Refused != nil) != (code != "") ||
			code != "" && out.Refused.Code != code {
			t.Errorf("%s: %v %+v", files, err, out.Refused)
		}
	}
	opened = 1
	seeds := map[string]string{}
	for _, m := range d.profile.Tmpfs {
		seeds[m.Target] = m.Seed
		if m.Sealed != (m.Target == "/workspace/input") {
			t.Errorf("%s is sealed: %t", m.Target, m.Sealed)
		}
	}
	if seeds["/workspace/input"] != filepath.Join(root, ident, "input") ||
		seeds["/workspace/output"] != filepath.Join(root, ident, "output") || seeds["/workspace/tmp"] != "" {
		t.Errorf("%q", seeds)
	}
	g, _ = allowed(t, "run_python", `{"code":""}`) // a contract that gives no files
	if out, err = r.Execute(context.Background(), g); err != nil || opened != 1 || len(out.Facts.Files.Artifacts) != 0 {
		t.Errorf("without files: %v, opened %d times, artifacts %q", err, opened, out.Facts.Files.Artifacts)
	}
}

// many is the members of an object of n files.
func many(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(`"f%d":""`, i))
	}
	return strings.Join(out, ",")
}

// TestHostsOnlyNarrow: a call may name hosts of its contract, as they are written there, and no other.
func TestHostsOnlyNarrow(t *testing.T) {
	r := worker(&fake{})
	var reached []string
	r.Means.(*means).egress = func(_ policy.Decision, n contract.Network) (*sandboxegress.Egress, error) {
		reached = n.Allow
		return &sandboxegress.Egress{}, nil
	}
	_, d := allowed(t, "run_python", `{"code":"x"}`, func(c *contract.Contract) {
		c.Network.Allow = []string{"a.example.com", "*.b.example.com"}
	})
	for _, row := range []struct {
		hosts []string
		good  bool
	}{
		{nil, true}, {[]string{"a.example.com"}, true}, {[]string{"*.b.example.com"}, true},
		{[]string{"c.b.example.com"}, false}, {[]string{"evil.example.com"}, false},
		{[]string{"a.example.com", "evil.example.com"}, false},
	} {
		reached = nil
		_, why := r.way(d, Options{Run: call.Run{Hosts: row.hosts}})
		if (why == nil) != row.good || why != nil && (why.Code != "network.unsupported" || reached != nil) {
			t.Errorf("%q: %v, %q", row.hosts, why, reached)
		}
		if row.good && row.hosts != nil && !slices.Equal(reached, row.hosts) {
			t.Errorf("%q: %q is reached", row.hosts, reached)
		}
	}
	var public bool
	r.Means.(*means).egress = func(_ policy.Decision, n contract.Network) (*sandboxegress.Egress, error) {
		public = n.Public
		return &sandboxegress.Egress{}, nil
	}
	_, wide := allowed(t, "run_python", `{"code":"x"}`, func(c *contract.Contract) {
		c.Network.Allow, c.Network.Public = []string{"a.example.com"}, true
	})
	for _, row := range []struct {
		asks, reaches bool
		of            policy.Decision
		why           string
	}{
		{true, true, wide, ""}, // the control
		{false, false, wide, ""}, {false, false, d, ""}, {true, false, d, "the contract does not allow every public host"},
	} {
		public = false
		_, why := r.way(row.of, Options{Run: call.Run{Hosts: []string{"a.example.com"}, Public: row.asks}})
		if public != row.reaches || (why == nil) != (row.why == "") || why != nil && why.Text != row.why {
			t.Errorf("%+v: every public host is reached: %v, %v", row, public, why)
		}
	}
	r.Means = &means{}
	if _, why := r.way(d, Options{}); why == nil || why.Code != "network.unsupported" {
		t.Errorf("without an egress: %v", why)
	}
}

func TestOptionsAreForOneCall(t *testing.T) {
	d := &fake{}
	r := worker(d)
	_, dec := allowed(t, "run_python", `{"code":"x"}`)
	plain, folder := dec, t.TempDir()
	for _, name := range []string{".env", "a"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dec.Call.Run = &call.Run{Name: "a.py", Limits: call.Limits{Pids: 3}, Input: folder,
		Env: []string{"A=1", "PATH=/evil", "LD_PRELOAD=x", "broken", "=x", "N=\x00"}}
	g, no := grant.Issue(dec, nil, dec.Call.Args)
	if no != nil {
		t.Fatal(no)
	}
	typed := strings.NewReader("typed")
	defer r.Attach(dec.Call.ID, Streams{Stdin: typed})()
	if _, err := r.Execute(context.Background(), g); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(d.stdin, "xtyped") || d.profile.Limits.Pids != 3 || len(d.profile.Mounts) != 1 ||
		d.profile.Mounts[0].Writable || !slices.Equal(d.profile.Mounts[0].Hidden, []string{".env"}) ||
		!slices.Equal(d.command.Env[:2], []string{"A=1", "LD_PRELOAD=x"}) || slices.Contains(d.command.Env, "PATH=/evil") ||
		slices.Contains(d.command.Env, "N=\x00") {
		t.Errorf("%q %+v %q", d.stdin, d.profile, d.command.Env)
	}
	typed.Reset("typed")
	g, why := grant.Issue(plain, nil, dec.Call.Args) // even a call of the same id
	if why != nil {
		t.Fatal(why)
	}
	if _, err := r.Execute(context.Background(), g); err != nil || d.profile.Limits.Pids != limits.Pids ||
		strings.Contains(d.stdin, "typed") {
		t.Errorf("the next call has them too: %v %+v", err, d.profile.Limits)
	}
}

func TestReport(t *testing.T) {
	code := 1
	f := facts.New()
	f.Status, f.ExitCode = facts.Failed, &code
	f.Usage = facts.Usage{CPUMS: 20, WallMS: 41, MemoryPeak: 14 << 20, OutputBytes: 5}
	f.Limits = facts.Limits{CPUMS: 10_000, WallMS: 30_000, MemoryBytes: 512 << 20, Output: 200 << 10}
	f.Truncated.Stderr = true
	f.SideEffect = facts.None
	want := "CPU time used: 0.02s / 10s\nWall time: 0.04s / 30s\nMemory peak: 14MB / 512MB\nOutput: 1KB / 200KB (cut)\n" +
		"Status: Exit status 1, side effect: none.\nWarnings: None\n"
	if got := Report(f); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	f.TimedOut, f.Status, f.Usage.WallMS = true, facts.Timeout, 8000
	if got, want := Sentence(f), "Terminated by timeout after 8s, side effect: none."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	f.Status, f.TimedOut, f.ExitCode = facts.OK, false, nil
	if got := Report(f); !strings.Contains(got, "Status: Success\n") {
		t.Errorf("%s", got)
	}
}

// TestReportTellsWhyAnAllowedHost: without a reason a person cannot know why a host of the contract was denied.
func TestReportTellsWhyAnAllowedHost(t *testing.T) {
	for _, row := range []struct {
		why   string
		times int
		want  string
	}{
		{"egress.host", 1, "Denied: api.example.com:443\n"},
		{"egress.address", 1, "Denied: api.example.com:443 (egress.address)\n"},
		{"egress.limit.bytes", 1, "Denied: api.example.com:443 (egress.limit.bytes)\n"},
		{"egress.secret.end", 1, "Denied: api.example.com:443 (egress.secret.end)\n"},
		{"egress.secret.end", 3, "Denied: api.example.com:443 (3 attempts, egress.secret.end)\n"},
	} {
		f := facts.New()
		f.Network.Denied = []string{"api.example.com:443"}
		f.Network.Attempts = []facts.Attempt{{Host: "api.example.com", Port: 443, Why: row.why, Times: row.times}}
		if got := Report(f); !strings.Contains(got, row.want) {
			t.Errorf("no %q in\n%s", row.want, got)
		}
	}
}

// TestReportNamesWhatWasDenied: hosts and other actions that were tried, and nothing that was not.
func TestReportNamesWhatWasDenied(t *testing.T) {
	f := facts.New()
	f.Status, f.SideEffect = facts.OK, facts.None
	f.Warnings = []string{facts.NoMemoryCgroup, "another"} // a warning about the machine, and one about the run
	if got := Report(f); strings.Contains(got, "Denied") || strings.Contains(got, "Not reached") ||
		!strings.Contains(got, "\nWarnings: "+facts.NoMemoryCgroup+"; another\n") {
		t.Errorf("nothing was tried: %s", got)
	}
	f.Network.Denied = []string{"evil.example.org:443", "192.0.2.1:80", "192.0.2.1:80"}
	f.Network.Attempts = []facts.Attempt{
		{Host: "evil.example.org", Port: 443, Times: 2},
		{Host: "api.example.com", Allowed: true, Why: "egress.resolve", Times: 1},
	}
	f.Denials = []facts.Denial{
		{Kind: "network", What: "evil.example.org:443", Errno: "egress.host"},
		{Kind: "syscall", What: "mount", Errno: "EPERM"},
	}
	got := Report(f)
	for _, want := range []string{
		"Status: Success\n", "Denied: evil.example.org:443 (2 attempts), 192.0.2.1:80, mount (EPERM)\n",
		"Not reached: api.example.com (egress.resolve)\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	f.Status, f.ExitCode = facts.Failed, new(1)
	if got, want := Sentence(f), "Exit status 1, denied: evil.example.org:443 (2 attempts), 192.0.2.1:80, mount (EPERM), "+
		"side effect: none."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Report(f); !strings.Contains(got, "Status: Exit status 1, side effect: none.\nDenied: ") ||
		strings.Count(got, "mount") != 1 {
		t.Error(got)
	}
	for i := range 100 {
		f.Network.Denied = append(f.Network.Denied, fmt.Sprintf("h%d\x1b[2J", i))
	}
	if got := Sentence(f); !strings.HasSuffix(got, "and 98 more, side effect: none.") || strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
}

// TestPlaceholders: a run starts where each of its secrets has a way to its host, and not otherwise.
func TestPlaceholders(t *testing.T) {
	for why, row := range map[string]struct {
		env    []string
		status facts.Status
	}{
		"the placeholder is there": {[]string{"TOKEN=waldo1"}, facts.OK},
		"the secret has no host":   {[]string{"TOKENS=waldo1"}, facts.Denied},
	} {
		d := &fake{}
		r := worker(d)
		r.Means.(*means).egress = func(_ policy.Decision, n contract.Network) (*sandboxegress.Egress, error) {
			rules, err := egress.ParseRules(n.Allow)
			if err != nil {
				return nil, err
			}
			s, err := egress.NewServer(&egress.Dialer{Policy: &egress.Policy{Rules: rules}}, egress.Options{})
			return &sandboxegress.Egress{Server: s, Hosts: n.Allow, Env: row.env}, err
		}
		g, _ := allowed(t, "exec", `{"argv":["true"]}`, func(c *contract.Contract) {
			c.Network.Allow, c.Secrets = []string{"a.example.com"}, map[string]secret.Ref{"TOKEN": "t"}
		})
		out, err := r.Execute(context.Background(), g)
		if err != nil || out.Facts.Status != row.status ||
			slices.Contains(d.command.Env, "TOKEN=waldo1") != (row.status == facts.OK) {
			t.Errorf("%s: %v %+v %q", why, err, out.Facts, d.command.Env)
		}
	}
}

// TestRemoved: files that a run deleted are removed, also beside a file that cannot be removed.
func TestRemoved(t *testing.T) {
	ws, err := workspace.Open(filepath.Join(t.TempDir(), "workspaces"), id.New(id.Workspace))
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	odd := `back\slash` // as an operator's folder may hold
	for _, n := range []string{odd, "gone", "stays"} {
		if err := os.WriteFile(filepath.Join(ws.Path(workspace.Output), n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := facts.New()
	f.Files.Removed = []string{
		"/workspace/output/../tmp", "/workspace/output/" + odd, "/workspace/output/gone", "/workspace/output/other",
	}
	remove(ws, Options{}.places()[0], &f)
	if files, err := ws.List(workspace.Output, 9); err != nil || len(files) != 1 || files[0].Name != "stays" {
		t.Errorf("%+v %v", files, err)
	}
	if len(f.Warnings) != 1 {
		t.Errorf("%q", f.Warnings)
	}
	for _, n := range []string{"gone", "output/gone"} { // the second is in another folder, so it is not removed
		at := filepath.Join(ws.Path(workspace.Files), n)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	f.Files.Removed = []string{"/workspace/gone", "/workspace/output/gone", "/workspacegone", "/tmp/gone"}
	remove(ws, all, &f)
	if files, err := ws.List(workspace.Files, 9); err != nil || len(files) != 1 || files[0].Name != "output/gone" {
		t.Errorf("%+v %v", files, err)
	}
}

// TestAdmission: a sandbox starts only where there is room for it, and the room is free again after it.
func TestAdmission(t *testing.T) {
	for _, row := range []struct {
		full    bool
		fails   error
		started int
	}{{false, nil, 1}, {false, errors.New("no sandbox"), 1}, {true, nil, 0}} {
		d := &fake{name: "namespace", fails: row.fails, facts: facts.Facts{Status: facts.OK}}
		r := worker(d)
		r.Sandboxes = budget.New(budget.Limits{Memory: limits.Memory, Each: 1, Wait: 50 * time.Millisecond})
		if row.full {
			if _, err := r.Sandboxes.Enter(t.Context(), "os:1", 1); err != nil {
				t.Fatal(err)
			}
		}
		g, _ := allowed(t, "run_shell", `{"command":"true"}`)
		out, err := r.Execute(context.Background(), g)
		refused := out.Refused != nil && out.Refused.Code == "sandbox.busy"
		if (err != nil) != (row.fails != nil) || refused != row.full || d.started != row.started {
			t.Errorf("%+v: started %d: %+v %v", row, d.started, out.Refused, err)
		}
		if _, err := r.Sandboxes.Enter(t.Context(), "os:1", limits.Memory); (err == nil) == row.full {
			t.Errorf("%+v: the room afterwards: %v", row, err)
		}
	}
}

// TestSeconds: a time has at most two digits behind the point.
func TestSeconds(t *testing.T) {
	for ms, want := range map[float64]string{
		0: "0s", 41.2: "0.04s", 1360: "1.36s", 30_000: "30s", 12_690: "12.69s", 100: "0.1s",
	} {
		if got := seconds(ms); got != want {
			t.Errorf("%v ms: %s, want %s", ms, got, want)
		}
	}
}
