//go:build linux && (amd64 || arm64)

package keeper_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/sandbox/procstat"
	"waldo/internal/testing/sandboxtest"
)

// TestShareAsOrdinaryUser runs those tests as a user without rights, who has no cgroup that ends processes.
func TestShareAsOrdinaryUser(t *testing.T) {
	sandboxtest.AsOrdinaryUser(t, "TestPorts", "TestChain", "TestDiffers", "TestLeftover")
}

// command is one command in a sandbox.
type command struct {
	sandbox sandbox.Sandbox
	out     *bufio.Reader
	stop    func()
	done    chan facts.Facts
}

// profile returns that of a sandbox whose commands share what is in dir; empty: nothing.
func profile(dir string) sandbox.Profile {
	p := sandboxtest.Profile()
	if dir != "" {
		p.Share = &sandbox.Share{Dir: dir}
	}
	return p
}

// start starts a Python command, by a driver of its own as another waldo has one, and waits for its first line.
func start(t *testing.T, p sandbox.Profile, code string) *command {
	t.Helper()
	sb, err := namespace.New(namespace.Options{}).Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	out, w := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	c := &command{sandbox: sb, out: bufio.NewReader(out), stop: cancel, done: make(chan facts.Facts, 1)}
	go func() {
		f, err := sb.Run(ctx, sandbox.Command{Argv: []string{"/usr/bin/python3", "-u", "-c", code},
			Env: []string{"PATH=/usr/bin:/bin", "SECRET=hidden"}, Stdout: w, Stderr: w})
		if err != nil {
			t.Error(err)
		}
		w.Close()
		c.done <- f
	}()
	t.Cleanup(func() { cancel(); go io.Copy(io.Discard, out); c.end() })
	if line, err := c.out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q %v", line, err)
	}
	return c
}

// end closes the sandbox of the command, once.
func (c *command) end() { _ = c.sandbox.Close() }

// run runs a Python command to its end and returns what it wrote.
func run(t *testing.T, p sandbox.Profile, code string) string {
	t.Helper()
	sb, err := namespace.New(namespace.Options{}).Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	f, err := sb.Run(t.Context(), sandbox.Command{Argv: []string{"/usr/bin/python3", "-c", code},
		Env: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	return f.Stdout + f.Stderr
}

const serve = `
import socket
l = socket.create_server(("127.0.0.1", 7000))
six = socket.create_server(("::1", 7001), family=socket.AF_INET6)
print("ready")
while True:
    c, _ = l.accept(); c.sendall(b"hello"); c.close()
`

const dial = `
import socket
try: print(socket.create_connection(("127.0.0.1", 7000), 5).recv(100).decode())
except OSError as e: print(type(e).__name__)
`

// list prints the numbers of all processes with the word in their command line, other than its own.
const list = `
import os
def found(word):
    out = []
    for n in os.listdir("/proc"):
        if n.isdigit() and int(n) != os.getpid():
            try: text = open(f"/proc/{n}/cmdline").read()
            except OSError: continue
            if word in text: out.append(int(n))
    return sorted(out)
`

// TestPorts: a later command reaches the port of one that runs, and one of another sandbox does not.
func TestPorts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	start(t, profile(dir), serve)
	if got := run(t, profile(dir), dial); got != "hello\n" {
		t.Errorf("a command of the same sandbox: %q", got)
	}
	for what, p := range map[string]sandbox.Profile{"another sandbox": profile(filepath.Join(t.TempDir(), "run")),
		"a sandbox that shares nothing": profile("")} {
		if got := run(t, p, dial); got != "ConnectionRefusedError\n" {
			t.Errorf("%s: %q", what, got)
		}
	}
}

// processes skips where commands share no processes.
func processes(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user has no cgroup here")
	}
}

