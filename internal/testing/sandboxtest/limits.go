//go:build linux

package sandboxtest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
)

func itoa(n int) string { return strconv.Itoa(n) }

// testLimits: each limit, and the fact that names it.
func (s *suite) testLimits(t *testing.T) {
	for _, class := range []string{"output", "time", "memory of the whole tree"} {
		s.answer(class, "", "")
	}
	rows := []struct {
		why, code string
		tighten   func(p *sandbox.Profile)
		limit     facts.Limit
		status    facts.Status
		stdout    string
	}{
		{"wall clock", `time.sleep(60)`, func(p *sandbox.Profile) { p.Limits.Wall = 300 * time.Millisecond },
			facts.LimitWall, facts.Timeout, ""},
		{"wall clock, every signal ignored",
			`[signal.signal(i, signal.SIG_IGN) for i in range(1, 32) if i not in (9, 19)]; time.sleep(60)`,
			func(p *sandbox.Profile) { p.Limits.Wall = 300 * time.Millisecond }, facts.LimitWall, facts.Timeout, ""},
		{"wall clock, the process stopped", `os.kill(os.getpid(), 19)`,
			func(p *sandbox.Profile) { p.Limits.Wall = 500 * time.Millisecond }, facts.LimitWall, facts.Timeout, ""},
		{"processor time of a whole tree", "for i in range(3): os.fork()\nwhile 1: pass",
			func(p *sandbox.Profile) { p.Limits.CPU = time.Second }, facts.LimitCPU, facts.Timeout, ""},
		{"output", "while 1: os.write(1, b'x' * 65536)", func(p *sandbox.Profile) { p.Limits.Output = 1 << 10 },
			facts.LimitOutput, facts.Failed, strings.Repeat("x", 1<<10)},
		{"bytes of a writable place",
			`open(TMP+"/f", "wb").write(b"x" * (15 << 20)); open(TMP+"/g", "wb").write(b"x" * (15 << 20))`, nil,
			facts.LimitDisk, facts.Failed, ""},
		{"memory of many processes together",
			"for i in range(4):\n  if not os.fork(): x = b'x' * (60 << 20); time.sleep(5); os._exit(0)\n" +
				"r = [os.wait()[1] for i in range(4)]; sys.exit(int(any(r)))",
			func(p *sandbox.Profile) { p.Limits.Memory = 100 << 20 }, facts.LimitMemory, facts.OOM, ""},
		{"inodes of a writable place", "for i in range(2000): open(TMP+'/%d' % i, 'w')", nil, facts.LimitDisk, facts.Failed,
			""},
	}
	if s.ability["cgroup memory"] {
		rows = append(rows, []struct {
			why, code string
			tighten   func(p *sandbox.Profile)
			limit     facts.Limit
			status    facts.Status
			stdout    string
		}{
			{"memory of one process", `x = b"x" * (200 << 20)`, func(p *sandbox.Profile) { p.Limits.Memory = 100 << 20 },
				facts.LimitMemory, facts.OOM, ""},
			{"memory of a child, whose parent would go on",
				"if not os.fork():\n  x = [b'x' * (1 << 20) for i in range(200)]; os._exit(0)\nos.wait(); time.sleep(10); " +
					"print('went on')",
				func(p *sandbox.Profile) { p.Limits.Memory = 60 << 20 }, facts.LimitMemory, facts.OOM, ""},
		}...)
	}
	if s.ability["cgroup pids"] {
		rows = append(rows, struct {
			why, code string
			tighten   func(p *sandbox.Profile)
			limit     facts.Limit
			status    facts.Status
			stdout    string
		}{"processes", "n = 0\ntry:\n  while n < 500:\n    if not os.fork(): time.sleep(60)\n    n += 1\n" +
			"except OSError as e: print(n, e.errno == errno.EAGAIN); sys.exit(1)",
			nil, facts.LimitPids, facts.Failed, "63 True\n"})
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			p := Profile()
			if r.tighten != nil {
				r.tighten(&p)
			}
			b := s.start(t, p)
			began := time.Now()
			f := run(t, b, python(r.code))
			if f.Limit == nil || *f.Limit != r.limit || f.Status != r.status || f.Stdout != r.stdout {
				t.Errorf("limit %v status %s stdout %q, want %s %s %q: %s", deref(f.Limit), f.Status, brief(f).Stdout, r.limit,
					r.status, r.stdout, f.Stderr)
			}
			if f.OOMKilled != (r.status == facts.OOM) {
				t.Errorf("oom_killed %v of a run that ended as %s", f.OOMKilled, f.Status)
			}
			if time.Since(began) > 50*time.Second { // a wrong wait takes a minute
				t.Errorf("took %v", time.Since(began))
			}
			if r.limit == facts.LimitWall && (f.Signal == nil || *f.Signal != "SIGKILL" || !f.TimedOut || f.ExitCode != nil) {
				t.Errorf("signal %v timed out %v exit %v", deref(f.Signal), f.TimedOut, deref(f.ExitCode))
			}
		})
	}
	t.Run("processes, with any counter", func(t *testing.T) {
		b := s.start(t, Profile())
		f := run(t, b,
			python("n = 0\ntry:\n  while n < 500:\n    if not os.fork(): time.sleep(60)\n    n += 1\nexcept OSError: pass\n"+
				"print(n)"))
		want := s.answer("processes of the sandbox alone", "63", "some")
		if n, err := strconv.Atoi(strings.TrimSpace(f.Stdout)); want == "63" && n != 63 || err != nil || n < 1 || n > 127 {
			t.Errorf("%s children at a limit of 64 processes: %s", f.Stdout, f.Stderr)
		}
	})
}

