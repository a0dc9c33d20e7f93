package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/core/policy"
	"waldo/internal/executor/commands"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/loader"
)

// project is a repository of somebody hostile, as a cli capability shows it.
type project struct {
	*Runner
	dir string
}

func newProject(t *testing.T) project {
	t.Helper()
	r, _ := real(t)
	r.Commands = commands.Find([]string{"git", "cat", "diff", "jq"})
	if _, why := r.Commands.Check("git"); why != nil {
		t.Skip(why.Text)
	}
	p := project{r, t.TempDir()}
	p.git(t, "init", "-q", "-b", "main")
	p.git(t, "config", "user.name", "a")
	p.git(t, "config", "user.email", "a@example.com")
	p.write(t, "a.txt", "one\n")
	p.git(t, "add", "a.txt")
	p.git(t, "commit", "-q", "-m", "the first")
	p.write(t, "a.txt", "one\ntwo\n")
	return p
}

func (p project) git(t *testing.T, args ...string) {
	t.Helper()
	c := exec.Command("/usr/bin/git", args...)
	c.Dir, c.Env = p.dir, []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1"}
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
}

func (p project) write(t *testing.T, name, text string) {
	t.Helper()
	at := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// run runs a command, and without its Only if it is wide. It returns all output.
func (p project) run(t *testing.T, wide bool, argv ...string) string {
	t.Helper()
	a, err := call.ArgsOf(map[string]any{"argv": argv, "dir": "input"})
	if err != nil {
		t.Fatal(err)
	}
	d := policy.Decision{Danger: 2, Call: call.Call{Capability: "cli", Args: a}, Contract: contract.Contract{
		Transport: contract.SandboxedExec, Programs: []string{"git", "cat", "diff", "jq"}}}
	o := Options{}
	o.Input = p.dir
	j, why := p.job(d, o)
	if why != nil {
		t.Fatal(why.Text)
	}
	if j.only == nil {
		t.Fatal("what the command uses is not narrowed")
	}
	profile := p.profile(d, o, nil)
	if profile.Only = j.only; wide {
		profile.Only = nil
	}
	sb, err := p.Drivers["namespace"].Start(t.Context(), profile)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	f, err := p.inside(t.Context(), d, o, sb, j)
	if err != nil {
		t.Fatal(err)
	}
	return f.Stdout + f.Stderr
}

// says is a line of shell that prints what no file holds, and then its input.
const says = `echo "RAN-$((40 + 2))"; cat `

// TestHostileProject: whatever a repository names is not there for the commands of cli to run, load or open. The control
// is the same command where the kernel does not narrow it.
func TestHostileProject(t *testing.T) {
	config := func(kv ...string) func(p project, t *testing.T) {
		return func(p project, t *testing.T) {
			for i := 0; i < len(kv); i += 2 {
				p.git(t, "config", kv[i], kv[i+1])
			}
		}
	}
	attribute := func(text string, kv ...string) func(p project, t *testing.T) {
		return func(p project, t *testing.T) {
			config(kv...)(p, t)
			p.write(t, ".gitattributes", text)
		}
	}
	raw := func(section string) func(p project, t *testing.T) {
		return func(p project, t *testing.T) {
			p.write(t, ".gitattributes", "a.txt filter=\xff diff=\xff\n")
			f, err := os.OpenFile(filepath.Join(p.dir, ".git/config"), os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString(section)
				f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	link := func(to string) func(p project, t *testing.T) {
		return func(p project, t *testing.T) {
			if err := os.Symlink(to, filepath.Join(p.dir, "link")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, a := range []struct {
		what, argv, proof, want string
		make                    func(p project, t *testing.T)
	}{
		{"a filter", "git diff", "RAN-42", "+two", attribute("*.txt filter=f", "filter.f.clean", says)},
		{"a filter by a name that is no text", "git diff", "RAN-42", "+two", raw("[filter \"\xff\"]\n\tclean = " +
			`"echo RAN-$((40+2)); cat"` + "\n")},
		{"a filter that is required fails the command", "git diff", "RAN-42", "clean filter 'f' failed",
			attribute("*.txt filter=f", "filter.f.clean", says, "filter.f.required", "true")},
		{"a text conversion", "git status -v", "RAN-42", "cannot exec", func(p project, t *testing.T) {
			attribute("*.txt diff=d", "diff.d.textconv", says)(p, t)
			p.git(t, "add", "a.txt")
		}},
		{"an option without a value hides another", "git diff -U --ext-diff", "RAN-42", "cannot exec",
			attribute("*.txt diff=d", "diff.d.command", says+"#")},
		{"the same in log", "git log -p --unified --ext-diff", "RAN-42", "cannot exec",
			attribute("*.txt diff=d", "diff.d.command", says+"#")},
		{"a loader loads a file of the repository", "git diff -U --ext-diff d/tool", "git-blob-", "failed to map segment", loaded},
		{"a program of the repository", "git diff -U --ext-diff", "RAN-42", "cannot exec", func(p project, t *testing.T) {
			attribute("*.txt diff=d", "diff.d.command", "./tool")(p, t)
			p.write(t, "tool", "#!/bin/sh\n"+says)
		}},
		{"a command that reads writes", "git diff -U --output=/workspace/output/x", "", "could not open",
			func(project, *testing.T) {}},
		{"an option reads another file", "diff --context --to-file=/etc/passwd a.txt a.txt", "nologin", "Permission denied",
			func(project, *testing.T) {}},
		{"a link to /etc", "cat link", "nologin", "Permission denied", link("/etc/passwd")},
		{"a link to the environment", "cat link", "PATH=", "Permission denied", link("/proc/self/environ")},
	} {
		t.Run(a.what, func(t *testing.T) {
			p := newProject(t)
			a.make(p, t)
			argv := strings.Fields(a.argv)
			if out := p.run(t, false, argv...); !strings.Contains(out, a.want) || a.proof != "" && strings.Contains(out, a.proof) {
				t.Errorf("want %s, and not %s: %s", a.want, a.proof, out)
			}
			if out := p.run(t, true, argv...); a.proof != "" && !strings.Contains(out, a.proof) ||
				a.proof == "" && strings.Contains(out, a.want) {
				t.Errorf("control: want %s: %s", a.proof, out)
			}
		})
	}
}

// loaded has git start the loader of programs with a file of the repository, as an external diff.
func loaded(p project, t *testing.T) {
	r, err := os.ReadFile("/usr/bin/echo")
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "d/tool", string(r))
	p.git(t, "add", "d/tool")
	p.git(t, "commit", "-q", "-m", "the second", "d/tool")
	p.write(t, "d/tool", string(r)+"x")
	p.write(t, ".gitattributes", "tool diff=d\n")
	loader := ""
	for _, at := range []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"} {
		if _, err := os.Stat(at); err == nil {
			loader = at
		}
	}
	p.git(t, "config", "diff.d.command", loader)
}

// TestNarrowedEnvironment: a program with a rule sees nothing of the contract's environment, and one with any arguments
// does.
func TestNarrowedEnvironment(t *testing.T) {
	r, _ := real(t)
	r.Commands = commands.Find([]string{"jq", "env"})
	run := func(argv ...string) string {
		a, err := call.ArgsOf(map[string]any{"argv": argv})
		if err != nil {
			t.Fatal(err)
		}
		g, _ := allowed(t, "cli", string(a.Raw()), func(c *contract.Contract) {
			c.Programs, c.Env, c.Danger = []string{"jq", "env *"}, map[string]string{"MINE": "value"}, 2
		})
		out, err := r.Execute(t.Context(), g)
		if err != nil || len(out.Content) == 0 {
			t.Fatalf("%v %+v", err, out)
		}
		return out.Content[0].Text
	}
	if _, why := r.Commands.Check("jq"); why != nil {
		t.Skip(why.Text)
	}
	if out := run("env"); !strings.Contains(out, "MINE=value") {
		t.Error("control:", out)
	}
	if out := run("jq", "-cn", "$ ENV | keys"); out != `["HOME","LANG","PATH","TMPDIR"]`+"\n" {
		t.Error(out)
	}
}

// TestNarrowRefused: a driver that cannot narrow a program does not run it; one that runs any code runs.
func TestNarrowRefused(t *testing.T) {
	d := &fake{fails: sandbox.ErrOnly}
	r := worker(d)
	r.Commands = commands.Find([]string{"ls"})
	g, _ := allowed(t, "cli", `{"argv":["ls"]}`, func(c *contract.Contract) { c.Programs = []string{"ls"} })
	out, err := r.Execute(t.Context(), g)
	if w := out.Facts.Warnings; err != nil || !out.IsError || len(w) != 1 || !strings.HasPrefix(w[0], "isolation.narrow: ") {
		t.Errorf("%v %+v", err, out)
	}
	g, _ = allowed(t, "cli", `{"argv":["ls"]}`, func(c *contract.Contract) { c.Programs, c.Danger = []string{"ls *"}, 2 })
	d.fails = nil
	if out, err := r.Execute(t.Context(), g); err != nil || out.IsError || d.profile.Only != nil {
		t.Errorf("control: %v %+v", err, out)
	}
}

// TestOnly: what a command may use follows from its program and its rule.
func TestOnly(t *testing.T) {
	only := func(c commands.Command) *sandbox.Only {
		t.Helper()
		only, why := Options{}.only(&loader.Finder{}, c, "/usr/bin/true")
		if why != nil {
			t.Fatal(why)
		}
		return only
	}
	reads, writes := only(commands.Command{Danger: 1, Read: []string{"/usr/share/x/"}}), only(commands.Command{Danger: 2})
	if slices.Contains(reads.Write, "/workspace/") || !slices.Contains(reads.Read, "/usr/share/x/") {
		t.Errorf("a command that reads: %+v", reads)
	}
	if !slices.Contains(writes.Write, "/workspace/") || slices.Contains(writes.Read, "/etc/passwd") {
		t.Errorf("a command that writes: %+v", writes)
	}
	if _, why := (Options{}).only(&loader.Finder{}, commands.Command{}, "/usr/bin/absent"); why == nil || why.Code != "program.absent" {
		t.Errorf("an absent program: %v", why)
	}
}
