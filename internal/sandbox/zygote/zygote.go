//go:build linux

package zygote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/spawn"
)

// Options are what an interpreter is started with.
type Options struct {
	Argv, Env []string
	Stdin     []byte // its first input; it answers on descriptor ControlFD with Hello bytes and waits there
	Hello     int
	UID, GID  int // its user and group
}

// ControlFD is the descriptor of an interpreter's end of the socket to waldo.
const ControlFD = 3

// Zygote is a running interpreter.
type Zygote struct {
	process *os.Process
	ctl     *os.File
	born    time.Time

	mu   sync.Mutex
	made int
	dead bool
}

// patience is how long an interpreter may take to be ready: it imports much.
const patience = 20 * time.Second

// Start starts an interpreter and returns when it waits.
func Start(ctx context.Context, o Options) (_ *Zygote, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("zygote: socketpair: %w", err)
	}
	_ = unix.SetNonblock(pair[0], true) // so that deadlines work; it cannot fail
	z := &Zygote{ctl: os.NewFile(uintptr(pair[0]), "zygote"), born: time.Now()}
	theirs := []*os.File{nil, nil, nil, os.NewFile(uintptr(pair[1]), "waldo")}
	var ours [3]*os.File // pipes, because those of a sandbox are
	defer func() {
		for _, f := range append(theirs, ours[:]...) {
			_ = f.Close() // nil: an error and no more
		}
		if err != nil {
			err = errors.Join(err, z.Close())
		}
	}()
	if theirs[0], ours[0], err = os.Pipe(); err != nil {
		return nil, err
	}
	for i := 1; i <= 2; i++ {
		if ours[i], theirs[i], err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	attr := &os.ProcAttr{Dir: "/", Env: o.Env, Files: theirs,
		Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}}
	if o.UID != os.Geteuid() {
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(o.UID), Gid: uint32(o.GID)} // no supplementary groups
	}
	spawn.OnLauncher(func() { z.process, err = os.StartProcess(o.Argv[0], o.Argv, attr) })
	if err != nil {
		return nil, fmt.Errorf("zygote: %w", err)
	}
	for _, f := range theirs {
		f.Close()
	}
	return z, z.greet(ctx, o, ours)
}

// greet tells the interpreter what it is to know and waits for its answer.
func (z *Zygote) greet(ctx context.Context, o Options, pipes [3]*os.File) error {
	end := time.Now().Add(patience)
	_ = z.ctl.SetDeadline(end)
	_ = pipes[0].SetWriteDeadline(end)
	_ = pipes[2].SetReadDeadline(end)
	defer context.AfterFunc(ctx, func() { _ = z.ctl.SetDeadline(time.Now()) })()
	go func() { _, _ = io.Copy(pipes[0], bytes.NewReader(o.Stdin)) }() // who does not read it does not answer
	_, err := io.ReadFull(z.ctl, make([]byte, o.Hello))
	if err == nil {
		return z.ctl.SetDeadline(time.Time{})
	}
	_ = z.process.Kill()
	_ = pipes[2].SetReadDeadline(time.Now().Add(time.Second))
	said, _ := io.ReadAll(io.LimitReader(pipes[2], 2000))
	return fmt.Errorf("zygote: %s is not ready: %w: %s", o.Argv[0], err, said)
}

// Fork sends a socket to the interpreter. On it the forked sandbox reports its progress and then gets its
// program. The socket stays the caller's.
func (z *Zygote) Fork(socket int) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.dead {
		return errors.New("zygote: it has ended")
	}
	z.made++
	_ = z.ctl.SetWriteDeadline(time.Now().Add(patience))
	conn, err := z.ctl.SyscallConn()
	if err == nil {
		werr := conn.Write(func(fd uintptr) bool {
			err = unix.Sendmsg(int(fd), []byte{1}, unix.UnixRights(socket), nil, unix.MSG_NOSIGNAL)
			return err != unix.EAGAIN
		})
		err = errors.Join(werr, err)
	}
	if err != nil {
		z.dead = true
		return fmt.Errorf("zygote: %w", err)
	}
	return nil
}

// old reports whether another should take its place.
func (z *Zygote) old(o Rotation) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.dead || z.made >= o.Most || time.Since(z.born) > o.Age
}

// Usable reports whether sandboxes can be forked from it.
func (z *Zygote) Usable() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return !z.dead
}

// Close lets the interpreter finish the sandbox that it is making, and end. Its children stay.
func (z *Zygote) Close() error {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.dead = true
	err := z.ctl.Close()
	if z.process != nil {
		late := time.AfterFunc(time.Second, func() { _ = z.process.Kill() })
		_, _ = z.process.Wait()
		late.Stop()
	}
	return err
}
