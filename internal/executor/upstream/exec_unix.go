//go:build unix

package upstream

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"waldo/internal/executor/upstream/outside"
)

// Exec starts a program outside any sandbox, with exactly the environment given. Kill ends it and its descendants. It
// is for servers that an operator has placed outside.
func Exec(_ context.Context, argv, env []string, dir string) (Process, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	if filepath.IsAbs(argv[0]) {
		_, cmd.Err = exec.LookPath(argv[0])
	}
	if cmd.Err != nil {
		return Process{}, cmd.Err
	}
	cmd.Args[0] = cmd.Path // an interpreter looks for its library beside it: env may find another of the same name
	cmd.Env, cmd.Dir = env, dir
	if env == nil {
		cmd.Env = []string{} // nil would pass on ours
	}
	var f [6]*os.File // of stdin, stdout and stderr, each the end to read from and the end to write to
	shut := func(n ...int) {
		for _, i := range n {
			_ = f[i].Close()
		}
	}
	var err error
	for i := 0; i < len(f) && err == nil; i += 2 {
		f[i], f[i+1], err = os.Pipe()
	}
	if err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = f[0], f[3], f[5]
		err = outside.Start(cmd)
	}
	shut(0, 3, 5)
	if err != nil {
		shut(1, 2, 4)
		return Process{}, err
	}
	wait := func() error {
		err := cmd.Wait()
		outside.Kill(cmd)                                   // the server's remaining descendants
		_ = f[4].SetReadDeadline(time.Now().Add(lastWords)) // the reader can read the rest until then, and closes it
		if err != nil {
			err = fmt.Errorf("its program ended: %w", err)
		}
		return err
	}
	return Process{Stdin: f[1], Stdout: f[2], Stderr: f[4], Wait: wait, Kill: func() { outside.Kill(cmd) },
		Warnings: []string{"the server runs outside any sandbox"}}, nil
}
