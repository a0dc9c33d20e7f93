//go:build linux

package sandboxtest

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
)

// tenant is a command that creates objects which others could find, under a name and a key of shared memory. It
// prints its number and its folder, and stays.
func tenant(name string, key int) sandbox.Command {
	return python(`
os.setpgrp() if os.getpid() != os.getpgrp() else None
open(TMP+"/` + name + `", "w").write("secret of a tenant")
try: shm = call(29 if os.uname().machine == "x86_64" else 194, ` + itoa(key) + `, 4096, 0o1666)
except OSError: shm = -1
try: s = socket.socket(socket.AF_UNIX); s.bind("\0` + name + `"); s.listen(1)
except OSError: pass
print(os.getpid(), TMP, flush=True)
time.sleep(300)`)
}

// looksFor is code that says what it finds of a tenant.
func looksFor(name string, key int, folder string, pids ...string) string {
	return `
def sees(what, f):
    try: print(what, f())
    except OSError: pass
sees("file", lambda: open("` + folder + `/` + name + `").read())
for p in [` + strings.Join(pids, ", ") + `]:
    if p > 2 and p != os.getpid():
        sees("signalled", lambda: os.kill(p, 0))
        sees("looked at", lambda: open("/proc/%d/cmdline" % p).read().count("tenant"))
sees("shared memory", lambda: call(29 if os.uname().machine == "x86_64" else 194, ` + itoa(key) + `, 4096, 0o666))
def meet():
    c = socket.socket(socket.AF_UNIX); c.connect("\0` + name + `"); return "met"
sees("socket", meet)
`
}

// outside is a command as it would be without a sandbox.
func outside(t *testing.T, c sandbox.Command) *exec.Cmd {
	cmd := exec.Command("/usr/bin/"+c.Argv[0], c.Argv[1:]...)
	cmd.Env = append(slices.Clone(c.Env), "HOME="+t.TempDir())
	return cmd
}

// testTenants: two sandboxes side by side cannot see, signal or slow one another beyond their share, nor what
// is in no sandbox; two commands without sandboxes can.
func (s *suite) testTenants(t *testing.T) {
	s.answer("processors", "", "")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sandboxed, free := "tenant."+itoa(os.Getpid()), "free."+itoa(os.Getpid())
	key := 0x7a1d0000 | os.Getpid()&0x7fff<<1
	p := Profile()
	p.Tmpfs[0].Export, p.Limits.Wall = true, 5*time.Minute
	other, up := s.start(t, p), make(chan string, 2)
	done := make(chan facts.Facts, 1)
	go func() {
		c := tenant(sandboxed, key)
		c.Stdout = &firstLine{to: up}
		f, _ := other.Run(ctx, c)
		done <- f
	}()
	told := func() (pid, folder string) {
		select {
		case line := <-up:
			pid, folder, _ = strings.Cut(line, " ")
		case <-time.After(time.Minute):
			t.Fatal("control: the other tenant does not start")
		}
		return pid, folder
	}
	pid, folder := told()
	host := below(os.Getpid())
	if len(host) == 0 {
		t.Fatal("control: the other tenant is not there")
	}
	neighbour := outside(t, tenant(free, key+1))
	neighbour.Stdout = &firstLine{to: up}
	if err := neighbour.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- neighbour.Wait() }()
	t.Cleanup(func() {
		if shm, err := unix.SysvShmGet(key+1, 4096, 0); err == nil {
			_, _ = unix.SysvShmCtl(shm, unix.IPC_RMID, nil)
		}
	})
	freePID, freeFolder := told()
	sees := looksFor(free, key+1, freeFolder, freePID)
	all, _ := outside(t, python(sees)).CombinedOutput()
	for _, what := range []string{"file secret of a tenant\n", "signalled None\n", "looked at ", "shared memory ",
		"socket met\n"} {
		if !strings.Contains(string(all), what) {
			t.Errorf("control: one command without a sandbox of another: %q is not in %q", what, all)
		}
	}
	f := run(t, s.start(t, Profile()), python(sees+looksFor(sandboxed, key, folder, append(host, pid)...)+`
open(TMP+"/own", "w").write("x")
print("control", open(TMP+"/own").read())
child = os.fork()
if not child: time.sleep(300)
os.kill(-1, 9)
print("control", os.WTERMSIG(os.waitpid(child, 0)[1]))
`))
	if f.Stdout != "control x\ncontrol 9\n" {
		t.Errorf("one tenant of the others: %q %s", f.Stdout, f.Stderr)
	}
	select {
	case err := <-gone:
		t.Errorf("a process outside any sandbox was ended: %v", err)
	default:
		_ = neighbour.Process.Kill()
		<-gone
	}
	cancel()
	if f := <-done; f.Status != facts.Cancelled {
		t.Errorf("the other tenant was disturbed: %s %v %s", f.Status, deref(f.Signal), f.Stderr)
	}
	s.share(t)
}

