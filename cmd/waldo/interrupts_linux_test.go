package main

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/cgroup"
	"waldo/internal/testing/terminaltest"
)

// interruptRow is a command that takes long.
type interruptRow struct {
	name  string
	setup [][]string // commands before it
	args  []string
	ready string // interrupt also when this was printed
	typed string // and this was typed
	sweep []string
	codes []int // exit codes besides 130
}

// interrupts are the commands that can last over a second.
func interrupts(dir, registry string) []interruptRow {
	config := "--config=" + filepath.Join(dir, "ask.yaml")
	npm := "--config=" + filepath.Join(dir, "npm.yaml")
	remote := "--config=" + filepath.Join(dir, "remote.yaml")
	long := "print('be'+'gun',flush=True)\nimport time\ntime.sleep(60)"
	template := []string{"template", "list"}
	big := [][]string{
		{"sandbox", "create", "work", "--disk-mb", "2000"},
		{"sandbox", "exec", "work", "--", "sh", "-c", "head -c 200M /dev/zero >big"},
	}
	return []interruptRow{
		{name: "run", args: []string{"run", "-c", long}, ready: "begun"},
		{name: "run with hosts", args: []string{"run", "--allow-host", "api.example.com", "-c", long}, ready: "begun"},
		{name: "exec", args: []string{"exec", "--", "sh", "-c", "echo be''gun; sleep 60"}, ready: "begun"},
		{name: "exec in gVisor", args: []string{"exec", "--isolation", "gvisor", "--", "sh", "-c", "echo be''gun; sleep 60"},
			ready: "begun"},
		{name: "exec -t", args: []string{"exec", "-t", "--", "sh", "-c", "echo be''gun; exec sleep 60"}, ready: "begun"},
		{name: "sandbox exec", setup: [][]string{{"sandbox", "create", "work"}},
			args: []string{"sandbox", "exec", "work", "--", "sh", "-c", "echo be''gun; sleep 60"}, ready: "begun"},
		{name: "sandbox snapshot", setup: big, args: []string{"sandbox", "snapshot", "work"}, codes: []int{0}},
		{name: "sandbox cp", setup: big, args: []string{"sandbox", "cp", "work:big", dir}, codes: []int{0}},
		{name: "sandbox port", setup: [][]string{{"sandbox", "create", "work"}},
			args: []string{"sandbox", "port", "work", "3000"}, codes: []int{0}},
		{name: "serve --listen", args: []string{"serve", "--listen", "127.0.0.1:0"}, ready: "http://", codes: []int{0}},
		{name: "serve --stdio", args: []string{"serve", "--stdio"}, codes: []int{0}},
		{name: "call that waits for approval", args: []string{config, "call", "--wait", "60s", "run_python", "code=print(1)"},
			ready: "waldo approve", codes: []int{4}},
		{name: "approve --enroll", args: []string{"approve", "--enroll", "ann"}, ready: "passphrase"},
		{name: "approve --enroll, half a line", args: []string{"approve", "--enroll", "ann"},
			ready: "passphrase", typed: "corr"},
		{name: "secret set", args: []string{"secret", "set", "token"}, ready: ":"},
		{name: "approvals --watch", args: []string{"approvals", "--watch"}},
		{name: "lock, a silent server", args: []string{config, "lock"}},
		{name: "lock --accept, a silent registry", args: []string{npm, "lock", "--accept", "weather"}},
		{name: "tools, a silent server", args: []string{config, "tools"}, codes: []int{0}},
		{name: "login, a silent server", args: []string{remote, "login", "far"}},
		{name: "template pull of an archive", args: []string{"template", "pull", filepath.Join(dir, "root.tar")},
			sweep: template, codes: []int{0}},
		{name: "template pull, a silent registry", args: []string{"template", "pull", registry + "/image:1"},
			sweep: template},
		{
			name: "run --template of an archive",
			args: []string{"run", "--template", filepath.Join(dir, "root.tar"), "-c", "print(1)"}, sweep: template,
			codes: []int{0, 125, 127},
		},
		{name: "prune", args: []string{"prune"}, codes: []int{0}},
		{name: "log --follow", setup: [][]string{{"exec", "true"}}, args: []string{"log", "-f"},
			ready: "CALL", codes: []int{0}},
		{name: "demo", args: []string{"demo"}, codes: []int{0}},
		{name: "doctor", args: []string{"doctor"}, codes: []int{0}},
	}
}

// TestInterrupted: Ctrl-C at a terminal ends every long command within 0.2 s at any moment, restores the terminal, and
// leaves no process, control group, mount, temporary file or half-made folder.
func TestInterrupted(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
	over := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	t.Cleanup(func() { close(over); silent.CloseClientConnections(); silent.Close() })
	dir := t.TempDir()
	interruptFiles(t, dir, silent.URL)
	for _, row := range interrupts(dir, strings.TrimPrefix(silent.URL, "http://")) {
		t.Run(row.name, func(t *testing.T) {
			moments := []time.Duration{0, 30 * time.Millisecond, 120 * time.Millisecond, 500 * time.Millisecond, -1}
			if row.ready == "" {
				moments[4] = 1500 * time.Millisecond
			}
			var took []string
			for _, at := range moments {
				best := time.Hour
				for try := 0; try < 5 && best > 200*time.Millisecond; try++ { // a busy machine is slow, a product always
					best = min(best, interruptOnce(t, row, at, dir))
				}
				took = append(took, strconv.FormatInt(best.Milliseconds(), 10))
				if best > 200*time.Millisecond {
					t.Errorf("at %v: it took %v to end", at, best)
				}
			}
			t.Logf("%s: %s ms", row.name, strings.Join(took, " "))
		})
	}
}

