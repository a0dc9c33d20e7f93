//go:build linux && (amd64 || arm64)

package namespace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/initvm"
	"waldo/internal/sandbox/keeper"
	"waldo/internal/sandbox/netns"
)

const (
	old     = "/old" // the host's root, while the sandbox's own is being made
	staging = "/tmp" // a folder that every host has, covered in the sandbox's mount namespace only

	quiet  = unix.MS_NOSUID | unix.MS_NODEV
	sealed = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
)

// etc lists files that programs expect in /etc. They hold nothing of the host.
var etc = []struct{ name, content string }{
	{
		"passwd", "root:x:0:0:root:/:/usr/sbin/nologin\n" + insideUser +
			":x:1000:1000::/workspace:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
	},
	{"group", "root:x:0:\n" + insideUser + ":x:1000:\nnogroup:x:65534:\n"},
	{"hosts", sandbox.Hosts},
	{"nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"},
	{"resolv.conf", ""},
}

// shared lists the files of the host's /etc that every sandbox sees. None identifies the host.
var shared = []string{"/etc/alternatives", "/etc/ssl/certs"}

// system lists the folders of the machine that every sandbox without a root of its own sees.
var system = []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"}

// loaderCache tells programs where their libraries are. It is copied.
const (
	loaderCache    = "/etc/ld.so.cache"
	maxLoaderCache = 512 << 10
)

// devices are the device files of a sandbox; a write to them changes nothing.
var devices = []string{"null", "zero", "full", "random", "urandom"}

