// Package background starts a waldo that outlives the one that started it, and its terminal.
package background

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
)

// readyFD is the file descriptor on which a background waldo reports that the sandbox of its command has started, and
// envFD the one from which it reads the variables of --env: every user of the machine can read its arguments.
const (
	readyFD = 3
	EnvFD   = 4
)

// Start starts the second waldo, gives it the variables and waits for its sandbox. If it exits earlier, hold returns
// its standard error.
func Start(ctx context.Context, args, env []string, stdout, stderr string) (text []byte, err error) {
	var files [2]*os.File
	for i, at := range []string{stdout, stderr} {
		if files[i], err = os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return nil, err
		}
		defer files[i].Close()
	}
	ready, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	variables, ours, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirs.Close())
	}
	held := exec.Command("/proc/self/exe", args...)
	held.Args[0] = os.Args[0]
	held.Stdout, held.Stderr, held.ExtraFiles = files[0], files[1], []*os.File{theirs, variables}
	held.SysProcAttr = sessionOfItsOwn()
	err = errors.Join(held.Start(), theirs.Close(), variables.Close())
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	go func() {
		_ = json.NewEncoder(ours).Encode(env) // it fails if the waldo ends, which the caller sees
		_ = ours.Close()
	}()
	stop := context.AfterFunc(ctx, func() { _ = held.Process.Kill() })
	defer stop()
	if said, _ := io.ReadAll(ready); bytes.Equal(said, []byte("up")) {
		return nil, held.Process.Release()
	}
	err = held.Wait()
	text, _ = os.ReadFile(stderr)
	if err == nil {
		err = errors.New("it ended without a sandbox")
	}
	return text, err
}

// Ready reports to the waiting waldo that the sandbox of the command has started.
func Ready() {
	f := os.NewFile(readyFD, "ready")
	_, _ = f.WriteString("up")
	_ = f.Close()
}
