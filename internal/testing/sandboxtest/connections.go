//go:build linux

package sandboxtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
)

// connections tries every way in which a file connects processes that share nothing else. DIR holds a socket with a
// listener, a pipe with data, and a file that is locked, leased and read all the time.
const connections = `
import fcntl, mmap, select
def talk():
    s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect(DIR + "/socket"); return s.recv(100)
def pipe():
    f = os.open(DIR + "/pipe", os.O_RDONLY | os.O_NONBLOCK)
    try: return os.read(f, 100)
    except BlockingIOError: return b""
attempt(talk)
attempt(lambda: os.write(os.open(DIR + "/pipe", os.O_WRONLY | os.O_NONBLOCK), b"x"))
attempt(pipe)
data, sh = os.open(DIR + "/data", os.O_RDONLY), os.open("/usr/bin/env", os.O_RDONLY)
attempt(lambda: fcntl.flock(data, fcntl.LOCK_EX | fcntl.LOCK_NB))
attempt(lambda: fcntl.lockf(data, fcntl.LOCK_SH | fcntl.LOCK_NB))
attempt(lambda: fcntl.flock(sh, fcntl.LOCK_EX | fcntl.LOCK_NB))
def watch():
    fd = libc.inotify_init1(os.O_NONBLOCK)
    if fd < 0: raise OSError(ctypes.get_errno(), "")
    for p in (DIR, "/usr/bin/env"):
        if libc.inotify_add_watch(fd, p.encode(), 0xfff) < 0: raise OSError(ctypes.get_errno(), "")
    return bool(select.select([fd], [], [], 0.7)[0])
attempt(watch)
attempt(lambda: os.preadv(data, [bytearray(1)], 0, 8))
attempt(lambda: os.posix_fadvise(data, 0, 0, 4))
`

// testConnections: a folder that is shown is data. Control: without a sandbox, each connection works.
func (s *suite) testConnections(t *testing.T) {
	dir := openDir(t)
	bare := exec.Command("/usr/bin/python3", python("").Argv[1:]...)
	bare.Args[4] += fmt.Sprintf("DIR=%q\n", dir) + connections
	bare.Env = env
	out, err := bare.CombinedOutput()
	const all = "ok b'HOST'|ok 1|ok b'PIPEx'|refused EAGAIN|refused EAGAIN|refused EAGAIN|ok True|ok 1|ok None"
	if got := strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "|"); err != nil || got != all {
		t.Fatalf("control: without a sandbox %q, want %q: %v", got, all, err)
	}
	fill(t, dir)
	p := Profile()
	p.Mounts = []sandbox.Mount{{Source: dir, Target: "/workspace/input"}}
	if s.less {
		p.Mounts[0].Target = dir
	}
	f := run(t, s.start(t, p), python(fmt.Sprintf("DIR=%q\n", p.Mounts[0].Target)+connections))
	got := strings.Split(strings.TrimSpace(f.Stdout), "\n")
	rows := []struct{ class, why, want, less string }{
		{"sockets and pipes of folders", "a socket", "refused ECONNREFUSED", "refused EPERM"},
		{"sockets and pipes of folders", "writing to a pipe", "refused ENXIO|refused EPERM", "refused EACCES"},
		{"reading from pipes of folders", "reading from a pipe", "ok b''|refused EPERM", "ok b'PIPE'"},
		{"locks of files", "a lock of the file", "ok None", "refused EAGAIN"},
		{"locks of files", "a lock of a range", "ok None", "refused EAGAIN"},
		{"locks of files", "a lock of a file of /usr", "ok None", "refused EAGAIN"},
		{"watching files", "file operations of others", "ok False", "refused EPERM"},
		{"page cache", "contents of the page cache", "refused ENOTSUP", ""},
		{"page cache", "emptying the page cache", "refused EPERM|ok None", ""},
	}
	if len(got) != len(rows) {
		t.Fatalf("%q %s", f.Stdout, f.Stderr)
	}
	for i, r := range rows {
		if want := s.answer(r.class, r.want, r.less); !strings.Contains("|"+want+"|", "|"+got[i]+"|") {
			t.Errorf("%s: %s: %s, want %s", r.class, r.why, got[i], want)
		}
	}
	s.testPeers(t, p)
}

// testPeers: two sandboxes that see the same folder do not meet in it.
func (s *suite) testPeers(t *testing.T, p sandbox.Profile) {
	if s.less {
		return // "locks of files" says it
	}
	one, other := s.start(t, p), s.start(t, p)
	locked, done := make(chan bool), make(chan string, 1)
	const lock = `import fcntl
files = [os.open(f, os.O_RDONLY) for f in ("/workspace/input/free", "/usr/bin/env", "/usr", "/etc/alternatives")]
try: pipe = os.open("/workspace/input/pipe", os.O_RDWR | os.O_NONBLOCK)
except PermissionError: pipe = -1 # gVisor opens none of the host's
attempt(lambda: [fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB) for f in files])
`
	go func() {
		c := python(lock + `os.write(2, b"locked\n"); time.sleep(1.5); attempt(lambda: os.read(pipe, 100))`)
		c.Stderr = signalling(locked)
		f, _ := one.Run(t.Context(), c)
		_, _ = c.Stderr.Write(nil)
		done <- f.Stdout + f.Stderr
	}()
	<-locked
	f := run(t, other, python(lock+`attempt(lambda: os.write(pipe, b"peer"))`))
	const locks = "ok [None, None, None, None]\n"
	if f.Stdout != locks+"ok 4\n" && f.Stdout != locks+"refused EBADF\n" {
		t.Errorf("the other sandbox sees the locks of the first: %q %s", f.Stdout, f.Stderr)
	}
	if first := <-done; first != locks+"refused EAGAIN\nlocked\n" && first != locks+"refused EBADF\nlocked\n" {
		t.Errorf("the first sandbox took no locks (control), or heard of the other: %q", first)
	}
}

// signalling closes a channel at the first write.
type signalling chan bool

func (s signalling) Write(p []byte) (int, error) {
	select {
	case <-s:
	default:
		close(s)
	}
	return len(p), nil
}

// openDir makes a folder with everything in it that connections tries; all users may see it.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "waldo-connections-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	if err := errs(os.Chmod(dir, 0o755), os.WriteFile(data, []byte("data"), 0o644),
		os.WriteFile(filepath.Join(dir, "free"), nil, 0o644),
		unix.Mkfifo(filepath.Join(dir, "pipe"), 0o666), os.Chmod(filepath.Join(dir, "pipe"), 0o666)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.Chmod(filepath.Join(dir, "socket"), 0o666); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HOST"))
			c.Close()
		}
	}()
	fill(t, dir)
	for _, name := range []string{data, "/usr/bin/env"} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		lock(t, f)
	}
	f, err := os.OpenFile(data, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan bool)
	t.Cleanup(func() { close(stop) })
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_, _ = os.ReadDir(dir)
				if f, err := os.Open("/usr/bin/env"); err == nil {
					f.Close()
				}
			}
		}
	}()
	return dir
}

// lock waits for its turn: another package's run of this suite locks the same program of /usr.
func lock(t *testing.T, f *os.File) {
	t.Helper()
	until := time.Now().Add(5 * time.Minute)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return
		}
		if err != unix.EWOULDBLOCK || time.Now().After(until) {
			t.Fatalf("%s: %v", f.Name(), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// fill puts unread data into the pipe.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "pipe"), os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write([]byte("PIPE")); err != nil {
		t.Fatal(err)
	}
}
