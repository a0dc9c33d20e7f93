package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Connect makes a terminal for a command and connects it with the person's, which is raw until done is called. The
// person's own terminal never reaches the sandbox: bytes and the size of the window do. out gets what the command
// writes, and is closed at the end. end is called when the person's terminal goes away, and for Ctrl-C before a command
// has the terminal.
func Connect(in *os.File, out io.WriteCloser, end func()) (slave *os.File, done func() error, err error) {
	master, slave, err := New()
	if err != nil {
		return nil, nil, err
	}
	size := func() {
		if s, err := unix.IoctlGetWinsize(int(in.Fd()), unix.TIOCGWINSZ); err == nil {
			_ = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, s)
		}
	}
	size()
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, nil, closing(err, master, slave)
	}
	signals, over := make(chan os.Signal, 8), make(chan struct{})
	signal.Notify(signals, unix.SIGWINCH, unix.SIGHUP, unix.SIGQUIT)
	go func() {
		for {
			select {
			case s := <-signals:
				if s != unix.SIGWINCH {
					end()
				}
				size()
			case <-over:
				return
			}
		}
	}()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = io.Copy(out, master)
	}()
	go func() { _, _ = io.Copy(keys{master, end}, in) }() // it waits for a key until the process ends
	return slave, sync.OnceValue(func() error {
		_ = slave.Close()
		select {
		case <-written: // the sandbox has ended and released the terminal
			_ = out.Close()
		case <-time.After(5 * time.Second):
		}
		signal.Stop(signals)
		close(over)
		return closing(term.Restore(int(in.Fd()), before), master)
	}), nil
}

// keys passes what a person types to a terminal.
type keys struct {
	master *os.File
	end    func()
}

func (k keys) Write(b []byte) (int, error) {
	const interrupt = 0x03
	if bytes.IndexByte(b, interrupt) >= 0 {
		if group, err := unix.IoctlGetInt(int(k.master.Fd()), unix.TIOCGPGRP); err == nil && group == 0 {
			k.end() // the kernel has no process to interrupt
		}
	}
	return k.master.Write(b)
}

func closing(err error, files ...*os.File) error {
	for _, f := range files {
		_ = f.Close()
	}
	return err
}

// New returns the two ends of a new terminal.
func New() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, closing(err, master)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, closing(err, master)
	}
	return master, slave, nil
}
