//go:build linux

package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
)

// copyStdin copies the command's input to its standard input, or has its Direct use that, and then closes it. to is nil
// if the standard input is /dev/null. stop ends the copying.
func copyStdin(to *os.File, c sandbox.Command) (stop func()) {
	if to == nil {
		return func() {}
	}
	var once sync.Once
	stop = func() { once.Do(func() { _ = to.Close() }) }
	if c.Direct != nil {
		go func() {
			defer stop()
			c.Direct.In(to)
		}()
		return stop
	}
	if c.Stdin == nil {
		stop()
		return stop
	}
	go func() {
		_, err := io.Copy(to, c.Stdin)
		if err == nil || !errors.Is(err, os.ErrClosed) {
			stop()
		}
	}()
	return stop
}

// tryWrite writes what the pipe takes at once. It reports whether that was all, and closes the pipe then.
func tryWrite(to *os.File, from io.WriterTo) bool {
	_, err := from.WriteTo(unwaiting{to})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, io.ErrShortWrite) {
		return false
	}
	_ = to.Close() // who does not read it has ended
	return true
}

// unwaiting writes once and does not wait for space in the pipe: then it returns EAGAIN or io.ErrShortWrite.
type unwaiting struct{ to *os.File }

// Write satisfies io.Writer.
func (u unwaiting) Write(b []byte) (n int, err error) {
	conn, err := u.to.SyscallConn()
	if err != nil {
		return 0, err
	}
	werr := conn.Write(func(fd uintptr) bool {
		n, err = unix.Write(int(fd), b)
		return true
	})
	if err = errors.Join(werr, err); err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return max(n, 0), err
}

// WritePrelude writes the beginning of a prestarted command's input, and waits until the command has read all of it,
// at most patience.
func WritePrelude(ctx context.Context, stdin *os.File, prelude string, patience time.Duration) error {
	end := time.Now().Add(patience)
	_ = stdin.SetWriteDeadline(end)
	defer func() { _ = stdin.SetWriteDeadline(time.Time{}) }()
	if _, err := io.WriteString(stdin, prelude); err != nil {
		return fmt.Errorf("a command started ahead: %w", err)
	}
	for pause := 100 * time.Microsecond; time.Now().Before(end) &&
		ctx.Err() == nil; pause = min(2*pause, 2*time.Millisecond) {
		n, err := unread(stdin)
		if err != nil {
			return fmt.Errorf("a command started ahead: %w", err)
		}
		if n == 0 {
			return nil
		}
		time.Sleep(pause)
	}
	return errors.New("a command started ahead did not read what it was told")
}

// unread returns the number of unread bytes in a pipe.
func unread(pipe *os.File) (n int, err error) {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := conn.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n, errors.Join(cerr, err)
}
