package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/model/id"
	"waldo/internal/storage/sandboxes"
)

// readyFD is the file descriptor on which a background waldo reports that the sandbox of its command has started, and
// envFD the one from which it reads the variables of --env: every user of the machine can read its arguments.
const (
	readyFD = 3
	envFD   = 4
)

// inBackground starts a second waldo, in its own process session, that makes the call and outlives this one and its
// terminal. It returns when the sandbox has started. The output goes to files.
func (e *execFlags) inBackground(c *cobra.Command, g *global, args []string) error {
	call := id.New(id.Call)
	h, err := openApplication(c.Context(), g, app.Options{})
	if err != nil {
		return err
	}
	m, err := h.Sandboxes(c.Context())
	if err != nil {
		return errors.Join(err, h.Close())
	}
	stdout, stderr, err := m.OutputOf(c.Context(), app.Owner(), args[0], call)
	if err = errors.Join(err, h.Close()); err != nil {
		return inWords(err)
	}
	again := slices.Concat(e.again(g, call), args[:1], []string{"--"}, args[1:])
	text, err := hold(c.Context(), again, e.env, stdout, stderr)
	if err == nil && g.json {
		return printJSON(c.OutOrStdout(), map[string]string{"call_id": call})
	}
	if err == nil {
		display.Fprintf(c.OutOrStdout(), "%s\n", call)
		return nil
	}
	_ = errors.Join(os.Remove(stdout), os.Remove(stderr))
	code := exitFailed
	if e := (*exec.ExitError)(nil); errors.As(err, &e) && e.ExitCode() > 0 {
		code = e.ExitCode()
	}
	if len(text) > 0 {
		display.Fprintf(c.ErrOrStderr(), "%s\n", display.Lines(string(text))) // it printed the error and a hint
		return &exit{code: code}
	}
	return &exit{code: code, err: fmt.Errorf("the command did not start: %w", err)}
}

// again returns the arguments of the second waldo.
func (e *execFlags) again(g *global, call string) []string {
	args := []string{"sandbox", "exec", "--as", call, "--timeout", e.timeout.String(), "--lang", e.lang}
	if g.state != "" {
		args = append(args, "--state", g.state)
	}
	if g.config != "" {
		args = append(args, "--config", g.config)
	}
	if e.cpu > 0 {
		args = append(args, "--cpu-seconds", strconv.FormatFloat(e.cpu, 'f', -1, 64))
	}
	if e.dir != "" {
		args = append(args, "--workdir", e.dir)
	}
	for _, p := range e.ports {
		args = append(args, "--port", p)
	}
	if e.code != "" {
		args = append(args, "--code", e.code)
	}
	return args
}

// hold starts the second waldo, gives it the variables and waits for its sandbox. If it exits earlier, hold returns its
// standard error.
func hold(ctx context.Context, args, env []string, stdout, stderr string) (text []byte, err error) {
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

// variables returns what hold gave this waldo.
func variables() (env []string, err error) {
	f := os.NewFile(envFD, "variables")
	defer f.Close()
	err = json.NewDecoder(io.LimitReader(f, mostEnv)).Decode(&env)
	return env, err
}

// mostEnv bounds the variables of a background command: Linux takes 2 MiB of arguments and environment.
const mostEnv = 8 << 20

// up reports to the waiting waldo that the sandbox of the command has started.
func up() {
	f := os.NewFile(readyFD, "ready")
	_, _ = f.WriteString("up")
	_ = f.Close()
}

const psRow = "%-28s %-8s %-17s %-21s %-7s %s\n"

func newSandboxPs(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "ps NAME", Short: "The commands that run in a sandbox", Args: cobra.ExactArgs(1), Example: "  waldo sandbox ps work",
		RunE: withBoxes(g, func(c *cobra.Command, _ *app.App, m *sandboxes.Manager, args []string) error {
			all, err := m.Commands(c.Context(), app.Owner(), args[0])
			if err != nil || g.json {
				return orJSON(c, err, all)
			}
			out, now := c.OutOrStdout(), time.Now()
			display.Fprintf(out, psRow, "CALL", "STATE", "WHERE", "STARTED", "CPU", "COMMAND")
			for _, one := range all {
				where := "in front"
				if one.Background {
					where = "in the background"
				}
				display.Fprintf(out, psRow, one.Call, one.State, where, terminal.Ago(out, one.Started.Format(time.RFC3339), now),
					one.CPU.Round(10*time.Millisecond).String(), one.Line)
			}
			return nil
		}),
	}
}

func newSandboxKill(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "kill NAME CALL", Short: "End a command that runs in a sandbox, with everything that it has started", Args: cobra.ExactArgs(2),
		Example: "  waldo sandbox kill work c_…",
		RunE: withBoxes(g, func(c *cobra.Command, _ *app.App, m *sandboxes.Manager, args []string) error {
			return m.Kill(c.Context(), app.Owner(), args[0], args[1])
		}),
	}
}

func newSandboxLogs(g *global) *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use: "logs NAME CALL", Short: "Print the output so far of a background command", Args: cobra.ExactArgs(2),
		Example: "  waldo sandbox logs work c_…\n  waldo sandbox logs -f work c_…",
		RunE: withBoxes(g, func(c *cobra.Command, _ *app.App, m *sandboxes.Manager, args []string) error {
			stdout, stderr, err := m.OutputOf(c.Context(), app.Owner(), args[0], args[1])
			if err != nil {
				return err
			}
			var files [2]*os.File
			for i, at := range []string{stdout, stderr} {
				if files[i], err = os.Open(at); err != nil {
					return fmt.Errorf("sandbox %s: %w: %s", args[0], sandboxes.ErrNoCommand, args[1])
				}
				defer files[i].Close()
			}
			out, errw := terminal.Screen(c.OutOrStdout()), terminal.Screen(c.ErrOrStderr())
			for lives := follow; ; time.Sleep(100 * time.Millisecond) {
				if lives {
					all, err := m.Commands(c.Context(), app.Owner(), args[0])
					lives = err == nil && slices.ContainsFunc(all, func(one sandboxes.Command) bool { return one.Call == args[1] })
				}
				_, oerr := io.Copy(out, files[0])
				_, eerr := io.Copy(errw, files[1])
				if err := errors.Join(oerr, eerr, c.Context().Err()); err != nil || !lives {
					return errors.Join(err, out.Close(), errw.Close())
				}
			}
		}),
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the command has ended")
	return c
}