// makeRoot appends the steps that make the sandbox's root on a tmpfs of its own and leave the host's.
func (s *setup) makeRoot() {
	if s.tree {
		s.mountNS = s.free
		s.free++
		s.Call("open its mounts", unix.SYS_OPENAT, atCWD, "/proc/self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	s.Call("private mounts", unix.SYS_MOUNT, "none", "/", 0, unix.MS_REC|unix.MS_PRIVATE, 0)
	s.Call("mount the root", unix.SYS_MOUNT, "waldo", staging, "tmpfs", quiet, "size=1m,nr_inodes=1k,mode=755")
	s.Call("umask", unix.SYS_UMASK, 0)
	s.Call("enter the root", unix.SYS_CHDIR, staging)
	s.Call("mkdir /old", unix.SYS_MKDIRAT, atCWD, "old", 0o700)
	s.Call("pivot_root", unix.SYS_PIVOT_ROOT, ".", "old")
	s.Hint("the root of this machine is an initramfs, or seccomp of a container refuses pivot_root")
	s.Call("enter the root", unix.SYS_CHDIR, "/")

	made := map[string]bool{"/": true}
	s.mkdir(made, "/proc") // empty, until it is covered
	s.template(made)
	s.dev(made)
	s.places(made)
	s.mountProc()
	s.coverResolv()
	s.sendPlaces()
	s.noExecution()

	s.Call("leave the host's root", unix.SYS_UMOUNT2, old, unix.MNT_DETACH)
	s.Call("rmdir /old", unix.SYS_UNLINKAT, atCWD, old, unix.AT_REMOVEDIR)
	s.Call("set the host name", unix.SYS_SETHOSTNAME, sandbox.Hostname, len(sandbox.Hostname))
	s.Optional()
	if !s.joined {
		s.loopback()
	}
	s.makeEgress()
	s.attributes("/", sealed, false)
	// A copy of the tree that is in no mount namespace: /proc/self/mountinfo lists the namespace,
	// of which nothing can be reached from the copy, so it lists nothing.
	s.Call("copy the tree", unix.SYS_OPEN_TREE, atCWD, "/", 1|unix.AT_RECURSIVE|unix.OPEN_TREE_CLOEXEC)
	s.Call("enter the tree", unix.SYS_FCHDIR, s.free)
	s.Call("chroot", unix.SYS_CHROOT, ".")
}

// noProc is the hint where /proc cannot be mounted.
const noProc = "a container that masks parts of /proc forbids a fresh one: run it with --security-opt " +
	"systempaths=unconfined (Docker) or procMount: Unmasked (Kubernetes)"

// mountProc appends the mounting of /proc, or of a copy of the keeper's where processes are shared. There other
// commands are seen by their numbers and words; Landlock keeps what they have open and in memory.
func (s *setup) mountProc() {
	if !s.tree {
		whole, done := -1, -1
		if s.profile.Terminals {
			whole, done = s.wholeProc()
		}
		other := s.Call("mount /proc", unix.SYS_MOUNT, "proc", "/proc", "proc", quiet|unix.MS_NOEXEC,
			"subset=pid,hidepid=invisible")
		s.Hint(noProc)
		s.Optional()
		if whole >= 0 {
			s.Steps[whole].Fail, s.Steps[done].Next = initvm.To(other), initvm.To(len(s.Steps))
		}
		return
	}
	keeper.CopyProc(&s.List, s.late+1, s.mountNS, s.free, noProc)
}

// template appends the read-only mounts from the host. For another root the folders are among the mounts, and this
// adds its links.
func (s *setup) template(made map[string]bool) {
	if s.profile.Template.Dir != "" {
		for _, l := range s.links {
			s.Call("link "+l.Name, unix.SYS_SYMLINKAT, l.Target, atCWD, l.Name)
		}
		return // its /etc/resolv.conf is covered once its folders are there
	}
	for _, dir := range system {
		info, err := os.Lstat(dir)
		if err != nil {
			continue
		}
		if info.Mode().Type() == os.ModeSymlink {
			if link, err := os.Readlink(dir); err == nil {
				s.Call("link "+dir, unix.SYS_SYMLINKAT, link, atCWD, dir)
			}
			continue
		}
		s.mkdir(made, dir)
		s.host(dir, dir)
	}
	s.mkdir(made, "/etc")
	uid, gid := s.profile.Template.IDs()
	ids := strings.NewReplacer(":1000:1000:", fmt.Sprintf(":%d:%d:", uid, gid), ":1000:", fmt.Sprintf(":%d:", gid))
	for _, f := range etc {
		f.content = ids.Replace(f.content)
		if f.name == "resolv.conf" && len(s.profile.Network.Ports) > 0 {
			f.content = netns.ResolvConf
		}
		s.write("/etc/"+f.name, f.content, unix.O_CREAT)
	}
	s.Call("link /etc/localtime", unix.SYS_SYMLINKAT, "/usr/share/zoneinfo/UTC", atCWD, "/etc/localtime")
	all := shared
	if s.profile.Terminals { // links of /usr/lib/jvm lead there
		java, _ := filepath.Glob("/etc/java-*-openjdk") // the pattern is right
		all = append(slices.Clone(shared), java...)
	}
	for _, p := range all {
		source, err := filepath.EvalSymlinks(p)
		if err != nil {
			continue
		}
		s.mkdir(made, p)
		s.host(source, p)
	}
	// programs start without it, slower
	if cache, err := os.ReadFile(loaderCache); err == nil && len(cache) <= maxLoaderCache {
		s.write(loaderCache, string(cache), unix.O_CREAT)
	}
}

// host appends a read-only view of a folder of the machine: through an overlay, or directly with the mounts below it if
// the kernel refuses one, or beside a live folder: an overlay makes opening and reading a file take twice as long.
func (s *setup) host(source, target string) {
	if _, refused := s.refused[source]; !refused && !s.live() {
		s.overlay(old+source, source, target, "show "+target)
		return
	}
	s.unwatched = true
	s.Call("show "+target, unix.SYS_MOUNT, old+source, target, 0, unix.MS_BIND|unix.MS_REC, 0)
	s.attributes(target, sealed, true)
}

// attributes appends a mount_setattr.
func (s *setup) attributes(target string, set uint64, recursive bool) {
	attr := binary.LittleEndian.AppendUint64(nil, set)
	flags := 0
	if recursive {
		flags = unix.AT_RECURSIVE
	}
	s.Call("seal "+target, unix.SYS_MOUNT_SETATTR, atCWD, target, flags, append(attr, make([]byte, 24)...), 32)
}

// terminals appends the sandbox's own pseudo-terminals, and the names of a command's own terminal: /dev/tty, and
// /dev/console, by which ttyname finds it. No other terminal of this machine has a name there.
func (s *setup) terminals(made map[string]bool) {
	s.mkdir(made, "/dev/pts")
	s.Call("mount /dev/pts", unix.SYS_MOUNT, "devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC,
		"newinstance,ptmxmode=0666,mode=600")
	s.Call("link /dev/ptmx", unix.SYS_SYMLINKAT, "pts/ptmx", atCWD, "/dev/ptmx")
	s.write("/dev/tty", "", unix.O_CREAT)
	s.Call("show /dev/tty", unix.SYS_MOUNT, old+"/dev/tty", "/dev/tty", 0, unix.MS_BIND, 0)
	s.attributes("/dev/tty", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, false)
	number, is := strings.CutPrefix(s.profile.Console, "/dev/pts/")
	if _, err := strconv.ParseUint(number, 10, 32); !is || err != nil {
		return
	}
	s.write("/dev/console", "", unix.O_CREAT)
	s.Call("show /dev/console", unix.SYS_MOUNT, old+s.profile.Console, "/dev/console", 0, unix.MS_BIND, 0)
	s.Optional()
	s.attributes("/dev/console", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, false)
	s.Optional()
}

// dev appends a /dev that has no terminal and nothing to write to but a bounded /dev/shm.
func (s *setup) dev(made map[string]bool) {
	s.mkdir(made, "/dev")
	for _, d := range devices {
		source := d
		if d == "zero" && !s.counted {
			source = "full" // reads as zeros too, and cannot be mapped: shared maps of zero are memory that no rlimit bounds
		}
		s.write("/dev/"+d, "", unix.O_CREAT)
		s.Call("show /dev/"+d, unix.SYS_MOUNT, old+"/dev/"+source, "/dev/"+d, 0, unix.MS_BIND, 0)
		s.attributes("/dev/"+d, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, false)
	}
	if s.profile.Terminals {
		s.terminals(made)
	}
	for _, l := range [][2]string{{"/proc/self/fd", "fd"}, {"fd/0", "stdin"}, {"fd/1", "stdout"}, {"fd/2", "stderr"}} {
		s.Call("link /dev/"+l[1], unix.SYS_SYMLINKAT, l[0], atCWD, "/dev/"+l[1])
	}
	s.tmpfs(made, sandbox.Tmpfs{Target: "/dev/shm", Bytes: s.profile.Limits.Disk, Inodes: s.profile.Limits.Inodes})
}

// places appends the mounts and volumes of the profile, outer ones first.
func (s *setup) places(made map[string]bool) {
	s.mkdir(made, "/workspace")
	s.linkOutput()
	type item struct {
		target string
		add    func()
	}
	var all []item
	for i, m := range s.mounts {
		all = append(all, item{m.name(), func() { s.show(made, m, s.firstTree+i) }})
	}
	for _, t := range s.profile.Tmpfs {
		all = append(all, item{t.Target, func() { s.tmpfs(made, t) }})
	}
	slices.SortStableFunc(all, func(a, b item) int { return strings.Count(a.target, "/") - strings.Count(b.target, "/") })
	for _, i := range all {
		i.add()
	}
	s.hide()
}

func (s *setup) tmpfs(made map[string]bool, t sandbox.Tmpfs) {
	mode := "755"
	if t.Target == "/tmp" || t.Target == "/dev/shm" {
		mode = "1777"
	}
	s.mkdir(made, t.Target)
	options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=%s", t.Bytes, t.Inodes, mode)
	s.writable = append(s.writable, t.Target)
	if t.Sealed {
		s.sealed = append(s.sealed, t.Target)
	}
	s.Call("mount "+t.Target, unix.SYS_MOUNT, "tmpfs", t.Target, "tmpfs", quiet, options)
	if t.Target == workdir {
		s.linkOutput()
	}
}

const workdir = "/workspace"

// linkOutput appends the name that older scripts have for output.
func (s *setup) linkOutput() {
	s.Call("link /workspace/.workspace", unix.SYS_SYMLINKAT, "output", atCWD, workdir+"/.workspace")
}

// mkdir appends the making of a folder and of those above it that the steps have not made.
func (s *setup) mkdir(made map[string]bool, dir string) {
	if made[dir] {
		return
	}
	s.mkdir(made, path.Dir(dir))
	s.Call("mkdir "+dir, unix.SYS_MKDIRAT, atCWD, dir, 0o755)
	made[dir] = true
}

// loopback appends bringing up lo, the only interface: the sandbox may talk to itself.
func (s *setup) loopback() {
	request := append([]byte("lo"), bytes.Repeat([]byte{0}, 38)...) // struct ifreq
	binary.LittleEndian.PutUint16(request[16:], unix.IFF_UP|unix.IFF_RUNNING)
	s.Call("socket", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	s.Call("bring up lo", unix.SYS_IOCTL, s.free, unix.SIOCSIFFLAGS, request)
	s.Call("close the socket", unix.SYS_CLOSE, s.free)
}
