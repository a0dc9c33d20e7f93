package terminal

import (
	"context"
	"errors"
	"io"
	"os"
	"unicode/utf8"

	"golang.org/x/term"
)

// ReadPassword reads one line without echo. It calls prompt once echo is off, so that nothing typed at
// the prompt is shown. It discards what was typed before: that was for another program, or a mistake. The terminal is as it was when this returns, also where Ctrl-C or a signal ends
// it. A terminal that cannot be silenced is not read.
func ReadPassword(ctx context.Context, f *os.File, prompt func()) ([]byte, error) {
	before, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = term.Restore(int(f.Fd()), before) }() // best effort
	if err := flush(f); err != nil {
		return nil, err
	}
	prompt()
	return ReadLine(ctx, f)
}

// ReadLine reads one line of a terminal.
func ReadLine(ctx context.Context, f *os.File) ([]byte, error) {
	type typed struct {
		line []byte
		err  error
	}
	done := make(chan typed, 1)
	go func() { // after a signal it stays until the process ends
		line, err := readLine(f)
		done <- typed{line, err}
	}()
	select {
	case t := <-done:
		return t.line, t.err
	case <-ctx.Done():
		return nil, ErrInterrupted
	}
}

// ErrInterrupted is the error of a wait that Ctrl-C or a signal ended.
var ErrInterrupted = errors.New("interrupted")

// maxPassword is how many bytes of a line are taken.
const maxPassword = 1 << 20

// readLine reads a line from a terminal that passes each byte on, one at a time, so that what follows
// the line stays for the next. It takes the keys that erase a character or the line.
func readLine(r io.Reader) ([]byte, error) {
	const interrupt, end, erase, backspace, kill, quit = 3, 4, 8, 127, 21, 28
	var line []byte
	for one := make([]byte, 1); ; {
		n, err := r.Read(one)
		if n == 0 && (err == nil || errors.Is(err, io.EOF)) {
			return nil, errors.New("the terminal was closed")
		}
		if n == 0 {
			return nil, err
		}
		switch c := one[0]; c {
		case interrupt, quit:
			return nil, ErrInterrupted
		case end:
			if len(line) == 0 {
				return nil, errors.New("the terminal was closed")
			}
		case '\r', '\n':
			return line, nil
		case erase, backspace:
			_, last := utf8.DecodeLastRune(line)
			line = line[:len(line)-last]
		case kill:
			line = line[:0]
		default:
			if len(line) < maxPassword && (c >= ' ' || c == '\t') {
				line = append(line, c)
			}
		}
	}
}