// TestProcesses: a command sees and signals those of another, and gets nothing else of them.
func TestProcesses(t *testing.T) {
	processes(t)
	dir := filepath.Join(t.TempDir(), "run")
	first := start(t, profile(dir),
		"mark = 'sesame'; import time, os; open('/tmp/own', 'w').write('x'); print('ready'); time.sleep(100)")
	look := list + `
pids = found("sesame")
print(len(pids))
def attempt(what, f):
    try: f(); print(what, "GOT")
    except OSError as e: print(what, type(e).__name__)
for pid in pids:
    attempt("environ", lambda: open(f"/proc/{pid}/environ").read(1))
    attempt("memory", lambda: open(f"/proc/{pid}/mem", "rb"))
    attempt("files", lambda: os.listdir(f"/proc/{pid}/root/tmp"))
    attempt("descriptors", lambda: os.readlink(f"/proc/{pid}/fd/1"))
    attempt("keeper", lambda: os.listdir("/proc/1/root"))
`
	control := "import subprocess, time\np = subprocess.Popen(['/usr/bin/python3', '-c', 'mark = \"sesame\"; " +
		"import time; time.sleep(50)'])\ntime.sleep(1)\n" + look
	if got := run(t, profile(""), control); !strings.Contains(got,
		"environ GOT\nmemory GOT\nfiles GOT\ndescriptors GOT\n") {
		t.Fatalf("control, of a process of its own: %q", got)
	}
	want := "1\nenviron PermissionError\nmemory PermissionError\nfiles PermissionError\ndescriptors PermissionError\n" +
		"keeper PermissionError\n"
	if got := run(t, profile(dir), look); got != want {
		t.Errorf("of another command: %q", got)
	}
	if got := run(t, profile(dir),
		"print(open('/proc/1/mountinfo').read() + open('/proc/1/cmdline').read())"); strings.Contains(got, "/usr") ||
		strings.Contains(got, "/dev") {
		t.Errorf("the first process says of the machine %q", got)
	}
	other := "import os; print([n for n in os.listdir('/proc') if not n.isdigit() and 'self' not in n])"
	if got := run(t, profile(dir), other); got != "[]\n" {
		t.Errorf("/proc has beside processes %q", got)
	}
	if got := run(t, profile(dir), list+"os.kill(found('sesame')[0], 15); print('sent')"); got != "sent\n" {
		t.Errorf("a signal: %q", got)
	}
	select {
	case f := <-first.done:
		if f.Signal == nil || *f.Signal != "SIGTERM" {
			t.Errorf("%+v", f)
		}
	case <-time.After(20 * time.Second):
		t.Error("the other command was not signalled")
	}
}

// TestChain: the namespaces live as long as any command, whichever came first, and no longer.
func TestChain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	first := start(t, profile(dir), "import time; print('ready'); time.sleep(100)")
	start(t, profile(dir), serve)
	first.stop()
	<-first.done
	first.end()
	if got := run(t, profile(dir), dial); got != "hello\n" {
		t.Errorf("after the end of the first: %q", got)
	}
}

// TestDiffers: a command that may touch other things than those that run is refused, and starts when they have ended.
func TestDiffers(t *testing.T) {
	dir, shown := filepath.Join(t.TempDir(), "run"), t.TempDir()
	other := profile(dir)
	other.Mounts = []sandbox.Mount{{Source: shown, Target: "/shown"}}
	first := start(t, profile(dir), "import time; print('ready'); time.sleep(100)")
	if b, err := namespace.New(namespace.Options{}).Start(t.Context(), other); !errors.Is(err, sandbox.ErrDiffers) {
		t.Errorf("%v %v", b, err)
	}
	first.stop()
	<-first.done
	first.end()
	if got := run(t, other, "import os; print(os.path.isdir('/shown'))"); got != "True\n" {
		t.Errorf("alone: %q", got)
	}
	narrow := profile(dir)
	narrow.Network.Hosts, narrow.Network.Ports = []string{"example.com"}, []uint16{443}
	narrow.Network.Serve = func(sandbox.Egress) io.Closer { return io.NopCloser(nil) }
	if b, err := namespace.New(namespace.Options{}).Start(t.Context(), narrow); err == nil {
		t.Errorf("an egress is shared: %v", b)
	}
}

