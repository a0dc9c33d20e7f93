//go:build unix

package commands

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// hostile is a repository whose configuration names programs. Each of them leaves the file ran.
type hostile struct{ dir, ran string }

// newHostile makes a repository with the file a.txt in its first commit.
func newHostile(t *testing.T) *hostile {
	t.Helper()
	if _, err := os.Stat("/usr/bin/git"); err != nil {
		t.Skip("git is not on this machine")
	}
	h := &hostile{filepath.Join(t.TempDir(), "repo"), filepath.Join(t.TempDir(), "ran")}
	if err := os.Mkdir(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h.git(t, "init", "-q", "-b", "main")
	h.write(t, "a.txt", "one\n")
	h.git(t, "add", "a.txt")
	h.git(t, "commit", "-q", "-m", "the first")
	return h
}

// evil is a line for git's configuration that leaves the file ran, and acts as cat.
func (h *hostile) evil() string { return "touch '" + h.ran + "'; cat" }

// git prepares a repository, with git as its writer would run it.
func (h *hostile) git(t *testing.T, args ...string) {
	t.Helper()
	c := exec.Command("/usr/bin/git", append([]string{"-C", h.dir, "-c", "user.name=a", "-c", "user.email=a@example.com",
		"-c", "protocol.file.allow=always"}, args...)...)
	c.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_ALLOW_PROTOCOL=file"}
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
}

func (h *hostile) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour) // git compares the content of a file whose time differs
	if err := os.Chtimes(filepath.Join(h.dir, name), later, later); err != nil {
		t.Fatal(err)
	}
}

// run runs a command as a sandbox would, without its walls, and reports whether a program of the repository ran. It
// leaves out the words of without: of the options, of the environment, or the script.
func (h *hostile) run(t *testing.T, in string, argv []string, without ...string) (ran bool, out string) {
	t.Helper()
	c, why := Judge([]string{"git"}, argv, false)
	if why != nil {
		t.Fatalf("%q: %s", argv, why.Text)
	}
	if slices.Contains(without, "script") {
		c.script = ""
	}
	drop := func(words []string) (rest []string) {
		for i := 0; i < len(words); i++ {
			if words[i] == "-c" && i+1 < len(words) && slices.Contains(without, words[i+1]) {
				i++
			} else if !slices.Contains(without, words[i]) {
				rest = append(rest, words[i])
			}
		}
		return rest
	}
	c.Argv = drop(c.Argv)
	all := c.Start("/usr/bin/git")
	if c.script != "" && slices.Contains(without, "safe.bareRepository=explicit") {
		all[2] = strings.ReplaceAll(all[2], "-c safe.bareRepository=explicit", "")
	}
	p := exec.Command(all[0], all[1:]...)
	p.Dir = filepath.Join(h.dir, in)
	p.Env = append(drop(c.Env), "PATH=/usr/bin:/bin", "HOME=/nonexistent")
	b, _ := p.CombinedOutput()
	_, err := os.Stat(h.ran)
	_ = os.Remove(h.ran)
	return err == nil, string(b)
}

// gitAttacks are repositories that run a program under a command that reads, and what switches that off.
var gitAttacks = []struct {
	what    string
	argv    string
	in      string // the folder where it starts
	make    func(h *hostile, t *testing.T)
	without []string // the guard
	want    string   // in the output of the guarded command
}{
	{"a filter cleans a changed file: status", "git status --short", "", (*hostile).filter, []string{"script"}, " M a.txt"},
	{"a filter cleans a changed file: diff", "git diff", "", (*hostile).filter, []string{"script"}, "+two"},
	{"a filter cleans a changed file: blame", "git blame a.txt", "", (*hostile).filter, []string{"script"}, "two"},
	{"a filter cleans a changed file: add", "git add a.txt", "", (*hostile).filter, []string{"script"}, ""},
	{"a filter is a process", "git diff", "", (*hostile).process, []string{"script"}, "+two"},
	{"the name of a filter is long, and of other letters", "git diff", "", (*hostile).named, []string{"script"}, "+two"},
	{"a file converts what status -v shows", "git status -v", "", (*hostile).textconv, []string{"script"}, "+two"},
	{"a file converts what diff shows", "git diff --cached", "", (*hostile).textconv,
		[]string{"script", "--no-textconv"}, "+two"},
	{"a program makes the diff", "git diff --cached", "", (*hostile).external, []string{"--no-ext-diff"}, "+two"},
	{"a folder of a clone is a repository", "git status", "docs", (*hostile).bare,
		[]string{"script", "safe.bareRepository=explicit"}, "cannot use bare repository"},
	{"a submodule has a filter: status", "git status --short", "", (*hostile).submodule,
		[]string{"--ignore-submodules=dirty", "diff.ignoreSubmodules=dirty"}, ""},
	{"a submodule has a filter: diff", "git diff", "", (*hostile).submodule,
		[]string{"--ignore-submodules=dirty", "diff.ignoreSubmodules=dirty"}, ""},
	{"a watcher of files", "git status --short", "", (*hostile).watcher, []string{"core.fsmonitor=false"}, ""},
	{"an object is fetched", "git cat-file -p main:a.txt", "", (*hostile).lazy,
		[]string{"GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none"}, "Not a valid object name"},
}