// testEnds: how a command ended, in a shell's terms, and the facts about it.
func (s *suite) testEnds(t *testing.T) {
	b := s.start(t, Profile())
	run(t, b,
		python(`f = open(TMP+"/noloader", "w"); f.write("no interpreter"); os.fchmod(f.fileno(),`+
			` 0o755); open(TMP+"/plain", "w")`))
	for _, r := range []struct {
		why  string
		argv []string
		dir  string
		want int
	}{
		{"no such command in PATH", []string{"nosuchcommand"}, "", 127},
		{"no such file", []string{"/usr/bin/nosuchfile"}, "", 127},
		{"a file that may not be executed", []string{"/tmp/plain"}, "", 126},
		{"a name that paints", []string{"nope\x1b[31m\u009b2J\n"}, "", 127},
		{"a folder", []string{"/usr"}, "", 126},
		{"a file that no loader takes", []string{"/tmp/noloader"}, "", 126},
		{"the current folder is not in PATH", []string{"noloader"}, "/tmp", 127},
		{"a working folder that is not there", []string{"true"}, "/nowhere", 127},
		{"true", []string{"true"}, "", 0},
		{"false", []string{"false"}, "", 1},
	} {
		var stream strings.Builder
		f := run(t, b, sandbox.Command{Argv: r.argv, Env: env, Dir: r.dir})
		run(t, b, sandbox.Command{Argv: r.argv, Env: env, Dir: r.dir, Stderr: &stream})
		if f.ExitCode == nil || *f.ExitCode != r.want || f.Signal != nil || (f.Status == facts.OK) != (r.want == 0) {
			t.Errorf("%s: exit %v signal %v status %s, want %d", r.why, deref(f.ExitCode), deref(f.Signal), f.Status, r.want)
		}
		for _, said := range []string{f.Stderr, stream.String()} { // one line, with nothing that a terminal obeys
			if r.want > 1 && (!strings.HasPrefix(said, "waldo: ") || strings.Count(said, "\n") != 1 ||
				strings.ContainsAny(said, "\x1b\u009b")) {
				t.Errorf("%s: stderr %q", r.why, said)
			}
		}
	}
	f := run(t, b, python(`os.kill(os.getpid(), signal.SIGTERM)`))
	if deref(f.Signal) != "SIGTERM" || f.ExitCode != nil {
		t.Errorf("signal %v exit %v", deref(f.Signal), deref(f.ExitCode))
	}
	long := python(`print("up", flush=True); time.sleep(300)`)
	up := make(chan string, 1)
	long.Stdout = &firstLine{to: up}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-up; cancel() }()
	f, err := b.Run(ctx, long)
	if err != nil || f.Status != facts.Cancelled || f.TimedOut || f.Limit != nil {
		t.Errorf("cancelled: %v %s", err, f.Status)
	}
	if _, err := b.Run(context.Background(), python(`pass`)); err == nil {
		t.Error("a sandbox that was ended by force ran again")
	}
	p := Profile()
	p.Limits.Wall = 5 * time.Minute
	slow := s.start(t, p)
	done := make(chan error)
	long.Stdout = &firstLine{to: up}
	go func() {
		_, err := slow.Run(context.Background(), long)
		done <- err
	}()
	select {
	case <-up:
	case err := <-done:
		t.Fatalf("control: it ended by itself: %v", err)
	}
	slow.Close()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("Close did not end the run")
	}
}