// leave leaves a process behind that has left its session and its parent.
const leave = `
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv("/usr/bin/python3", ["python3", "-c", "mark = 'straggler'; import time; time.sleep(600)"])
    os._exit(0)
os.wait(); time.sleep(.5)
`

// TestLeftover: processes that a command leaves running end with it, and other commands continue.
func TestLeftover(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	start(t, profile(dir), serve)
	control := leave + list + "print(len(found('straggler')))"
	if got := run(t, profile(dir), control); got != "1\n" {
		t.Fatalf("control, while its command runs: %q", got)
	}
	if got := run(t, profile(dir), list+"print(len(found('straggler')))"); got != "0\n" {
		t.Errorf("after its command: %q", got)
	}
	if got := run(t, profile(dir), dial); got != "hello\n" {
		t.Errorf("the other command: %q", got)
	}
}

// TestLimits: each command has its own limits. One that is ended for memory, or counts to its limit of processes,
// takes nothing from another.
func TestLimits(t *testing.T) {
	processes(t)
	dir := filepath.Join(t.TempDir(), "run")
	start(t, profile(dir), serve)
	small := profile(dir)
	small.Limits.Memory, small.Limits.Pids = 64<<20, 5
	sb, err := namespace.New(namespace.Options{}).Start(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	f, err := sb.Run(t.Context(), sandbox.Command{Argv: []string{"/usr/bin/python3", "-c", "x = bytearray(300 << 20)"}})
	if err != nil || !f.OOMKilled {
		t.Errorf("memory: %+v %v", f, err)
	}
	forks := "import subprocess\nn = 0\ntry:\n  while n < 20: subprocess.Popen(['/bin/sleep', '9']); n += 1\n" +
		"except OSError: pass\nprint(n)"
	if got := run(t, small, forks); got != "4\n" {
		t.Errorf("processes: %q", got)
	}
	if got := run(t, profile(dir), forks); got != "20\n" {
		t.Errorf("processes of another command: %q", got)
	}
	if got := run(t, profile(dir), dial); got != "hello\n" {
		t.Errorf("the other command: %q", got)
	}
}

// TestKilledWaldo: processes of a killed waldo end at once, also if other commands continue.
func TestKilledWaldo(t *testing.T) {
	processes(t)
	if dir := os.Getenv("WALDO_TEST_SHARED"); dir != "" {
		c := start(t, profile(dir), leave+"print('ready'); time.sleep(600)")
		fmt.Println("up")
		<-c.done
		return
	}
	dir := filepath.Join(t.TempDir(), "run")
	start(t, profile(dir), serve)
	c := exec.Command("/proc/self/exe", "-test.run", "^TestKilledWaldo$")
	c.Env = append(os.Environ(), "WALDO_TEST_SHARED="+dir)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		t.Fatalf("%q %v", line, err)
	}
	// A command that runs already looks: a waldo that starts would sweep up what others have left.
	look := start(t, profile(dir), list+"import time\nassert found('straggler')\nprint('ready')\nend = time.time() + 10\n"+
		"while found('straggler') and time.time() < end: time.sleep(.05)\nprint(len(found('straggler')))")
	_ = c.Process.Kill()
	got, err := look.out.ReadString('\n')
	_ = c.Wait() // not before: another waldo of this machine would remove the files of a process that has ended
	if got != "0\n" {
		t.Errorf("after its waldo was killed: %q %v", got, err)
	}
	if got := run(t, profile(dir), dial); got != "hello\n" {
		t.Errorf("the other command: %q", got)
	}
}