// share: however many processes a sandbox has, it gets the processors of one sandbox, and not as many as they
// would take.
func (s *suite) share(t *testing.T) {
	t.Helper()
	burn := func(long string) sandbox.Command {
		return python("for i in range(3): os.fork()\nend = time.time() + " + long +
			"\nwhile time.time() < end: pass\ntry:\n  while 1: os.wait()\nexcept OSError: pass")
	}
	said := false
	for range 10 {
		began, cmd := time.Now(), outside(t, burn("0.3"))
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		if used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(); used > time.Since(began)*13/10 {
			said = true
			break
		}
	}
	if !said { // one processor, or a machine that others keep busy, as the tests beside this one may
		t.Log("control: eight processes without a sandbox do not get more than one processor here, so the sandbox's share " +
			"is not checked")
	}
	f := run(t, s.start(t, Profile()), burn("1"))
	if used := f.Usage.CPUMS / f.Usage.WallMS; used > 1.2 || f.Usage.CPUMS < 10 {
		t.Errorf("eight processes that burn for a second used %.2f processors, %.0f ms", used, f.Usage.CPUMS)
	}
}

// below lists the descendants of a process.
func below(pid int) (out []string) {
	tasks, _ := filepath.Glob("/proc/" + itoa(pid) + "/task/*/children")
	for _, t := range tasks {
		b, _ := os.ReadFile(t)
		for _, child := range strings.Fields(string(b)) {
			n, _ := strconv.Atoi(child)
			out = append(append(out, child), below(n)...)
		}
	}
	return out
}

// alive leaves out the processes that have ended.
func alive(pids []string) (out []string) {
	for _, p := range pids {
		b, _ := os.ReadFile("/proc/" + p + "/stat")
		if _, after, ok := strings.Cut(string(b), ") "); ok && !strings.HasPrefix(after, "Z") {
			out = append(out, p)
		}
	}
	return out
}

// firstLine sends the first line that is written to it.
type firstLine struct {
	to  chan<- string
	got string
}

func (f *firstLine) Write(b []byte) (int, error) {
	if !strings.Contains(f.got, "\n") {
		if f.got += string(b); strings.Contains(f.got, "\n") {
			line, _, _ := strings.Cut(f.got, "\n")
			f.to <- line
		}
	}
	return len(b), nil
}

