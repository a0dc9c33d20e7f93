//go:build unix

package upstream

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"waldo/internal/upstream/outside"
)

// Exec starts a program outside any sandbox, with exactly the environment given. Kill ends it and what it
// has started. It is for servers that an operator has placed outside.
func Exec(_ context.Context, argv, env []string, dir string) (Process, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	if filepath.IsAbs(argv[0]) {
		_, cmd.Err = exec.LookPath(argv[0])
	}
	if cmd.Err != nil {
		return Process{}, cmd.Err
	}
	cmd.Env, cmd.Dir = env, dir
	if env == nil {
		cmd.Env = []string{} // nil would pass on ours
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		return Process{}, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		_, _ = inR.Close(), inW.Close()
		return Process{}, err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		_, _, _, _ = inR.Close(), inW.Close(), outR.Close(), outW.Close()
		return Process{}, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	err = outside.Start(cmd)
	_, _, _ = inR.Close(), outW.Close(), errW.Close()
	if err != nil {
		_, _, _ = inW.Close(), outR.Close(), errR.Close()
		return Process{}, err
	}
	wait := func() error {
		err := cmd.Wait()
		outside.Kill(cmd) // what the server has left behind
		_ = errR.Close()
		return err
	}
	return Process{Stdin: inW, Stdout: outR, Stderr: errR, Wait: wait, Kill: func() { outside.Kill(cmd) }}, nil
}
