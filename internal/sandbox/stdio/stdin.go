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
)

// CopyStdin copies from to the command's standard input and then closes it. The command never gets a file of the
// host: its stdin is a pipe, or /dev/null (to is nil) if the input is empty. stop ends the copying.
func CopyStdin(to *os.File, from io.Reader) (stop func()) {
	if to == nil {
		return func() {}
	}
	var once sync.Once
	stop = func() { once.Do(func() { _ = to.Close() }) }
	if from == nil {
		stop()
		return stop
	}
	go func() {
		_, err := io.Copy(to, from)
		if err == nil || !errors.Is(err, os.ErrClosed) {
			stop()
		}
	}()
	return stop
}

// TryWriteStdin is Feed as far as the pipe takes it at once. It reports whether that was all.
func TryWriteStdin(to *os.File, from io.WriterTo) bool {
	_, err := from.WriteTo(unwaiting{to})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, io.ErrShortWrite) {
		return false
	}
	_ = to.Close() // who does not read it has ended
	return true
}

// unwaiting writes once and does not wait for room.
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
	return max(n, 0), errors.Join(werr, err)
}

// WritePrelude writes what the standard input of a command that was started ahead begins with, and
// waits until the command has read all of it. It waits no longer than patience.
func WritePrelude(ctx context.Context, stdin *os.File, head string, patience time.Duration) error {
	end := time.Now().Add(patience)
	_ = stdin.SetWriteDeadline(end)
	defer func() { _ = stdin.SetWriteDeadline(time.Time{}) }()
	if _, err := io.WriteString(stdin, head); err != nil {
		return fmt.Errorf("a command started ahead: %w", err)
	}
	for pause := 100 * time.Microsecond; time.Now().Before(end) && ctx.Err() == nil; pause = min(2*pause, 2*time.Millisecond) {
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
