package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"waldo/internal/sandbox/engine/cpython"
	"waldo/internal/testing/pgtest"
	"waldo/internal/testing/sandboxtest"
)

func TestMain(m *testing.M) {
	child()
	testscript.Main(m, map[string]func(){
		// approve and deny answer the question whose id is in the file id.
		"approve": func() { answerQuestion("approve") },
		"deny":    func() { answerQuestion("deny") },
		// behind MACHINE COMMAND.. executes the command on a machine that refuses what that one does.
		"behind": func() {
			fmt.Fprintln(os.Stderr, sandboxtest.BehindMain(os.Args[1:], exec.LookPath))
			os.Exit(99)
		},
		"browse": browse,
		"waldo": func() {
			resolveBy(os.Getenv("TEST_DNS"))
			in, out := atPrompts()
			os.Exit(run(os.Args[1:], in, os.Stdout, out))
		},
	})
}

func answerQuestion(word string) {
	b, err := os.ReadFile("id")
	if err != nil {
		os.Exit(99)
	}
	in, out := atPrompts()
	os.Exit(run([]string{"--config", "desk.yaml", word, strings.TrimSpace(string(b))}, in, os.Stdout, out))
}

// atPrompts returns the standard input and error of a command of a script.
var atPrompts = func() (*os.File, io.Writer) { return os.Stdin, os.Stderr }

// TestScripts tests the command line as it is typed: one story a file, its files beneath it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "npmregistry": serveNpm, "pypi": servePyPI, "tamper": tamper, "registry": serveImage,
			"remote": serveRemote, "postgres": servePostgres, "model": serveModel, "website": serveWebsite, "issuer": serveIssuer,
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Geteuid() == 0, nil
			case "wasmpython":
				return cpython.Available(), nil
			case "postgres":
				found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
				return len(found) > 0, err
			case "pandas": // as sandboxes have it: of this machine's /usr
				return exec.Command("/usr/bin/python3", "-I", "-c", "import pandas, matplotlib").Run() == nil, nil
			}
			return false, fmt.Errorf("no condition %q", cond)
		},
		Setup: func(e *testscript.Env) error {
			state := filepath.Join(e.WorkDir, ".state")
			e.Setenv("WALDO_STATE", state)
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, ".config"))
			e.Setenv("NO_COLOR", "1")
			readme, err := filepath.Abs("../../README.md")
			if err != nil {
				return err
			}
			e.Setenv("README", readme)
			return nil
		},
	})
}

// exits runs a command that must end with the exit code named first: exits 3 waldo explain x.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if err != nil || neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG..]")
	}
	err = ts.Exec(args[1], args[2:]...)
	var e *exec.ExitError
	if !errors.As(err, &e) || e.ExitCode() != want {
		ts.Fatalf("wanted exit code %d, got: %v", want, err)
	}
}

// servePostgres starts a PostgreSQL server, runs the statements of a file in it, and sets PORT: postgres FILE.
func servePostgres(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: postgres FILE")
	}
	s, err := pgtest.Start()
	ts.Check(err)
	ts.Defer(s.Stop)
	ts.Check(s.SQL("postgres", ts.ReadFile(args[0])))
	ts.Setenv("PORT", strconv.Itoa(s.Port))
}