func interruptFiles(t *testing.T, dir, registry string) {
	for name, text := range map[string]string{
		"ask.yaml": "version: 1\ncapabilities:\n  run_python: {transport: sandboxed_exec, mode: read, approval: always}\n" +
			"  quiet.*: {mode: read, approval: none}\nservers:\n  quiet: {command: [/bin/sleep, \"60\"]}\n",
		"npm.yaml": "version: 1\ncapabilities:\n  weather.*: {mode: read, approval: none}\nservers:\n" +
			"  weather: {command: [npx, -y, weather]}\n",
		"remote.yaml": "version: 1\ncapabilities:\n  far.*: {mode: read, approval: none}\nservers:\n  far: {url: \"" +
			registry + "/mcp\", auth: {oauth: {}}}\n",
		".npmrc": "registry=" + registry + "/\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(dir, "root.tar"))
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	for i := range 20 {
		const size = 20 << 20
		if err := w.WriteHeader(&tar.Header{
			Name: fmt.Sprintf("usr/file%d", i), Mode: 0o644, Size: size, Typeflag: tar.TypeReg,
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(w, zeros{}, size); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// interruptOnce runs a command and interrupts it once. It returns the time to its end.
func interruptOnce(t *testing.T, row interruptRow, at time.Duration, home string) time.Duration {
	t.Helper()
	state, tmp := filepath.Join(t.TempDir(), "state"), t.TempDir()
	waldo := func(args []string) *exec.Cmd {
		cmd := exec.Command("waldo", args...) // testscript puts it on PATH
		cmd.Env = append(os.Environ(), "WALDO_STATE="+state, "HOME="+home, "TMPDIR="+tmp, "TERM=vt100")
		cmd.Dir = home
		return cmd
	}
	for _, args := range row.setup {
		if out, err := waldo(args).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v %s", args, err, out)
		}
	}
	before := processesBelow(t)
	person, program := terminaltest.Pair(t)
	mode := terminalMode(t, program)
	seen := &terminaltest.Seen{}
	go seen.Read(person)
	cmd := waldo(row.args)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	prefix, err := cgroup.PrefixOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if time.Sleep(max(at, 0)); at < 0 {
		terminaltest.Until(t, "it does not begin", seen, func() bool { return seen.Has(row.ready) })
		time.Sleep(50 * time.Millisecond)
		_, _ = person.WriteString(row.typed)
		if row.name == "exec" && os.Geteuid() == 0 && len(groupsOf(prefix)) == 0 {
			t.Error("control: root's command has no group of the kernel's while it runs")
		}
	}
	start := time.Now()
	_, _ = person.WriteString("\x03")
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		<-ended
		t.Errorf("at %v: it does not end", at)
	}
	took := time.Since(start)
	killed := cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() // before waldo took the signal over
	if rc := cmd.ProcessState.ExitCode(); !killed && rc != 130 && !slices.Contains(row.codes, rc) {
		t.Errorf("at %v: exit code %d; %s", at, rc, seen.Text())
	}
	if after := terminalMode(t, program); after != mode {
		t.Errorf("at %v: the terminal is another: %+v, before %+v", at, after, mode)
	}
	terminaltest.Until(t, "a process is left", seen, func() bool {
		return !slices.ContainsFunc(processesBelow(t), func(pid int) bool { return !slices.Contains(before, pid) })
	})
	if row.sweep != nil {
		if out, err := waldo(row.sweep).CombinedOutput(); err != nil {
			t.Errorf("%q: %v %s", row.sweep, err, out)
		}
	}
	if left := slices.Concat(groupsOf(prefix), mountsBelow(t, state, tmp)); len(left) > 0 {
		t.Errorf("at %v: groups or mounts are left: %q", at, left)
	}
	if left := halfMade(t, state, tmp); len(left) > 0 {
		t.Errorf("at %v: left behind: %q", at, left)
	}
	return took
}

func terminalMode(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *mode
}

// processesBelow are the children of this process that run; those of ended children become its own.
func processesBelow(t *testing.T) (out []int) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range tasks {
		b, _ := os.ReadFile(f) // a thread that ends has none
		for _, word := range strings.Fields(string(b)) {
			pid, _ := strconv.Atoi(word)
			stat, err := os.ReadFile("/proc/" + word + "/stat")
			if _, after, ok := strings.Cut(string(stat), ") "); err == nil && ok && !strings.HasPrefix(after, "Z") {
				out = append(out, pid)
			}
		}
	}
	return out
}

// halfMade lists temporary files, and half-made ones below the state directory.
func halfMade(t *testing.T, state, tmp string) (left []string) {
	t.Helper()
	for _, root := range []string{state, tmp} {
		_ = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err == nil && name != root &&
				(root == tmp || strings.HasPrefix(d.Name(), ".new-") || strings.HasPrefix(d.Name(), ".seed-") ||
					strings.HasPrefix(d.Name(), ".waldo-")) {
				left = append(left, name)
				if d.IsDir() {
					return fs.SkipDir
				}
			}
			return nil
		})
	}
	return left
}

// groupsOf are the control groups whose names begin so, in any hierarchy and at any depth.
func groupsOf(prefix string) (found []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), prefix) {
			found = append(found, name)
		}
		return nil // a group can go meanwhile
	})
	return found
}

// mountsBelow are the mounts in sight of this process that are below some folders or come from one.
func mountsBelow(t *testing.T, folders ...string) (found []string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if slices.ContainsFunc(folders, func(dir string) bool { return strings.Contains(line, dir) }) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