// testFiles: files that a sandbox leaves in an exported volume come out, and cannot be used to reach others.
func (s *suite) testFiles(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("SECRET"), 0o644); err != nil {
		t.Fatal(err)
	}
	seed, input := t.TempDir(), t.TempDir()
	if err := errs(os.MkdirAll(filepath.Join(seed, "sub"), 0o755),
		os.WriteFile(filepath.Join(seed, "sub", "old"), []byte("old"), 0o600),
		os.Symlink(secret, filepath.Join(seed, "link")),
		os.WriteFile(filepath.Join(input, "data"), []byte("input"), 0o600)); err != nil {
		t.Fatal(err)
	}
	p := Profile()
	p.Tmpfs[1].Seed = seed
	p.Mounts = []sandbox.Mount{{Source: input, Target: "/workspace/input"}, {Source: secret, Target: "/tmp/shown"},
		{Source: secret, Target: "/workspace/output/mounted"}}
	if s.less {
		p.Mounts = s.shownAsTheyAre(t, p)
	}
	b := s.start(t, p)
	f := run(t, b, python(`
print(open("`+p.Mounts[0].Target+`/data").read(), open("`+p.Mounts[1].Target+`").read(), open(OUT+"/sub/old").read(), os.path.lexists(OUT+"/link"))
attempt(lambda: open("`+p.Mounts[0].Target+`/data", "w"))
attempt(lambda: open("`+p.Mounts[1].Target+`", "w"))
os.chdir(OUT)
open("plain", "w").write("plain"); open("sub/old", "a").write(" and new"); os.mkdir("dir"); open("dir/inner", "w").write("inner")
os.fchmod(os.open("dir/inner", 0), 0); os.fchmod(os.open("dir", 0), 0)
os.symlink("`+secret+`", "absolute"); os.symlink("../../../../`+secret+`", "relative"); os.symlink("/", "folder"); os.symlink("/proc/self/environ", "env")
os.mkfifo("pipe")
try: socket.socket(socket.AF_UNIX).bind("socket")
except OSError: os.mknod("socket", 0o140600)
f = open("sparse", "wb"); f.truncate(10 << 20); g = open("sparse2", "wb"); g.truncate(10 << 20)
os.mkdir("deep"); os.chdir("deep")
for i in range(200): os.mkdir("d" * 50); os.chdir("d" * 50)
open("bottom", "w")
`))
	refused := s.answer("contents of files", "refused EROFS\n", "refused EACCES\n")
	if want := "input SECRET old False\n" + refused + refused; f.Stdout != want || *f.ExitCode != 0 {
		t.Fatalf("got %q, want %q: %s", f.Stdout, want, f.Stderr)
	}
	for _, w := range []string{"/workspace/output/plain", "/workspace/output/sub/old", "/workspace/output/dir/inner"} {
		if !slices.Contains(f.Files.Written, w) {
			t.Errorf("%s is not among the written files %q", w, f.Files.Written)
		}
	}
	odd := []string{"absolute", "relative", "folder", "env", "pipe", "socket"}
	if s.ability["kernel of its own"] {
		odd = odd[:4] // its pipes and sockets are in no filesystem of this machine
	}
	for _, w := range odd {
		if !slices.ContainsFunc(f.Warnings,
			func(s string) bool { return strings.Contains(s, "/workspace/output/"+w+" is") }) {
			t.Errorf("no warning names %s: %q", w, f.Warnings)
		}
	}
	out := t.TempDir()
	if err := errs(os.Symlink(secret, filepath.Join(out, "plain")),
		os.Mkdir(filepath.Join(out, "sub"), 0o755)); err != nil {
		t.Fatal(err)
	}
	copied, err := b.Export("/workspace/output", out)
	if err == nil || !strings.Contains(err.Error(), "plain") || !strings.Contains(err.Error(), "deeper") ||
		!strings.Contains(err.Error(), "sparse") {
		t.Errorf("the file that could not be copied is not named: %v", err)
	}
	slices.Sort(copied)
	if want := []string{"dir/inner", "sparse", "sub/old"}; !slices.Equal(copied, want) {
		t.Errorf("copied %q, want %q", copied, want)
	}
	if got, _ := os.ReadFile(secret); string(got) != "SECRET" {
		t.Errorf("wrote through a link: %q", got)
	}
	if got, _ := os.ReadFile(filepath.Join(out, "sub", "old")); string(got) != "old and new" {
		t.Errorf("sub/old is %q", got)
	}
	err = filepath.WalkDir(out, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !d.Type().IsRegular() && d.Name() != "plain" {
			t.Errorf("%s came out as %v", p, d.Type())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	next := s.start(t, Profile())
	if f := run(t, next,
		python(`print(os.listdir(OUT), os.listdir(TMP)); attempt(lambda: os.listdir("/dev/shm"))`)); f.Stdout != "[] []\n"+
		s.answer("contents of files", "ok []\n", "refused EACCES\n") {
		t.Errorf("the next sandbox sees %s", f.Stdout)
	}
	run(t, next, python(`open(TMP+"/private", "w")`))
	for _, target := range []string{"/tmp", "/dev/shm", "/usr", ""} {
		if _, err := next.Export(target, t.TempDir()); err == nil {
			t.Errorf("%q is not to be exported, and came out", target)
		}
	}
	s.testRemoved(t, b)
}

// testRemoved: removed files and folders are reported, a folder's files before the folder. If a folder cannot
// be read, no removal in it is reported.
func (s *suite) testRemoved(t *testing.T, b sandbox.Sandbox) {
	for _, r := range []struct {
		code string
		gone []string
	}{
		{`os.remove(OUT+"/plain")`, nil},
		{`os.system("rm -rf "+OUT+"/deep")`, nil},
		{`os.remove(OUT+"/sparse"); os.system("rm -r "+OUT+"/sub")`,
			[]string{"/workspace/output/sub/old", "/workspace/output/sub", "/workspace/output/sparse"}},
	} {
		f := run(t, b, python(r.code))
		if f.Files.Removed = slices.DeleteFunc(f.Files.Removed,
			func(n string) bool { return strings.HasPrefix(n, "/workspace/output/deep") }); !slices.Equal(f.Files.Removed,
			r.gone) || *f.ExitCode != 0 {
			t.Errorf("%s: removed %q, want %q: %s", r.code, f.Files.Removed, r.gone, f.Stderr)
		}
	}
}

// shownAsTheyAre proves that such a driver shows nothing at another name, and returns the mounts that it
// does show, whose folders every user may read.
func (s *suite) shownAsTheyAre(t *testing.T, p sandbox.Profile) []sandbox.Mount {
	t.Helper()
	s.answer("folders at their names", "", "")
	s.answer("folders of the owner alone", "", "")
	if b, err := s.driver.Start(context.Background(), p); err == nil {
		t.Errorf("a file is shown at another name: %v", b.Close())
	}
	input, secret := p.Mounts[0].Source, p.Mounts[1].Source
	for _, at := range []string{filepath.Dir(filepath.Dir(secret)), filepath.Dir(secret), input} {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(input, "data"), 0o644); err != nil {
		t.Fatal(err)
	}
	return []sandbox.Mount{{Source: input, Target: input}, {Source: secret, Target: secret}}
}

func errs(e ...error) error {
	for _, err := range e {
		if err != nil {
			return err
		}
	}
	return nil
}

// testNothingLeft: many runs of every kind leave no descriptor and no process.
func (s *suite) testNothingLeft(t *testing.T) {
	s.answer("orphans", "", "")
	tag := "300." + itoa(os.Getpid()) // as no other test's
	once := func() {
		p := Profile()
		p.Limits.Wall = 100 * time.Millisecond
		b, err := s.driver.Start(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = b.Run(context.Background(), sandbox.Command{Argv: []string{"sh", "-c",
			"sleep " + tag + " & setsid sleep " + tag + " & exit 3"}, Env: env})
		_, _ = b.Run(context.Background(), sandbox.Command{Argv: []string{"nosuchcommand"}, Env: env})
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		p.Mounts = []sandbox.Mount{{Source: "/nonexistent", Target: "/mnt"}}
		if _, err := s.driver.Start(context.Background(), p); err == nil {
			t.Error("started with a mount of nothing")
		}
	}
	once()
	fds, procs := count(t, "/proc/self/fd"), childrenOf(t)
	for range 50 {
		once()
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if count(t, "/proc/self/fd") <= fds && childrenOf(t) <= procs && len(sleeping(t, tag)) == 0 {
			break
		}
	}
	if n := count(t, "/proc/self/fd"); n > fds {
		t.Errorf("%d descriptors, %d before", n, fds)
	}
	if n := childrenOf(t); n > procs {
		t.Errorf("%d child processes, %d before", n, procs)
	}
	if left := sleeping(t, tag); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
}

func count(t *testing.T, dir string) int {
	t.Helper()
	e, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}

// sleeping lists the processes of this machine that sleep for that time.
func sleeping(t *testing.T, tag string) (out []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(all) == 0 {
		t.Fatalf("no list of processes: %v", err)
	}
	for _, p := range all {
		if b, _ := os.ReadFile(p); string(b) == "sleep\x00"+tag+"\x00" {
			out = append(out, p)
		}
	}
	return out
}

func childrenOf(t *testing.T) int {
	t.Helper()
	n := 0
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(tasks) == 0 {
		t.Fatalf("no list of child processes: %v", err)
	}
	for _, f := range tasks {
		b, _ := os.ReadFile(f)
		n += len(strings.Fields(string(b)))
	}
	return n
}

// clock: the wall clock of a run is stopped while a human is asked, and ends the run otherwise.
func (s *suite) clock(t *testing.T) {
	p := Profile()
	p.Limits.Wall = time.Second
	for _, asked := range []bool{false, true} {
		sb, err := s.driver.Start(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		clock := &sandbox.Clock{}
		over := func() {}
		if asked {
			over = clock.Stop()
		}
		time.AfterFunc(2500*time.Millisecond, over)
		f, err := sb.Run(t.Context(), sandbox.Command{Argv: []string{"/bin/sleep", "2"}, Env: env, Clock: clock})
		if err != nil {
			t.Error(err)
		}
		if f.TimedOut == asked {
			t.Errorf("asked: %t, timed out: %t", asked, f.TimedOut)
		}
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	}
	sb, err := s.driver.Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	clock := &sandbox.Clock{}
	time.AfterFunc(1500*time.Millisecond, clock.Stop())
	if f, err := sb.Run(t.Context(), sandbox.Command{Argv: []string{"/bin/sleep", "60"}, Env: env, Clock: clock}); err !=
		nil || !f.TimedOut || f.Usage.WallMS < 2000 {
		t.Errorf("after the answer: %+v %v", f, err)
	}
}
