//go:build linux

package stdio

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
)

// TestDirect: a Direct writes and reads the command's pipes itself, and its Stdin is a pipe without a reader of input.
func TestDirect(t *testing.T) {
	got := make(chan string, 1)
	c := sandbox.Command{Serve: true, Direct: &sandbox.Direct{
		In: func(pipe *os.File) { _, _ = io.WriteString(pipe, "asked") },
		Out: func(pipe *os.File) {
			b := make([]byte, 8)
			n, _ := io.ReadFull(pipe, b)
			got <- string(b[:n])
		}}}
	w, theirs, err := Connect(c)
	if err != nil {
		t.Fatal(err)
	}
	out, cerr := Captures(c, 1, func() { t.Error("a server is held to a limit of output") })
	finish := w.Stream(c, out, cerr)
	asked, err := io.ReadAll(theirs[0]) // its end: the sandbox closes the pipe after the last use
	if err != nil || string(asked) != "asked" {
		t.Errorf("standard input: %q %v", asked, err)
	}
	_, err = io.WriteString(theirs[1], "answered, and more")
	for _, f := range theirs {
		err = errors.Join(err, f.Close())
	}
	if finish(false); err != nil || <-got != "answered" || out.Total != int64(len(", and more")) || len(out.Kept) > 0 {
		t.Errorf("standard output: %d bytes besides, %q of it kept: %v", out.Total, out.Kept, err)
	}
}

// TestUnwaiting: a write that the pipe takes in part is a short write, and one of which it takes nothing is EAGAIN.
func TestUnwaiting(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	u := unwaiting{w}
	if n, err := u.Write([]byte("all")); n != 3 || err != nil {
		t.Errorf("control: %d %v", n, err)
	}
	if n, err := u.Write(make([]byte, 1<<20)); n <= 0 || n >= 1<<20 || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("in part: %d %v", n, err)
	}
	if n, err := u.Write(make([]byte, 1<<20)); n != 0 || !errors.Is(err, unix.EAGAIN) {
		t.Errorf("nothing: %d %v", n, err)
	}
}