// TestHostileRepository: no program that a repository names runs. The control is the same command without the guard.
func TestHostileRepository(t *testing.T) {
	for _, a := range gitAttacks {
		t.Run(a.what, func(t *testing.T) {
			h := newHostile(t)
			a.make(h, t)
			argv := strings.Fields(a.argv)
			if ran, out := h.run(t, a.in, argv); ran || !strings.Contains(out, a.want) {
				t.Errorf("its program ran: %v: %s", ran, out)
			}
			if ran, out := h.run(t, a.in, argv, a.without...); !ran {
				t.Errorf("control: without %q its program does not run: %s", a.without, out)
			}
		})
	}
}

// TestRepositoryUnreadable: where the names of filters cannot be read, git does not start.
func TestRepositoryUnreadable(t *testing.T) {
	h := newHostile(t)
	if _, out := h.run(t, "", []string{"git", "log", "--oneline"}); !strings.Contains(out, "the first") {
		t.Fatal("control:", out)
	}
	c, _ := Judge([]string{"git"}, []string{"git", "log"}, false)
	if got := c.Start("/usr/bin/false")[3]; got != "/usr/bin/false" {
		t.Fatal(got)
	}
	fake := filepath.Join(t.TempDir(), "git")
	script := "#!/bin/sh\ncase \"$*\" in *--get-regexp*) exit $CODE;; esac\necho started\n"
	if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for code, want := range map[string]string{"1": "started\n", "128": ""} {
		argv := c.Start(fake)
		p := exec.Command(argv[0], argv[1:]...)
		p.Env = []string{"PATH=/usr/bin:/bin", "CODE=" + code}
		if out, _ := p.CombinedOutput(); string(out) != want {
			t.Errorf("git config ends with %s: %q", code, out)
		}
	}
}

func (h *hostile) filter(t *testing.T) {
	h.git(t, "config", "filter.f.clean", h.evil())
	h.git(t, "config", "filter.f.required", "true")
	h.write(t, ".gitattributes", "*.txt filter=f\n")
	h.write(t, "a.txt", "two\n")
}

func (h *hostile) process(t *testing.T) {
	h.git(t, "config", "filter.f.process", h.evil())
	h.write(t, ".gitattributes", "*.txt filter=f\n")
	h.write(t, "a.txt", "two\n")
}

func (h *hostile) named(t *testing.T) {
	h.git(t, "config", "FILTER.a=b*$(id).CLEAN", h.evil())
	h.write(t, ".gitattributes", "*.txt filter=a=b*$(id)\n")
	h.write(t, "a.txt", "two\n")
}

func (h *hostile) textconv(t *testing.T) {
	h.write(t, "a.txt", "two\n")
	h.git(t, "add", "a.txt")
	h.git(t, "config", "diff.d.textconv", "touch '"+h.ran+"'; cat")
	h.write(t, ".gitattributes", "*.txt diff=d\n")
}

func (h *hostile) external(t *testing.T) {
	h.write(t, "a.txt", "two\n")
	h.git(t, "add", "a.txt")
	h.git(t, "config", "diff.d.command", "touch '"+h.ran+"'; true")
	h.write(t, ".gitattributes", "*.txt diff=d\n")
}

// bare makes a folder that a clone brings along, and that git takes for a repository with a work tree.
func (h *hostile) bare(t *testing.T) {
	h.git(t, "init", "-q", "--bare", "docs")
	in := &hostile{filepath.Join(h.dir, "docs"), h.ran}
	for _, kv := range [][2]string{{"core.bare", "false"}, {"core.worktree", "."}, {"filter.f.clean", h.evil()}} {
		h.git(t, "config", "-f", filepath.Join(in.dir, "config"), kv[0], kv[1])
	}
	in.write(t, "a.txt", "one\n")
	in.git(t, "--git-dir=.", "add", "a.txt")
	in.write(t, ".gitattributes", "*.txt filter=f\n")
	in.write(t, "a.txt", "two\n")
}

func (h *hostile) submodule(t *testing.T) {
	from := newHostile(t)
	h.git(t, "submodule", "--quiet", "add", from.dir, "sub")
	h.git(t, "config", "-f", ".gitmodules", "submodule.sub.ignore", "none")
	h.git(t, "add", ".gitmodules")
	h.git(t, "commit", "-q", "-m", "the second")
	in := &hostile{filepath.Join(h.dir, "sub"), h.ran}
	in.filter(t)
}

func (h *hostile) watcher(t *testing.T) {
	h.git(t, "config", "core.fsmonitor", "touch '"+h.ran+"'; true")
}

// lazy makes an object of the commit one that git fetches when it needs it.
func (h *hostile) lazy(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ntouch '"+h.ran+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, kv := range [][2]string{{"core.repositoryformatversion", "1"}, {"extensions.partialClone", "origin"},
		{"remote.origin.promisor", "true"}, {"remote.origin.url", "ext::" + program}, {"protocol.ext.allow", "always"}} {
		h.git(t, "config", kv[0], kv[1])
	}
	const one = "5626abf0f72e58d7a153368ba57db4c673c0e171" // the blob "one\n"
	if err := os.Remove(filepath.Join(h.dir, ".git/objects", one[:2], one[2:])); err != nil {
		t.Fatal(err)
	}
}