// testBombs: while one sandbox does its worst, the next sandbox works, and afterwards nothing is left.
func (s *suite) testBombs(t *testing.T) {
	tag := "301." + itoa(os.Getpid())
	for _, r := range []struct{ why, code string }{
		{"forks", "while 1:\n  try: os.fork() or os.setsid()\n  except OSError: pass"},
		{"sleepers", "import subprocess\nwhile 1:\n  try: subprocess.Popen(['sleep', '" + tag +
			"'], start_new_session=True)\n  except OSError: pass"},
		{"memory", "x = []\nwhile 1: x.append(b'x' * (8 << 20))"},
		{"disk", "f = open(TMP+'/f', 'wb')\nwhile 1:\n  try: f.write(b'x' * 65536); f.flush()\n  except OSError: f.seek(0)"},
		{"inodes", "n = 0\nwhile 1:\n  n += 1\n  try: open(TMP+'/%d' % n, 'w')\n  except OSError: pass"},
		{"output", "while 1: os.write(1 + os.getpid() % 2, b'x' * 65536)"},
		{"descriptors", "import itertools\nx = []\nwhile 1:\n  try: x += os.pipe()\n  except OSError: pass"},
	} {
		p := Profile()
		p.Limits.Wall = 700 * time.Millisecond
		bomb, ended := s.start(t, p), make(chan facts.Facts, 1)
		go func() {
			f, err := bomb.Run(context.Background(), python(r.code))
			if err != nil {
				t.Errorf("%s: %v", r.why, err)
			}
			ended <- f
		}()
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		if f := run(t, s.start(t, Profile()),
			sandbox.Command{Argv: []string{"sh", "-c", "echo works"}, Env: env}); f.Stdout != "works\n" {
			t.Errorf("%s: a sandbox beside it: %s %q %q after %s", r.why, f.Status, f.Stdout, f.Stderr, time.Since(began))
		}
		if f := <-ended; f.Status == facts.OK || f.Usage.WallMS > 40_000 { // ended by its limit, and not by the sandbox's end
			t.Errorf("%s: %s after %.0f ms", r.why, f.Status, f.Usage.WallMS)
		}
		if left := sleeping(t, tag); len(left) > 0 {
			t.Errorf("%s: left running: %v", r.why, left)
		}
		if err := bomb.Close(); err != nil {
			t.Errorf("%s: %v", r.why, err)
		}
	}
}

// Killed is for a test of that name: a waldo that is killed leaves nothing running at once, and nothing at all
// soon after the next one has started a sandbox. first makes the driver anew.
func Killed(t *testing.T, test string, first func() sandbox.Driver) {
	const key = "WALDO_TEST_KILLED"
	if os.Getenv(key) != "" {
		b, err := first().Start(context.Background(), Profile())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = b.Run(context.Background(), sandbox.Command{Argv: []string{"sh", "-c",
			"setsid sleep 300 & echo started; sleep 300"}, Env: env, Stdout: os.Stdout})
		return
	}
	temp := t.TempDir()
	for _, dir := range []string{filepath.Dir(temp), temp} { // the sandbox's user goes through it
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("/proc/self/exe", "-test.run", "^"+test+"$", "-test.v")
	c.Env = append(os.Environ(), key+"=1", "TMPDIR="+temp)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "started" {
	}
	made := below(c.Process.Pid)
	if !stuck.Stop() || len(made) == 0 {
		t.Fatalf("control: the command does not start: %v", made)
	}
	groups, err := cgroup.PrefixOf(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	for end := time.Now().Add(time.Minute); len(alive(made)) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("left running: %v of %v", alive(made), made)
		}
	}
	t.Setenv("TMPDIR", temp)
	b, err := first().Start(context.Background(), Profile())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	after := leftovers(temp, groups)
	for end := time.Now().Add(time.Minute); len(after) > 0 && time.Now().Before(end); { // a start does not wait for it
		time.Sleep(20 * time.Millisecond)
		after = leftovers(temp, groups)
	}
	if len(after) > 0 {
		t.Errorf("left after the next start: %v", after)
	}
}

// leftovers lists what sandboxes are made of outside themselves: folders in a temporary folder, groups of a
// process by the prefix of their names, mounts.
func leftovers(temp, groups string) (out []string) {
	out, _ = filepath.Glob(filepath.Join(temp, "waldo*"))
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), groups) {
			out = append(out, p)
		}
		return nil
	})
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "waldo") {
			out = append(out, line)
		}
	}
	return out
}
