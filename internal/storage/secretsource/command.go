package secretsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"waldo/internal/model/secret"
)

// fromCommand runs a program without a shell and takes what it prints, less one newline. Its errors
// are not shown, since they may hold what it was to print.
func (s Sources) fromCommand(spec secret.Spec) (fetched, error) {
	if !s.Commands {
		return fetched{}, ErrClosed
	}
	argv, dir := spec.Command, ""
	if s.Prepare != nil {
		var err error
		if argv, dir, err = s.Prepare(spec.Command); err != nil {
			return fetched{}, err
		}
		defer os.RemoveAll(dir)
	}
	patience := spec.Timeout
	if patience <= 0 {
		patience = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Dir = dir
	out := &bounded{most: maxFile, full: cancel}
	c.Stdout = out
	alone(c)
	c.WaitDelay = 3 * time.Second // a child that keeps the pipe open is not waited for
	err := c.Run()
	var ended *exec.ExitError
	switch {
	case out.over:
		return fetched{}, ErrTooBig
	case ctx.Err() != nil:
		return fetched{}, fmt.Errorf("it did not end within %s", patience)
	case errors.As(err, &ended):
		return fetched{}, fmt.Errorf("it ended with %s; run it by hand to see why", ended.ProcessState)
	case errors.Is(err, exec.ErrWaitDelay):
		return fetched{}, errors.New("it left a process behind that holds its output")
	case err != nil:
		return fetched{}, errors.New("it could not be started: no such program, or it may not be run")
	}
	return fetched{value: secret.NewValue(string(oneLineLess(out.b.Bytes()))), lasts: commandLasts}, nil
}

// bounded takes at most so many bytes, and calls full for more.
type bounded struct {
	b    bytes.Buffer
	most int
	over bool
	full func()
}

func (w *bounded) Write(p []byte) (int, error) {
	if w.b.Len()+len(p) > w.most {
		w.over = true
		w.full()
		return 0, ErrTooBig
	}
	return w.b.Write(p)
}
