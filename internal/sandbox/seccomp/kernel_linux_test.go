package seccomp

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestMain also serves as the child that puts itself under the filter and becomes another program.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "under-filter" {
		fmt.Fprintln(os.Stderr, underFilter(os.Args[2:]))
		os.Exit(125)
	}
	os.Exit(m.Run())
}

func underFilter(argv []string) error {
	runtime.LockOSThread()
	prog, err := Compile(Host(), everything)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	fprog := unix.SockFprog{Len: uint16(prog.Len()), Filter: (*unix.SockFilter)(unsafe.Pointer(&prog[0]))}
	const syncThreads = 1
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, 1, syncThreads, uintptr(unsafe.Pointer(&fprog))); e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	exe, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	return unix.Exec(exe, argv, os.Environ())
}

// The kernel takes the filter, and programs that agents' code uses run under it.
func TestProgramsRunUnderTheFilter(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	rows := []struct {
		name string
		argv []string
		want string
	}{
		{"shell and pipes", []string{"sh", "-c", "echo one two | wc -w | tr -d ' '"}, "2"},
		{"python", []string{"python3", "-c", `
import subprocess, threading, socket, tempfile, asyncio, multiprocessing, os, json
t = threading.Thread(target=lambda: None); t.start(); t.join()
subprocess.run(["true"], check=True)
socket.socketpair(); socket.getaddrinfo("localhost", 80)
async def f(): p = await asyncio.create_subprocess_exec("true"); return await p.wait()
assert asyncio.run(f()) == 0
with multiprocessing.Pool(2) as p: assert p.map(abs, [-1, -2]) == [1, 2]
print("ok")`}, "ok"},
		{"node", []string{"node", "-e", `
const {Worker} = require("worker_threads"), cp = require("child_process"), os = require("os"), fs = require("fs");
os.networkInterfaces(); cp.execFileSync("true");
new Worker("1", {eval: true}).on("exit", () => fs.promises.readFile("/etc/passwd").then(() => console.log("ok")))`},
			"ok"},
		{"bash jobs", []string{"bash", "-c", "sleep 0 & wait; [[ $(cat <(echo x)) == x ]] && echo ok"}, "ok"},
		{"git", []string{"sh", "-c",
			"cd $(mktemp -d) && git init -q . && echo a > a && git add a && git -c user.name=a -c user.email=a@b commit -qm a " +
				"&& git log --oneline | wc -l | tr -d ' '; rm -rf $PWD"}, "1"},
		{"gcc", []string{"sh", "-c",
			"cd $(mktemp -d) && echo 'int main(){return 42;}' > a.c && gcc -o a a.c && ./a; echo $?; rm -rf $PWD"}, "42"},
		{"curl from a file", []string{"sh", "-c", "curl -s file:///etc/passwd | head -1 | cut -d: -f1"}, "root"},
		{"npm", []string{"sh", "-c", "npm --version >/dev/null && echo ok"}, "ok"},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			tool := r.argv[0]
			if f := strings.Fields(r.name)[0]; tool == "sh" && f != "shell" {
				tool = f
			}
			if _, err := exec.LookPath(tool); err != nil {
				t.Skipf("%s is not installed here", tool)
			}
			cmd := exec.Command(self, append([]string{"under-filter"}, r.argv...)...)
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "HOME="+filepath.Join(cmd.Dir))
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != r.want {
				t.Errorf("%v: %q, want %q", err, got, r.want)
			}
		})
	}
}

// The kernel answers as Run does; the control is the same question without the filter.
func TestKernelRefuses(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const ask = `
import ctypes, sys
L = ctypes.CDLL(None, use_errno=True)
r = L.syscall(*[ctypes.c_long(int(a)) for a in sys.argv[1:]])
print(r if r >= 0 else "errno %d" % ctypes.get_errno())`
	nr := func(name string) string { n, _ := Host().Number(name); return fmt.Sprint(n) }
	rows := []struct {
		why           string
		args          []string
		without, with string
	}{
		{"a Unix socket with dirty upper bits is still one", []string{nr("socket"), "1099511627777", "1", "0"}, "3", "3"},
		{"MPTCP", []string{nr("socket"), "2", "1", "262"}, "3", "errno 93"},
		{"netlink for audit with dirty upper bits", []string{nr("socket"), "1099511627792", "3", "15"}, "3", "errno 97"},
		{"hidden memory", []string{nr("memfd_secret"), "0"}, "3", "errno 1"},
		{"clone3 falls back", []string{nr("clone3"), "0", "0"}, "errno 22", "errno 38"},
		{"statmount", []string{nr("statmount"), "0", "0", "0", "0"}, "errno 14", "errno 1"},
		{"sync pretends", []string{nr("syncfs"), "-1"}, "errno 9", "0"},
		{"a call that no kernel has", []string{"900"}, "errno 38", "errno 38"},
	}
	for _, r := range rows {
		argv := append([]string{"python3", "-c", ask}, r.args...)
		bare, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		if got := strings.TrimSpace(string(bare)); err != nil ||
			got != r.without && !strings.HasPrefix(got, "errno 38") && !strings.HasPrefix(got, "errno 93") {
			t.Errorf("control: %s: %q without the filter, want %q (%v)", r.why, got, r.without, err)
		}
		out, err := exec.Command(self, append([]string{"under-filter"}, argv...)...).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != r.with {
			t.Errorf("%s: %q under the filter, want %q (%v)", r.why, got, r.with, err)
		}
	}
}
