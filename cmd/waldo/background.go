package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/background"
	"waldo/internal/cli/exitcode"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/model/id"
	"waldo/internal/storage/sandboxes"
)

// inBackground starts a second waldo, in its own process session, that makes the call and outlives this one and its
// terminal. It returns when the sandbox has started. The output goes to files.
func (e *execFlags) inBackground(c *cobra.Command, g *cli.Context, args []string) error {
	call := id.New(id.Call)
	h, err := g.Open(c.Context(), app.Options{})
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
	text, err := background.Start(c.Context(), again, e.env, stdout, stderr)
	if err == nil && g.JSON {
		return terminal.JSON(c.OutOrStdout(), map[string]string{"call_id": call})
	}
	if err == nil {
		display.Fprintf(c.OutOrStdout(), "%s\n", call)
		return nil
	}
	_ = errors.Join(os.Remove(stdout), os.Remove(stderr))
	code := exitcode.Failed
	if e := (*exec.ExitError)(nil); errors.As(err, &e) && e.ExitCode() > 0 {
		code = e.ExitCode()
	}
	if len(text) > 0 {
		display.Fprintf(c.ErrOrStderr(), "%s\n", display.Lines(string(text))) // it printed the error and a hint
		return &exitcode.Exit{Code: code}
	}
	return &exitcode.Exit{Code: code, Err: fmt.Errorf("the command did not start: %w", err)}
}

// again returns the arguments of the second waldo.
func (e *execFlags) again(g *cli.Context, call string) []string {
	args := []string{"sandbox", "exec", "--as", call, "--timeout", e.timeout.String(), "--lang", e.lang}
	if g.State != "" {
		args = append(args, "--state", g.State)
	}
	if g.Config != "" {
		args = append(args, "--config", g.Config)
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
	for _, m := range e.shown.Mounts() {
		args = append(args, "--mount", m.Source+":"+m.Target+map[bool]string{true: ":rw"}[m.Writable])
	}
	if e.shown.Changes != "" {
		args = append(args, "--changes", e.shown.Changes)
	}
	if e.code != "" {
		args = append(args, "--code", e.code)
	}
	return args
}

// variables returns what hold gave this waldo.
func variables() (env []string, err error) {
	f := os.NewFile(background.EnvFD, "variables")
	defer f.Close()
	err = json.NewDecoder(io.LimitReader(f, mostEnv)).Decode(&env)
	return env, err
}

// mostEnv bounds the variables of a background command: Linux takes 2 MiB of arguments and environment.
const mostEnv = 8 << 20

const psRow = "%-28s %-8s %-17s %-21s %-7s %s\n"

func newSandboxPs(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "ps NAME", Short: "The commands that run in a sandbox", Args: cobra.ExactArgs(1),
		Example: "  waldo sandbox ps work",
		RunE: withSandboxes(g, func(c *cobra.Command, _ *app.App, m *sandboxes.Manager, args []string) error {
			all, err := m.Commands(c.Context(), app.Owner(), args[0])
			if err != nil || g.JSON {
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

func newSandboxKill(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "kill NAME CALL", Short: "End a command that runs in a sandbox, with everything that it has started",
		Args:    cobra.ExactArgs(2),
		Example: "  waldo sandbox kill work c_…",
		RunE: withSandboxes(g, func(c *cobra.Command, _ *app.App, m *sandboxes.Manager, args []string) error {
			return m.Kill(c.Context(), app.Owner(), args[0], args[1])
		}),
	}
}

func newSandboxLogs(g *cli.Context) *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use: "logs NAME CALL", Short: "Print the output so far of a background command", Args: cobra.ExactArgs(2),
		Example: "  waldo sandbox logs work c_…\n  waldo sandbox logs -f work c_…",
		RunE: withSandboxes(g, func(c *cobra.Command, _ *app.App, m *sandboxes.Manager, args []string) error {
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
