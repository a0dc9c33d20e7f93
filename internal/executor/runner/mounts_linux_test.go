package runner

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/executor/protect"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
)

// inProject runs a shell command in a sandbox with a writable mount, and without one of the protections if it is named.
func inProject(t *testing.T, r *Runner, dir, script string, change func(*contract.Contract)) call.Outcome {
	t.Helper()
	a, err := call.ArgsOf(map[string]any{"command": "cd " + dir + " || exit 9\n" + script})
	if err != nil {
		t.Fatal(err)
	}
	g, _ := allowed(t, "run_shell", string(a.Raw()), func(c *contract.Contract) {
		c.Filesystem = contract.WorkspaceOnly
		c.Mounts = []contract.Mount{{Target: dir, From: dir, Writable: true}}
		if change != nil {
			change(c)
		}
	})
	out, err := r.Execute(context.Background(), g)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// files makes files below a folder; a name that ends in "/" is a folder.
func makeFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(at, 0o755); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(at, []byte("old\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func gitRepo(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q", "."}, {"commit", "-q", "--allow-empty", "-m", "x"}} {
		c := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return dir
}

// attacks are the ways to change a protected file, as shell commands on $1.
var attacks = []string{
	`echo new > "$1"`, `echo new >> "$1"`, `rm -rf "$1" && echo new > "$1"`, `mv "$1" "$1.gone" && echo new > "$1"`,
	`echo new > planted.tmp && mv -f planted.tmp "$1"`, `ln -f "$1" other && echo new > other`,
	`ln -sfn "$PWD/planted.tmp" "$1" && echo new > planted.tmp`, `cp -f /etc/passwd "$1"`, `truncate -s 0 "$1"`,
	`d=$(dirname "$1"); [ "$d" != . ] && mv "$d" gone && mkdir -p "$d" && echo new > "$1"`,
	`t=${1%%/*}; [ "$t" != "$1" ] && mv "$t" gone2 && mkdir -p "$(dirname "$1")" && echo new > "$1"`,
	`python3 - "$1" <<'P'
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
open("x.tmp", "w").write("new")
sys.exit(libc.renameat2(-100, b"x.tmp", -100, sys.argv[1].encode(), 2) != 0)
P`,
	`exec 3<"$1" && echo new > /proc/self/fd/3`, `umount "$1"`, `mount --bind planted.tmp "$1"`,
}

// TestProtectedNames: no attack changes a file of the table, at the top, in a nested folder or in another case. The
// control takes the row out of the table: the first attack then changes the file.
func TestProtectedNames(t *testing.T) {
	r, _ := real(t)
	script := "try() {\n"
	for i, a := range attacks {
		script += "( set -- \"$1\"\n" + a + "\n) >/dev/null 2>&1\n[ \"$(cat \"$1\" 2>/dev/null)\" = old ] || echo \"CHANGED $1 by " +
			string(rune('a'+i)) + "\"\nrm -rf planted.tmp x.tmp other\n"
	}
	script += "}\n"
	for _, row := range protect.Table() {
		if row.Kind == protect.Show || row.Kind == protect.Hide || row.Pattern == ".git" {
			continue
		}
		t.Run(strings.ReplaceAll(row.Pattern, "/", "_"), func(t *testing.T) {
			t.Parallel()
			name := strings.ReplaceAll(row.Pattern, "*", "a")
			if in, ok := strings.CutPrefix(name, "git:"); ok {
				name = ".git/" + in
			}
			dir := gitRepo(t)
			all := []string{name, "deep/er/" + name, strings.ToUpper(name[:len(name)-1]) + name[len(name)-1:]}
			if slices.Contains([]string{"git:hooks", "git:branches", "git:remotes"}, row.Pattern) { // folders
				for i := range all {
					all[i] += "/post-commit"
				}
			}
			if row.Pattern == "git:config" {
				makeFiles(t, dir, all[1:]...) // git needs its own
				all = all[1:]
			} else {
				makeFiles(t, dir, all...)
			}
			run := script
			for _, n := range all {
				run += "try " + n + "\n"
			}
			out := inProject(t, r, dir, run+"echo end", nil)
			if got := strings.TrimSpace(out.Facts.Stdout); got != "end" {
				t.Errorf("%s %v", got, out.Facts.Warnings)
			}
			for _, n := range all {
				if b, err := os.ReadFile(filepath.Join(dir, n)); err != nil || string(b) != "old\n" {
					t.Errorf("%s: %q %v", n, b, err)
				}
			}
			if row.Pattern == "waldo.yaml" || row.Pattern == "git:hooks" || row.Pattern == ".claude" {
				out = inProject(t, r, dir, script+"try "+all[0], func(c *contract.Contract) { c.Unprotect = []string{row.Pattern} })
				if !strings.Contains(out.Facts.Stdout, "CHANGED "+all[0]+" by a") {
					t.Errorf("control: %s", out.Facts.Stdout)
				}
			}
		})
	}
}

// TestPlanted: what appears under a protected name is taken out and named, once the run has ended; what is not in the
// table stays.
func TestPlanted(t *testing.T) {
	r, _ := real(t)
	dir := gitRepo(t)
	makeFiles(t, dir, "config/app.yaml")
	const script = `set -e
mkdir -p .vscode a/.Claude; echo new > .vscode/tasks.json; echo new > a/.Claude/settings.json; echo new > .ENVRC
git init -q sub; echo new > sub/.git/hooks/post-commit; git init -q ok; git -C ok remote add o https://example.com/x.git
echo ref: refs/heads/x > HEAD; mkdir objects refs
git worktree add -q wt; echo "[core]" > .git/config.worktree; echo " pager = id" >> .git/config.worktree
mkdir -p x/objects x/refs; printf '[core]\n\tfsmonitor = "id;false"\n' > x/config; echo ../x > .git/commondir
mkdir -p y/worktrees/w y/objects y/refs; echo ../.. > y/worktrees/w/commondir; echo ref: refs/heads/x > y/worktrees/w/HEAD
mkdir evil; echo "gitdir: /tmp" > evil/.git; ln -s /tmp .mcp.json; echo keep > main.go; echo A=1 > .env
rm .git/logs/HEAD; ln -s ../../../.bashrc .git/logs/HEAD; ln -s ../hooks/pre-commit .git/logs/in; echo end`
	out := inProject(t, r, dir, script, nil)
	var want []string
	for _, n := range []string{".ENVRC", ".git/commondir", ".git/config.worktree", ".git/logs/HEAD",
		".git/logs/in", ".mcp.json", ".vscode", "HEAD", "a/.Claude", "evil/.git",
		"sub/.git/hooks", "y/worktrees/w/HEAD"} {
		want = append(want, filepath.Join(dir, n))
		if _, err := os.Lstat(filepath.Join(dir, n)); err == nil {
			t.Errorf("%s is still there", n)
		}
	}
	slices.Sort(out.Facts.Files.Held)
	if !strings.Contains(out.Facts.Stdout, "end") || !slices.Equal(out.Facts.Files.Held, want) {
		t.Errorf("%q\n got %q\nwant %q\n%v", out.Facts.Stdout+out.Facts.Stderr, out.Facts.Files.Held, want, out.Facts.Warnings)
	}
	for _, n := range []string{"main.go", ".env", "ok/.git/config", "wt/.git", "config/app.yaml"} {
		if _, err := os.Stat(filepath.Join(dir, n)); err != nil {
			t.Error(err)
		}
	}
	for _, w := range out.Facts.Warnings {
		if strings.HasPrefix(w, "mounts.unchecked") {
			t.Error(w)
		}
	}
}

// TestLiveFolder: git commits, files are watched, renamed and linked across a repository, keys are hidden, and files
// belong to the folder's owner.
func TestLiveFolder(t *testing.T) {
	r, _ := real(t)
	dir := gitRepo(t)
	makeFiles(t, dir, ".env", "id_rsa", "src/a")
	const script = `echo x > f; git add f && git -c user.name=a -c user.email=a@b commit -qm y && echo committed
mv f .git/f && mv .git/f f && ln .git/HEAD h && echo moved; wc -c < .env; wc -c < id_rsa; ln -s src/a l
python3 -c 'import ctypes; l = ctypes.CDLL(None); print("watch", l.inotify_add_watch(l.inotify_init1(0), b"src", 0x100))'
chmod 4755 f || echo no set-id; git config a.b c || echo no config; id -u; awk -F: '/agent/{print $3}' /etc/passwd`
	out := inProject(t, r, dir, script, nil)
	for _, want := range []string{"committed\n", "moved\n0\n0\nwatch 1\nno set-id\nno config\n"} {
		if !strings.Contains(out.Facts.Stdout, want) {
			t.Errorf("wanted %q in:\n%s%s", want, out.Facts.Stdout, out.Facts.Stderr)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, ".env")); err != nil || string(b) != "old\n" {
		t.Errorf(".env %q %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "l")); err != nil {
		t.Error(err)
	}
	if len(out.Facts.Files.Held) > 0 {
		t.Errorf("held %q", out.Facts.Files.Held)
	}
}

// TestOwnNumber: the sandbox has the number of the folder's owner, so that git's index is the same inside and outside. A
// folder of root is never shown to root.
func TestOwnNumber(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has folders of several users")
	}
	r, _ := real(t)
	for _, x := range []struct {
		own  int
		want string
	}{{0, "1000"}, {1000, "1000"}, {4321, "4321"}} {
		dir := gitRepo(t)
		if err := os.Chown(dir, x.own, x.own); err != nil {
			t.Fatal(err)
		}
		out := inProject(t, r, dir, "echo x > new; id -u; id -un; stat -c %u new", nil)
		if want := x.want + "\nagent\n" + x.want + "\n"; out.Facts.Stdout != want {
			t.Errorf("user %d: %q %s", x.own, out.Facts.Stdout, out.Facts.Stderr)
		}
	}
}

// TestRefusedMounts: each has its reason code, and the same folder without the fault is shown.
func TestRefusedMounts(t *testing.T) {
	r, _ := real(t)
	dir := gitRepo(t)
	if out := inProject(t, r, dir, "echo end", nil); out.Refused != nil || !strings.Contains(out.Facts.Stdout, "end") {
		t.Fatalf("control: %+v", out.Refused)
	}
	state, linked := gitRepo(t), gitRepo(t)
	makeFiles(t, state, "sub/waldo.db", "sub/in/x")
	if err := os.Symlink("/tmp", filepath.Join(linked, ".vscode")); err != nil {
		t.Fatal(err)
	}
	to := func(from string, asked ...call.Mount) func(*contract.Contract) {
		return func(c *contract.Contract) { c.Mounts[0].From = from }
	}
	for _, x := range []struct {
		code   string
		change func(*contract.Contract)
	}{
		{"mounts.refused", to("/")}, {"mounts.refused", to("/etc")}, {"mounts.refused", to("/home")},
		{"mounts.absent", to("/nowhere")}, {"mounts.file", to(filepath.Join(dir, ".git/HEAD"))},
		{"mounts.protected", to(state)}, {"mounts.protected", to(filepath.Join(state, "sub/in"))}, {"mounts.link", to(linked)},
		{"mounts.protect", func(c *contract.Contract) { c.Unprotect = []string{"no-such-row"} }},
		{"mounts.isolation", func(c *contract.Contract) { c.Isolation = "engine" }},
		{"mounts.isolation", func(c *contract.Contract) { c.Isolation = "gvisor" }},
		{"mounts.isolation", func(c *contract.Contract) { c.Isolation = "confined" }},
	} {
		for _, level := range []string{"engine", "gvisor", "confined"} {
			r.Drivers[level] = &fake{name: level}
		}
		out := inProject(t, r, dir, "echo end", x.change)
		if out.Refused == nil || out.Refused.Code != x.code {
			t.Errorf("wanted %s, got %+v %s", x.code, out.Refused, out.Facts.Stdout)
		}
	}
	out := inProject(t, r, dir, "cat .git/HEAD", func(c *contract.Contract) {
		c.Mounts[0].From, c.Mounts[0].Writable = dir, false
	})
	if out.Refused != nil || !strings.Contains(out.Facts.Stdout, "ref:") {
		t.Errorf("read-only: %+v %s", out.Refused, out.Facts.Stderr)
	}
}

// A folder that is moved during a run, with a link in its place, is swept where it is. What the link leads to stays.
func TestMovedFolder(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(home, "project", "sub")
	makeFiles(t, home, ".bashrc", "private/id", "project/sub/f")
	r, _ := real(t)
	r.State = t.TempDir()
	moved := dir + "_"
	began := filepath.Join(dir, "began")
	go func() {
		for {
			if _, err := os.Stat(began); err == nil {
				break
			}
			if t.Context().Err() != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
		if os.Rename(dir, moved) == nil {
			_ = os.Symlink("..", dir)
			_ = os.WriteFile(filepath.Join(moved, "go"), nil, 0o644)
		}
	}()
	out := inProject(t, r, dir, "touch began; while [ ! -e go ]; do sleep 0.01; done; echo x > .mcp.json; ls -a", nil)
	if _, err := os.Lstat(filepath.Join(moved, "began")); err != nil {
		t.Fatalf("control: the folder was not moved: %v %v", err, out.Facts.Warnings)
	}
	if _, err := os.Lstat(filepath.Join(moved, ".mcp.json")); err == nil {
		t.Error("a planted name stays in the moved folder")
	}
	for _, own := range []string{".bashrc", "private/id"} {
		if _, err := os.Stat(filepath.Join(home, own)); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(strings.Join(out.Facts.Warnings, " "), "mounts.moved") {
		t.Errorf("warnings: %q", out.Facts.Warnings)
	}

}

// TestLinkAtStart: a folder that becomes a link between the look at it and the start of the sandbox is refused, whether
// it is the folder itself or one above it. The control: the same folder without a link is shown.
func TestLinkAtStart(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	above, private := filepath.Join(home, "project"), filepath.Join(home, "private")
	shown := filepath.Join(above, "late")
	makeFiles(t, home, "project/late/id", "private/id", "private/late/id")
	for _, x := range []struct{ name, secret string }{{shown, private}, {above, private}, {"", ""}} {
		for _, from := range []string{shown, shown + "/id"} {
			for _, writable := range []bool{true, false} {
				if writable && from != shown {
					continue // a file cannot be
				}
				r, _ := real(t)
				r.Drivers = map[string]sandbox.Driver{"namespace": exchanges{r.Drivers["namespace"], func() {
					if x.name != "" && os.Rename(x.name, x.name+"_") == nil {
						_ = os.Symlink(x.secret, x.name)
					}
				}}}
				out := inProject(t, r, shown, "cat "+shown+"/id", func(c *contract.Contract) {
					c.Mounts[0].From, c.Mounts[0].Target, c.Mounts[0].Writable = from, from, writable
				})
				refused := out.Refused != nil && out.Refused.Code == "mounts.refused"
				if read := strings.Contains(out.Facts.Stdout, "old"); refused == (x.name == "") || read == refused {
					t.Errorf("link %q, mount %s, writable %t: %+v %q %s", x.name, from, writable, out.Refused, out.Facts.Stdout,
						out.Facts.Stderr)
				}
				if x.name != "" {
					_ = os.Remove(x.name)
					if err := os.Rename(x.name+"_", x.name); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

// exchanges is a driver before whose start something happens.
type exchanges struct {
	sandbox.Driver
	do func()
}

func (e exchanges) Start(ctx context.Context, p sandbox.Profile) (sandbox.Sandbox, error) {
	e.do()
	return e.Driver.Start(ctx, p)
}

// listing is a ledger with a list.
type listing struct {
	unlisted
	aside string
	list  *facts.Changes
}

func (l listing) End() (*facts.Changes, error) { return l.list, nil }

// TestEffectOfWrites: a run that changed files of a person's folder had a side effect. One whose writes went aside had
// none.
func TestEffectOfWrites(t *testing.T) {
	for _, row := range []struct {
		why   string
		list  listing
		other facts.SideEffect
		want  facts.SideEffect
	}{
		{"written", listing{list: &facts.Changes{Written: []string{"a"}}}, facts.None, facts.Confirmed},
		{"renamed", listing{list: &facts.Changes{Renamed: []string{"a -> b"}}}, facts.None, facts.Confirmed},
		{"removed", listing{list: &facts.Changes{Removed: []string{"a"}}}, facts.None, facts.Confirmed},
		{"over the network", listing{list: &facts.Changes{Written: []string{"a"}}}, facts.Unknown, facts.Unknown},
		{"aside", listing{list: &facts.Changes{Written: []string{"a"}}, aside: "/x"}, facts.None, facts.None},
		{"control: nothing", listing{list: &facts.Changes{}}, facts.None, facts.None},
	} {
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		m := liveMount{root: root}
		m.Source, m.Writable, m.Aside = root.Name(), true, row.list.aside
		f := facts.New()
		f.SideEffect = row.other
		Options{mounts: []liveMount{m}}.appeared(row.list, &f)
		if f.SideEffect != row.want {
			t.Errorf("%s: %v", row.why, f.SideEffect)
		}
		root.Close()
	}
}
