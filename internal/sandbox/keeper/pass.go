//go:build linux && (amd64 || arm64)

package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/model/id"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/initvm"
)

var atGone = initvm.At(initproc.Gone)

// Names in the folder of a named sandbox.
const (
	lockName = "keeper.lock"
	suffix   = ".keeper" // of sockets
)

// answerWithin is how long another waldo may take to answer.
const answerWithin = 5 * time.Second

// lock makes finding or making namespaces one step.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// short names a file of a folder by a path that fits an address of 108 bytes.
func short(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}

// take asks the waldos that run commands there for their namespaces; nil: there are none.
func take(path string) (*Hold, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		h, err := ask(short(dir, name))
		if err == nil {
			return h, nil
		}
		if errors.Is(err, os.ErrDeadlineExceeded) { // it is there: a second set of namespaces would not be shared
			return nil, fmt.Errorf("namespace: a waldo that runs a command in this sandbox does not answer: %w", err)
		}
		if errors.Is(err, unix.ECONNREFUSED) { // its waldo is gone
			_ = os.Remove(filepath.Join(path, name))
		}
	}
	return nil, nil
}

// ask takes the namespaces from one waldo.
func ask(address string) (*Hold, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := errors.Join(same(c), c.SetDeadline(time.Now().Add(answerWithin))); err != nil {
		return nil, err
	}
	text, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4*(spaces+1)))
	n, oobn, _, _, err := c.ReadMsgUnix(text, oob)
	if err != nil {
		return nil, err
	}
	h := &Hold{}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	for i := range messages {
		fds, ferr := unix.ParseUnixRights(&messages[i])
		err = errors.Join(err, ferr)
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			h.files = append(h.files, os.NewFile(uintptr(fd), "namespace"))
		}
	}
	if err = errors.Join(err, json.Unmarshal(text[:n], &h.terms)); err == nil && len(h.files) != spaces+1 {
		err = fmt.Errorf("namespace: another waldo gave %d descriptors", len(h.files))
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// same refuses a peer that is another user.
func same(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, cerr); err == nil && int(peer.Uid) != os.Geteuid() {
		err = fmt.Errorf("namespace: user %d is not the one who has this sandbox", peer.Uid)
	}
	return err
}

// give lets waldos that come later take the namespaces.
func (h *Hold) give(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	name := id.New(id.Record) + suffix
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short(dir, name), Net: "unix"})
	if err = errors.Join(err, dir.Close()); err != nil {
		return err
	}
	l.SetUnlinkOnClose(false) // it would go by a number that is another folder's by then
	text, err := json.Marshal(h.terms)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	var fds []int
	for _, f := range h.files {
		fds = append(fds, int(f.Fd()))
	}
	var over sync.WaitGroup
	over.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			if same(c) == nil {
				_ = c.SetDeadline(time.Now().Add(answerWithin))
				_, _, _ = c.WriteMsgUnix(text, unix.UnixRights(fds...), nil)
			}
			_ = c.Close()
		}
	})
	h.close = sync.OnceFunc(func() {
		_ = l.Close()
		over.Wait()
		_ = os.Remove(filepath.Join(path, name))
	})
	return nil
}