// TestOthersLimits: a command lowers neither limits nor priority of another, and its own as it likes.
func TestOthersLimits(t *testing.T) {
	processes(t)
	dir := filepath.Join(t.TempDir(), "run")
	start(t, profile(dir), "mark = 'sesame'; import time; print('ready'); time.sleep(100)")
	look := list + `
import resource
def attempt(what, f):
    try: f(); print(what, "DONE")
    except OSError as e: print(what, type(e).__name__)
def lower(pid):
    attempt("prlimit", lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (9, 9)))
    attempt("setpriority", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    attempt("scheduler", lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)))
    attempt("affinity", lambda: os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))}))
`
	child := look + `
import subprocess
p = subprocess.Popen(["/usr/bin/sleep", "50"])
lower(p.pid)
p.kill()
`
	done := "prlimit DONE\nsetpriority DONE\nscheduler DONE\naffinity DONE\n"
	if got := run(t, profile(""), child); got != done {
		t.Fatalf("control, in a sandbox that shares nothing: %q", got)
	}
	want := "prlimit PermissionError\nsetpriority PermissionError\nscheduler PermissionError\naffinity PermissionError\n"
	if got := run(t, profile(dir), look+"lower(found('sesame')[0])"); got != want {
		t.Errorf("another command: %q", got)
	}
	if got := run(t, profile(dir), look+"lower(0)"); got != done {
		t.Errorf("itself: %q", got)
	}
}

// TestStartIsUnseen: a command that looks at every process from its first moment on sees nothing of the machine while
// another command starts: no mount, and in the names of cgroups no number of a process.
func TestStartIsUnseen(t *testing.T) {
	processes(t)
	dir := filepath.Join(t.TempDir(), "run")
	watch := start(t, profile(dir), `
import os, time
print("ready")
seen, mounts, groups = set(), set(), set()
end = time.time() + 40
while time.time() < end and not os.path.exists("/workspace/output/stop"):
    for n in os.listdir("/proc"):
        if not n.isdigit() or int(n) in (1, os.getpid()): continue
        try:
            mounts.update(open(f"/proc/{n}/mountinfo").read().splitlines())
            groups.update(open(f"/proc/{n}/cgroup").read().splitlines())
            seen.add(n)
        except OSError: pass
    if len(seen) >= 20: break
print(len(seen), "processes")
print("\\n".join(sorted(mounts)))
print("\\n".join(sorted(groups)))
print("end")
`)
	for range 20 {
		if got := run(t, profile(dir), "import os, time; time.sleep(.2); print(os.getpid())"); got == "" {
			t.Fatal("no command ran")
		}
	}
	for _, pid := range procstat.Children(os.Getpid()) {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if strings.Contains(string(stat), ") Z ") {
			t.Errorf("process %d was not reaped: %s", pid, stat)
		}
	}
	host, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || !strings.Contains(string(host), " - ") {
		t.Fatalf("control: this machine's own table: %q %v", host, err)
	}
	var text strings.Builder
	for {
		line, err := watch.out.ReadString('\n')
		text.WriteString(line)
		if err != nil || line == "end\n" {
			break
		}
	}
	got := text.String()
	var seen int
	if _, err := fmt.Sscan(got, &seen); err != nil || seen < 10 {
		t.Fatalf("the watcher saw %d processes: %q", seen, got)
	}
	if strings.Contains(got, " - ") { // of a line of mountinfo, before the kind of file system
		t.Errorf("it saw mounts: %s", got)
	}
	if pid := fmt.Sprint(os.Getpid()); strings.Contains(got, "-"+pid+"-") || !strings.Contains(got, "/waldo-") {
		t.Errorf("it saw of cgroups: %s", got)
	}
}

