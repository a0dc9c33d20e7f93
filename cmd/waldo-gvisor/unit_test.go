//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	pb "gvisor.dev/gvisor/pkg/sentry/seccheck/points/points_go_proto"

	"waldo/internal/sandbox/gvisor/job"
)

func TestFlags(t *testing.T) {
	g := &guest{dir: t.TempDir()}
	c, err := settings(g.flags())
	if err != nil {
		t.Fatal(err)
	}
	if c.Network.String() != "none" || c.DirectFS || c.HostUDS.AllowOpen() || c.HostUDS.AllowCreate() ||
		c.Overlay2.String() != "none" || c.Platform != "systrap" || !c.OCISeccomp || c.PodInitConfig == "" || c.Debug {
		t.Errorf("gVisor is set to network %v, directfs %v, uds %v, overlay %v, platform %v, seccomp %v, sink %q",
			c.Network, c.DirectFS, c.HostUDS, c.Overlay2, c.Platform, c.OCISeccomp, c.PodInitConfig)
	}
}

func TestSpec(t *testing.T) {
	s := spec(job.Sandbox{Hostname: "waldo", Tree: []job.Node{{Path: "/tmp", Kind: job.Tmpfs},
		{Path: "/usr", Kind: job.Bind}}, Limits: job.Limits{Pids: 5, Files: 6, Disk: 7}})
	caps := s.Process.Capabilities
	if !s.Root.Readonly || !s.Process.NoNewPrivileges ||
		len(caps.Bounding)+len(caps.Effective)+len(caps.Permitted)+len(caps.Inheritable)+len(caps.Ambient) != 0 ||
		s.Process.User.UID != uint32(os.Getuid()) || s.Linux.Seccomp == nil {
		t.Errorf("%+v %+v", s.Root, s.Process)
	}
	if len(s.Mounts) != 2 || s.Mounts[1].Destination != "/tmp" {
		t.Errorf("only /proc and what is writable is mounted: %+v", s.Mounts)
	}
}

