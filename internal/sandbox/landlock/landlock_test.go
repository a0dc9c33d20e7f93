//go:build linux

package landlock

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain also serves as the child that restricts itself and then tries one thing:
// "under RULES THING ARG", where RULES are letters that lift a wall.
func TestMain(m *testing.M) {
	if len(os.Args) > 4 && os.Args[1] == "under" {
		runtime.LockOSThread()
		if err := restrict(os.Args[2], os.Args[5:]); err != nil {
			fmt.Println("restrict:", err)
			os.Exit(1)
		}
		fmt.Println(try(os.Args[3], os.Args[4]))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// restrict puts this thread under the rules; "bare" under none.
func restrict(rules string, paths []string) error {
	if rules == "bare" {
		return nil
	}
	r := Rules{AnyFile: strings.Contains(rules, "f"), AnyTCP: strings.Contains(rules, "t"),
		AnyPeer: strings.Contains(rules, "p")}
	if len(paths) == 2 {
		r.Read, r.Write = paths[:1], paths[1:]
	}
	s, err := Open(r)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(s.FD), 0, 0); e != 0 {
		return e
	}
	return nil
}

// try does one thing with raw calls on this thread and says "ok" or the errno's name.
func try(what, arg string) string {
	var err error
	fd := -1
	switch what {
	case "read":
		fd, err = unix.Open(arg, unix.O_RDONLY, 0)
	case "write":
		fd, err = unix.Open(arg, unix.O_WRONLY|unix.O_CREAT, 0o600)
	case "truncate":
		err = unix.Truncate(arg, 0)
	case "device":
		err = unix.Mknod(arg, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
	case "mkfifo":
		err = unix.Mkfifo(arg, 0o600)
	case "tcp":
		var port int
		fmt.Sscan(arg, &port)
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err == nil {
			err = unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
		}
	case "abstract":
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + arg})
		}
	case "signal":
		var pid int
		fmt.Sscan(arg, &pid)
		err = unix.Kill(pid, 0)
	}
	if fd >= 0 {
		unix.Close(fd)
	}
	if e, ok := err.(unix.Errno); ok {
		return unix.ErrnoName(e)
	}
	return "ok"
}

func TestWalls(t *testing.T) {
	if ABI() < 6 {
		t.Skipf("Landlock ABI %d: the walls tested here need 6", ABI())
	}
	dir := t.TempDir()
	ro, rw := filepath.Join(dir, "ro"), filepath.Join(dir, "rw")
	for _, d := range []string{ro, rw} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "f"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	name := fmt.Sprintf("waldo-landlock-test-%d", os.Getpid())
	u, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	me := fmt.Sprint(os.Getpid())
	rows := []struct {
		why, rules, what, arg, want string
	}{
		{"reading where reading is let through", "", "read", ro + "/f", "ok"},
		{"writing where only reading is", "", "write", ro + "/f", "EACCES"},
		{"truncating where only reading is", "", "truncate", ro + "/f", "EACCES"},
		{"a new file where only reading is", "", "write", ro + "/new", "EACCES"},
		{"a file elsewhere", "", "read", "/etc/passwd", "EACCES"},
		{"a folder elsewhere", "", "read", "/", "EACCES"},
		{"writing where it is let through", "", "write", rw + "/f", "ok"},
		{"a fifo where writing is let through", "", "mkfifo", rw + "/fifo", "ok"},
		{"out by dot-dot", "", "read", rw + "/../../../../../../../../etc/passwd", "EACCES"},
		{"TCP without a network namespace", "", "tcp", port, "EACCES"},
		{"an abstract socket of another", "", "abstract", name, "EPERM"},
		{"a signal to another", "", "signal", me, "EPERM"},
		{"files left to the mounts", "f", "read", "/etc/passwd", "ok"},
		{"TCP left to the network namespace", "t", "tcp", port, "ok"},
		{"peers left alone", "p", "signal", me, "ok"},
	}
	if os.Geteuid() == 0 { // only root can make devices
		rows = append(rows, struct{ why, rules, what, arg, want string }{"a device where writing is let through", "",
			"device", rw + "/null", "EACCES"})
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(rules, what, arg string) string {
		out, err := exec.Command(self, "under", rules, what, arg, ro, rw).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v: %s", what, arg, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	for _, r := range rows {
		if got := ask("bare", r.what, r.arg); got != "ok" {
			t.Errorf("control: %s: %q", r.why, got)
		}
		for _, f := range []string{ro + "/new", rw + "/fifo", rw + "/null"} {
			_ = os.Remove(f)
		}
		if got := ask("r"+r.rules, r.what, r.arg); got != r.want {
			t.Errorf("%s: %q, want %q", r.why, got, r.want)
		}
		_ = os.WriteFile(ro+"/f", []byte("x"), 0o644)
	}
}

func TestOlderKernelsLoseByName(t *testing.T) {
	rows := []struct {
		abi  int
		fs   uint64
		a    attr
		lost int
	}{
		{0, 0, attr{}, 3},
		{1, 0x1fff, attr{fs: 0x1fff}, 4},
		{2, 0x3fff, attr{fs: 0x3fff}, 4},
		{3, 0x7fff, attr{fs: 0x7fff}, 3},
		{4, 0x7fff, attr{fs: 0x7fff, net: 3}, 2},
		{5, 0xffff, attr{fs: 0xffff, net: 3}, 1},
		{6, 0xffff, attr{0xffff, 3, 3}, 0},
		{99, 0xffff, attr{0xffff, 3, 3}, 0},
	}
	for _, r := range rows {
		a, lost := handled(Rules{}, r.abi)
		if a != r.a || len(lost) != r.lost || FilesAt(r.abi) != r.fs {
			t.Errorf("ABI %d: %+v, lost %q", r.abi, a, lost)
		}
	}
	if _, err := open(Rules{NeedFull: true}, 3); err == nil {
		t.Error("a kernel without scopes is taken where everything is needed")
	}
	s, err := open(Rules{AnyFile: true, AnyTCP: true}, 4)
	if err != nil || s.FD != -1 || len(s.Lost) != 1 {
		t.Errorf("nothing to restrict: %+v, %v", s, err)
	}
}

func TestOpenClosesWhatItCannotBuild(t *testing.T) {
	if ABI() == 0 {
		t.Skip("this kernel has no Landlock")
	}
	before := countFDs(t)
	if s, err := Open(Rules{Read: []string{"/", "/no/such/path"}}); err == nil || s.FD != -1 {
		t.Errorf("a path that does not exist: %+v, %v", s, err)
	}
	if after := countFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func countFDs(t *testing.T) int {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(es)
}

// TestExact: a path that goes through a link is let through, unless it is to have none.
func TestExact(t *testing.T) {
	if ABI() == 0 {
		t.Skip("this kernel has no Landlock")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Join(dir, "real/data"), 0o700), os.Symlink("real", filepath.Join(dir, "link")))
	}
	if err != nil {
		t.Fatal(err)
	}
	for path, refused := range map[string]bool{"real/data": false, "link/data": true, "link": true} {
		at := filepath.Join(dir, path)
		for _, exact := range [][]string{nil, {at}} {
			s, err := Open(Rules{Read: []string{at}, Exact: exact, AnyTCP: true, AnyPeer: true})
			if want := refused && exact != nil; errors.Is(err, unix.ELOOP) != want || err != nil && !want {
				t.Errorf("%s, exact %v: %v", path, exact != nil, err)
			}
			if s.FD >= 0 {
				unix.Close(s.FD)
			}
		}
	}
}