// TestManyMounts: commands with many mounts of long names find each other as others do, and one that may touch other
// things is refused.
func TestManyMounts(t *testing.T) {
	dir, shown := filepath.Join(t.TempDir(), "run"), t.TempDir()
	p := profile(dir)
	for i := range 12 {
		p.Mounts = append(p.Mounts, sandbox.Mount{
			Source: shown, Target: fmt.Sprintf("/shown%s%d", strings.Repeat("/"+strings.Repeat("long", 50), 3), i),
		})
	}
	start(t, p, serve)
	if got := run(t, p, dial); got != "hello\n" {
		t.Errorf("another with the same mounts: %q", got)
	}
	p.Mounts = p.Mounts[1:]
	if _, err := namespace.New(namespace.Options{}).Start(t.Context(), p); !errors.Is(err, sandbox.ErrDiffers) {
		t.Errorf("another with fewer: %v", err)
	}
}

// TestFirstProcess: the first process of the shared PID namespace, which has powers over it while it is made, has none
// left when a command sees it, and belongs to no session of waldo's.
func TestFirstProcess(t *testing.T) {
	processes(t)
	look := `
import os
status = dict(l.split(":\t", 1) for l in open("/proc/1/status").read().splitlines() if ":\t" in l)
print(*(status[k].strip("0 ") for k in ("CapInh", "CapPrm", "CapEff", "CapAmb")), sep=",")
print(status["NoNewPrivs"], "session", open("/proc/1/stat").read().rsplit(")", 1)[1].split()[3])
print("owned by its user:", os.stat("/proc/1/status").st_uid == os.getuid())
print(open("/proc/self/setgroups").read(), end="")
`
	if got, want := run(t, profile(filepath.Join(t.TempDir(), "run")), look),
		",,,\n1 session 1\nowned by its user: False\ndeny\n"; got != want {
		t.Errorf("%q, wanted %q", got, want)
	}
}

// TestFirstProcessHolds: the first process of the shared PID namespace has open nothing but waldo's socket, so that the
// namespaces end with the last waldo. The control is this process, which has more.
func TestFirstProcessHolds(t *testing.T) {
	processes(t)
	c := start(t, profile(filepath.Join(t.TempDir(), "run")), "import time; print('ready'); time.sleep(100)")
	space := func(pid string) string {
		link, _ := os.Readlink("/proc/" + pid + "/ns/pid")
		return link
	}
	open := func(pid string) (to []string) {
		names, err := filepath.Glob("/proc/" + pid + "/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names[min(3, len(names)):] { // 0 to 2 are /dev/null
			link, _ := os.Readlink(name)
			to = append(to, strings.TrimRight(link, "0123456789]"))
		}
		return to
	}
	if got := open("self"); len(got) < 2 {
		t.Fatalf("control: %q", got)
	}
	within, found := space(fmt.Sprint(c.sandbox.Abilities().PID())), 0
	all, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, name := range all {
		pid := filepath.Base(filepath.Dir(name))
		status, _ := os.ReadFile(name)
		_, numbers, _ := strings.Cut(string(status), "NSpid:")
		numbers, _, _ = strings.Cut(numbers, "\n")
		if space(pid) != within || !strings.HasSuffix(numbers, "\t1") {
			continue
		}
		found++
		if got := open(pid); len(got) != 1 || got[0] != "socket:[" {
			t.Errorf("it has open %q", got)
		}
	}
	if found != 1 {
		t.Errorf("%d first processes", found)
	}
}

// TestAtOnce: commands that start at the same moment share one set of namespaces.
func TestAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	said := make(chan string)
	for range 5 {
		go func() {
			sb, err := namespace.New(namespace.Options{}).Start(t.Context(), profile(dir))
			if err != nil {
				said <- err.Error()
				return
			}
			f, err := sb.Run(t.Context(), sandbox.Command{Argv: []string{"/usr/bin/readlink", "/proc/self/ns/net"}})
			said <- fmt.Sprint(f.Stdout, err)
			time.Sleep(2 * time.Second) // the others have started by then
			_ = sb.Close()
		}()
	}
	first := <-said
	for range 4 {
		if got := <-said; got != first || !strings.HasPrefix(got, "net:[") {
			t.Errorf("network %q and %q", first, got)
		}
	}
}