func TestInside(t *testing.T) {
	for _, path := range []string{"", "/", "x", "/a/../b", "/a/", "//a", "/a/./b", "/.."} {
		if at, err := inside(path); err == nil {
			t.Errorf("%q is taken for %q", path, at)
		}
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{os.Symlink("/", filepath.Join(dir, "link")),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, ok := range map[string]bool{"new": true, ".": true, "link": false, "file": false} {
		if err := folder(filepath.Join(dir, name)); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTmpfsNeedsBounds(t *testing.T) {
	for _, n := range []job.Node{{Bytes: 0, Inodes: 1}, {Bytes: 1, Inodes: 0}, {Bytes: -1, Inodes: 1}} {
		if err := tmpfs(n, t.TempDir()); err == nil || !strings.Contains(err.Error(), "bound nothing") {
			t.Errorf("%+v: %v", n, err)
		}
	}
}

func TestHeldMountsMustCome(t *testing.T) {
	if _, err := openSources([]job.Node{{Path: "/x", Kind: job.Bind, Held: true, From: "/etc"}}, nil); err == nil {
		t.Error("a held mount that did not come was looked up by its path")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	f, err := openSources([]job.Node{{Path: "/x", Kind: job.Bind, From: link}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f[0].Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		t.Errorf("a link at the end of a source was followed: %v %o", err, st.Mode)
	}
}

func TestNotExecuted(t *testing.T) {
	for _, row := range []struct {
		why, text string
		want      unix.Errno
	}{
		{
			"not in PATH",
			`executing command "x" in sandbox: error finding executable "x" in PATH [/bin]: no such file or directory`,
			unix.ENOENT,
		},
		{"not executable", "failed to load /etc/passwd: permission denied", unix.EACCES},
		{"no loader", "failed to load /tmp/x: exec format error", unix.ENOEXEC},
		{"our own trouble is not the command's", "connecting to control server: permission denied", 0},
		{"unknown", "failed to load /x: the moon is full", 0},
	} {
		if got := notExecuted(errors.New(row.text)); got != row.want {
			t.Errorf("%s: %v", row.why, got)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, row := range []struct {
		why   string
		sysno uintptr
		errno unix.Errno
		want  bool
	}{
		{"an unreachable network", unix.SYS_CONNECT, unix.ENETUNREACH, true},
		{"nobody listens: the life of programs", unix.SYS_CONNECT, unix.ECONNREFUSED, false},
		{"a read-only file", unix.SYS_OPENAT, unix.EROFS, true},
		{"a file that is not there", unix.SYS_OPENAT, unix.ENOENT, false},
		{"a call that is not served", unix.SYS_BPF, unix.ENOSYS, true},
		{"a wrong argument", unix.SYS_MOUNT, unix.EINVAL, false},
	} {
		c, ok := table[row.sysno]
		if !ok || c.refusal(row.errno) != row.want {
			t.Errorf("%s: listed %v, refusal %v", row.why, ok, c.refusal(row.errno))
		}
	}
}

func TestSinkSettings(t *testing.T) {
	b, err := sinkSettings(17)
	if err != nil || !strings.Contains(string(b), `"pids":17`) || !strings.Contains(string(b), "sentry/clone") {
		t.Errorf("%v %s", err, b)
	}
}

// TestNotes: the notes are bounded, returned once, and read back; malformed notes are left out.
func TestNotes(t *testing.T) {
	s := &sink{notes: new(notes), limit: 1}
	for i := range 1000 {
		s.note(job.Denial{Kind: filesystem, What: fmt.Sprintf("open %d\n\"", i/2), Errno: "EACCES"})
	}
	got := s.notes.denials()
	if len(s.noted) != maxDenials || len(got) != maxDenials || got[0].What != "open 0\n\"" || got[1].What != "open 1\n\"" {
		t.Errorf("%d denials: %+v", len(got), got[:2])
	}
	long := &sink{notes: new(notes)}
	for i := range maxDenials {
		long.note(job.Denial{Kind: filesystem, What: fmt.Sprint(i) + strings.Repeat("x", 4096)})
	}
	if got := long.notes.denials(); len(got) == 0 || len(got) >= maxDenials {
		t.Errorf("%d long denials in %d bytes", len(got), len(long.notes.text))
	}
	bad := new(notes)
	copy(bad.text[:], "{\n\x00\n[1]\n"+`{"kind":"x"}`+"\n"+`{"kind":"syscall"}`+"\n")
	bad.used.Store(1 << 31)
	if got := bad.denials(); len(got) != 1 || got[0].Kind != syscalls {
		t.Errorf("%+v", got)
	}
}

func TestUsed(t *testing.T) {
	for name, want := range map[string]bool{
		`GOARCH="amd64" Platform="systrap" HostNetwork=false NVProxy=false`: true,
		`GOARCH="amd64" Platform="kvm" HostNetwork=false NVProxy=false`:     false,
		`GOARCH="amd64" Platform="systrap" HostNetwork=true NVProxy=false`:  false,
		`GOARCH="amd64" UDSOpenEnabled=false DirectFS=false`:                true,
		`GOARCH="amd64" UDSOpenEnabled=false DirectFS=true`:                 false,
	} {
		if used(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

// TestClone: a process in new namespaces, or one that has its maker's parent, is refused before it is counted,
// and noted; control: any other is left to the count.
func TestClone(t *testing.T) {
	s := &sink{notes: new(notes), limit: 1}
	for _, flag := range []uint64{unix.CLONE_NEWUSER, unix.CLONE_PARENT} {
		if err := s.Clone(context.Background(), seccheck.FieldSet{},
			&pb.CloneInfo{Flags: flag | unix.CLONE_VM}); !errors.Is(err, unix.EPERM) {
			t.Errorf("with %#x: %v", flag, err)
		}
	}
	if err := s.Clone(context.Background(), seccheck.FieldSet{},
		&pb.CloneInfo{Flags: unix.CLONE_VM | unix.CLONE_THREAD}); err != nil {
		t.Errorf("control: %v", err)
	}
	if d := s.notes.denials(); len(d) != 1 || d[0].Errno != "EPERM" {
		t.Errorf("noted: %+v", d)
	}
}

// TestFolderOf: a container's root may lack the folders that a machine has.
func TestFolderOf(t *testing.T) {
	there, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(there, link); err != nil {
		t.Fatal(err)
	}
	if got := folderOf("/nowhere", link, there); got != there {
		t.Errorf("%s, and not the first folder that is there", got)
	}
	if got := folderOf("/nowhere", link); got != "/tmp" {
		t.Errorf("%s, where none of them is there", got)
	}
}
