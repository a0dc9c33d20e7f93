// Package powertest gives tests a disk that loses power: a block device that records each write and each flush, and
// what is on it after a cut at any point of that record.
package powertest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Disk is a block device with an ext4 on it. Another process serves the file below its loop device over FUSE, so that
// the kernel's writes and flushes arrive there one after another. It writes each to a record before it answers.
type Disk struct {
	Dir    string // where its ext4 is mounted
	first  []byte // before the first operation
	Record string // file: for each operation its offset, its length, and the bytes; no bytes: a flush
}

// sector is what a disk writes whole or not at all, in bytes.
const sector = 512

// Own runs the rest of a test in a process with mounts of its own, so that nothing stays when it ends. It returns false
// in the process that only waits for it.
func Own(t *testing.T) bool {
	t.Helper()
	const inside = "POWER_TEST_INSIDE"
	if os.Getenv(inside) != "" {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	for _, need := range []string{"/dev/fuse", "/dev/loop-control"} {
		if _, err := os.Stat(need); err != nil {
			t.Skip("it needs loop devices and FUSE: ", err)
		}
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil || os.Getuid() != 0 {
		t.Skip("it needs root and mkfs.ext4")
	}
	runtime.LockOSThread() // its end would end the child
	c := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "3h")
	c.Env = append(os.Environ(), inside+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	return false
}

// New makes a disk of a size in bytes, with an empty ext4, and mounts it until the test ends.
func New(t *testing.T, size int64) *Disk {
	t.Helper()
	dir := t.TempDir()
	d := &Disk{Dir: filepath.Join(dir, "disk"), Record: filepath.Join(dir, "record")}
	image := filepath.Join(dir, "image")
	err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size), os.WriteFile(d.Record, nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", "-J",
		"size=8", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if d.first, err = os.ReadFile(image); err != nil {
		t.Fatal(err)
	}
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no FUSE: ", err)
	}
	d.serveApart(t, fuse, image)
	options := fmt.Sprintf("fd=%d,rootmode=100000,user_id=0,group_id=0", fuse.Fd())
	err = unix.Mount("power", image, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options)
	if err = errors.Join(err, fuse.Close()); err != nil {
		t.Skip("no mount of FUSE: ", err)
	}
	Mount(t, image, d.Dir)
	t.Cleanup(func() { Unmount(t, d.Dir); Unmount(t, image) })
	return d
}

// Main makes this program the server of a disk where New started it as one. A TestMain calls it first.
func Main() {
	if len(os.Args) != 4 || os.Args[1] != serves {
		return
	}
	image, err := os.ReadFile(os.Args[2])
	record, rerr := os.OpenFile(os.Args[3], os.O_WRONLY|os.O_APPEND, 0)
	if err = errors.Join(err, rerr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() { // the kernel's writes fail once the test has ended, in whatever way
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println("ready")
	(&server{bytes: image, record: record}).serve(3)
	os.Exit(0)
}

const serves = "powertest-serve"

// serveApart serves a disk in a process with mounts of its own. With the mount in the same process, both could wait for
// each other at its end.
func (d *Disk) serveApart(t *testing.T, fuse *os.File, image string) {
	t.Helper()
	c := exec.Command(os.Args[0], serves, image, d.Record)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	c.ExtraFiles, c.Stderr = []*os.File{fuse}, os.Stderr
	in, err := c.StdinPipe()
	out, oerr := c.StdoutPipe()
	if err = errors.Join(err, oerr); err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the server of the disk: %q, %v; TestMain must call powertest.Main", line, err)
	}
}

// Mount mounts the ext4 of an image on a loop device of its own, and has its journal replayed.
func Mount(t *testing.T, image, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no loop device: ", err)
	}
	defer control.Close()
	for range 20 { // another process can take the free one first
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			t.Skip("no loop device: ", err)
		}
		path := fmt.Sprintf("/dev/loop%d", n)
		loop, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Skip("no loop device: ", err)
		}
		defer loop.Close()
		c := unix.LoopConfig{Fd: uint32(f.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		if err := unix.IoctlLoopConfigure(int(loop.Fd()), &c); err == unix.EBUSY {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(path, dir, "ext4", 0, ""); err != nil {
			t.Fatalf("the ext4 of %s: %v", image, err)
		}
		return
	}
	t.Fatal("every loop device was taken by others")
}

// Unmount ends what Mount began.
func Unmount(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
}

// At returns the place in the record after all that has reached the disk.
func (d *Disk) At() int64 {
	info, err := os.Stat(d.Record)
	if err != nil {
		return -1
	}
	return info.Size()
}

// Cuts replays the record. Its cuts must be asked for in their order.
type Cuts struct {
	record  *os.File
	durable []byte
	since   []op  // writes after the last flush
	at      int64 // where the record goes on
	random  *rand.Rand
}

// op is one write; a flush has no data.
type op struct {
	off  int64
	data []byte
}

// Cuts begins with the disk as it was at first. The seed decides which sectors without a flush survive.
func (d *Disk) Cuts(t *testing.T, seed uint64) *Cuts {
	t.Helper()
	f, err := os.Open(d.Record)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return &Cuts{record: f, durable: append([]byte(nil), d.first...), random: rand.New(rand.NewPCG(seed, 2))}
}

// Image writes what is on the disk after a cut: all that was flushed before a place in the record. keep is the share of
// the sectors written since that are there, too. It returns how many of those are not.
func (c *Cuts) Image(path string, at int64, keep float64) (lost int, err error) {
	for {
		o, size, err := next(c.record, c.at)
		if err != nil || c.at+size > at { // an operation that the cut interrupts did not happen
			break
		}
		c.at += size
		if c.since = append(c.since, o); len(o.data) > 0 {
			continue
		}
		for _, w := range c.since {
			copy(c.durable[w.off:], w.data)
		}
		c.since = nil
	}
	out := append([]byte(nil), c.durable...)
	for _, w := range c.since {
		for i := 0; i < len(w.data); i += sector {
			if c.random.Float64() >= keep {
				lost++
				continue
			}
			copy(out[w.off+int64(i):], w.data[i:min(i+sector, len(w.data))])
		}
	}
	return lost, os.WriteFile(path, out, 0o600)
}

// next reads one operation, and its size in the record.
func next(record io.ReaderAt, at int64) (o op, size int64, err error) {
	head := make([]byte, 16)
	if _, err = record.ReadAt(head, at); err != nil {
		return o, 0, err
	}
	o = op{int64(binary.NativeEndian.Uint64(head)), make([]byte, binary.NativeEndian.Uint64(head[8:]))}
	if len(o.data) > 0 {
		_, err = record.ReadAt(o.data, at+16)
	}
	return o, int64(16 + len(o.data)), err
}

// server serves the file of a disk.
type server struct {
	bytes  []byte
	record *os.File
}

// note adds an operation to the record.
func (d *server) note(off int64, data []byte) unix.Errno {
	b := binary.NativeEndian.AppendUint64(nil, uint64(off))
	b = append(binary.NativeEndian.AppendUint64(b, uint64(len(data))), data...)
	if _, err := d.record.Write(b); err != nil {
		return unix.EIO
	}
	return 0
}

// The operations of FUSE that the kernel sends to one file (include/uapi/linux/fuse.h).
const (
	fuseForget      = 2
	fuseGetattr     = 3
	fuseSetattr     = 4
	fuseOpen        = 14
	fuseRead        = 15
	fuseWrite       = 16
	fuseStatfs      = 17
	fuseRelease     = 18
	fuseFsync       = 20
	fuseFlush       = 25
	fuseInit        = 26
	fuseInterrupt   = 36
	fuseBatchForget = 42

	fuseHeader   = 40
	fuseMost     = 128 << 10 // bytes of a write
	fuseDirectIO = 1
)

// serve answers the kernel until the file is unmounted.
func (d *server) serve(fd int) {
	in := make([]byte, fuseMost+4096)
	for {
		n, err := unix.Read(fd, in)
		if err == unix.EINTR || err == unix.EAGAIN || err == unix.ENOENT {
			continue
		}
		if err == unix.EPERM { // it is not mounted yet
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			return
		}
		b := in[:n]
		code := binary.NativeEndian.Uint32(b[4:])
		if code == fuseForget || code == fuseBatchForget || code == fuseInterrupt {
			continue
		}
		body, failed := d.answer(code, b[fuseHeader:])
		if failed != 0 {
			body = nil
		}
		out := make([]byte, 16, 16+len(body))
		binary.NativeEndian.PutUint32(out, uint32(16+len(body)))
		binary.NativeEndian.PutUint32(out[4:], uint32(-int32(failed)))
		copy(out[8:16], b[8:16]) // which request it answers
		if _, err := unix.Write(fd, append(out, body...)); err != nil && err != unix.ENOENT {
			return
		}
	}
}

func (d *server) answer(code uint32, b []byte) (body []byte, failed unix.Errno) {
	u32, u64 := binary.NativeEndian.PutUint32, binary.NativeEndian.PutUint64
	switch code {
	case fuseInit:
		body = make([]byte, 64)
		u32(body, 7)
		u32(body[4:], 31)
		u32(body[12:], 1<<5) // big writes
		u32(body[20:], fuseMost)
		u32(body[24:], 1)
	case fuseGetattr, fuseSetattr:
		body = make([]byte, 16+88)
		u64(body, 3600)
		u64(body[16:], 1)
		u64(body[24:], uint64(len(d.bytes)))
		u64(body[32:], uint64(len(d.bytes)/sector))
		u32(body[76:], unix.S_IFREG|0o600)
		u32(body[80:], 1)
		u32(body[96:], 4096)
	case fuseOpen:
		body = make([]byte, 16)
		u32(body[8:], fuseDirectIO)
	case fuseRead:
		off := min(binary.NativeEndian.Uint64(b[8:]), uint64(len(d.bytes)))
		end := min(off+uint64(binary.NativeEndian.Uint32(b[16:])), uint64(len(d.bytes)))
		body = append(body, d.bytes[off:end]...)
	case fuseWrite:
		off, n := int64(binary.NativeEndian.Uint64(b[8:])), binary.NativeEndian.Uint32(b[16:])
		copy(d.bytes[off:], b[40:40+n])
		body, failed = make([]byte, 8), d.note(off, b[40:40+n])
		u32(body, n)
	case fuseFsync:
		failed = d.note(0, nil)
	case fuseStatfs:
		body = make([]byte, 80)
	case fuseRelease, fuseFlush:
	default:
		return nil, unix.ENOSYS
	}
	return body, failed
}
