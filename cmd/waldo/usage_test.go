package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"waldo/internal/cli"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"waldo/internal/cli/exitcode"
	"waldo/internal/frontend/terminal"
)

// leaked are words of libraries, which tell a person nothing.
var leaked = regexp.MustCompile(`strconv|time: |arg\(s\)|invalid argument "|shorthand|pflag|context canceled` +
	`|\b(l?stat|openat|execute) \S+:|invalid syntax`)

// wrong runs waldo with a mistake and returns what it said.
func wrong(t *testing.T, args ...string) string {
	t.Helper()
	var out, errw bytes.Buffer
	code := run(append([]string{"--state", t.TempDir()}, args...), strings.NewReader(""), &out, &errw)
	said := errw.String()
	if code != exitcode.Usage || !strings.HasPrefix(said, "waldo: ") || !strings.Contains(said, "\nhint: ") {
		t.Errorf("waldo %s: exit code %d: %s", strings.Join(args, " "), code, said)
	}
	if words := leaked.FindString(said); words != "" {
		t.Errorf("waldo %s: the words %q of a library: %s", strings.Join(args, " "), words, said)
	}
	return said
}

// Each command is given each mistake that its flags and arguments admit. No answer has the words of a library.
func TestMistakesInPlainWords(t *testing.T) {
	if !leaked.MatchString(errors.Join(cobra.ExactArgs(1)(&cobra.Command{}, nil)).Error()) {
		t.Fatal("control: what cobra says is not noticed")
	}
	flags, counts := 0, 0
	var each func(c *cobra.Command, path []string)
	each = func(c *cobra.Command, path []string) {
		if c.Name() == "completion" || c.Hidden {
			return
		}
		wrong(t, append(path, "--nosuchflag")...)
		wrong(t, append(path, "-Z")...)
		c.Flags().VisitAll(func(f *pflag.Flag) {
			switch f.Value.Type() {
			case "string", "stringArray", "stringSlice":
				wrong(t, append(path, "--"+f.Name)...)
			default:
				wrong(t, append(path, "--"+f.Name+"=?")...)
			}
			flags++
		})
		for _, args := range [][]string{nil, {"a", "b", "c", "d", "e"}} {
			if c.Args != nil && c.Args(c, args) != nil {
				wrong(t, append(path, args...)...)
				counts++
			}
		}
		for _, sub := range c.Commands() {
			each(sub, append(path[:len(path):len(path)], sub.Name()))
		}
	}
	for _, c := range newRoot(withFeatures(&cli.Context{})).Commands() {
		each(c, []string{c.Name()})
	}
	if flags < 50 || counts < 30 {
		t.Errorf("only %d flags and %d numbers of arguments were tried", flags, counts)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"rnu":      "waldo: unknown command \"rnu\"\nhint: did you mean waldo run?\n",
		"help rnu": "waldo: unknown command \"rnu\"\nhint: did you mean waldo run?\n",
		"quux":     "waldo: unknown command \"quux\"\nhint: see waldo --help\n",
		"gen":      "waldo: a server needs a name\nhint: as in --name github\n",
		"sandbox craete": "waldo: unknown command \"craete\" of waldo sandbox\nhint: did you mean waldo sandbox " +
			"create?\n",
		"secret get":        "waldo: unknown command \"get\" of waldo secret\nhint: see waldo secret --help\n",
		"deny":              "waldo: missing ID\nhint: as in: waldo deny a_… --reason 'not before Monday'\n",
		"version x":         "waldo: unexpected argument \"x\"\nhint: see waldo version --help\n",
		"run --memory-mb x": "waldo: --memory-mb must be a whole number, not \"x\"\nhint: see waldo run --help\n",
		"run --timeout 5": "waldo: --timeout must be a time with its unit, as in 30s, 5m or 2h, not \"5\"\n" +
			"hint: see waldo run --help\n",
		"run --language x": "waldo: unknown flag --language\nhint: did you mean --lang?\n",
		"run --tmeout 5s":  "waldo: unknown flag --tmeout\nhint: did you mean --timeout?\n",
		"run nosuch.py": "waldo: nosuch.py: no such file or directory\nhint: give a file that is there and can " +
			"be read\n",
		"check nosuch.yaml": "waldo: nosuch.yaml: no such file or directory\nhint: give the file to check\n",
		"--color blue version": "waldo: --color must be auto, always or never, not \"blue\"\n" +
			"hint: see waldo version --help\n",
	} {
		if got := wrong(t, strings.Fields(args)...); got != want {
			t.Errorf("waldo %s: %q, want %q", args, got, want)
		}
	}
}

// With --json an error is one JSON object on standard error, also where the mistake stands before the flag.
func TestErrorsAsJSON(t *testing.T) {
	for _, args := range [][]string{{"--json", "rnu"}, {"--nosuch", "--json"}, {"run", "nosuch.py", "--json"}} {
		var out, errw bytes.Buffer
		code := run(args, strings.NewReader(""), &out, &errw)
		var f exitcode.Failure
		if err := json.Unmarshal(errw.Bytes(), &f); err != nil || code != exitcode.Usage || f.Code != code ||
			f.Error == "" || f.Hint == "" {
			t.Errorf("waldo %v: exit code %d, %v: %s", args, code, err, errw.String())
		}
		if out.Len() > 0 {
			t.Errorf("waldo %v: standard output has %s", args, out.String())
		}
	}
}

// Ctrl-C ends a command with a one-word message and the exit code of the signal.
func TestStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	failed := &exitcode.Exit{Code: exitcode.Failed, Text: "reading"}
	if got := exitcode.Stopped(ctx, failed); got != error(failed) {
		t.Errorf("control: nobody has pressed Ctrl-C, and it says %v", got)
	}
	cancel()
	for _, err := range []error{context.Canceled, failed, &exitcode.Exit{Code: exitcode.Usage, Err: context.Canceled}} {
		if got := exitcode.Report(&bytes.Buffer{}, false, exitcode.Stopped(ctx, err)); got != exitcode.Cancelled ||
			exitcode.Stopped(ctx, err).Error() != "cancelled" {
			t.Errorf("%v: exit code %d", err, got)
		}
	}
	if got := exitcode.Report(&bytes.Buffer{}, false, exitcode.Stopped(ctx, &exitcode.Exit{Code: 7})); got != 7 {
		t.Errorf("the command's own exit code became %d", got)
	}
	if exitcode.Stopped(ctx, nil) != nil {
		t.Error("a command that had ended well was cancelled")
	}
}

func TestColours(t *testing.T) {
	defer func() { terminal.Colours = "auto" }()
	t.Setenv("NO_COLOR", "1")
	for _, when := range []string{"never", "auto", "always"} {
		if err := terminal.Colours.Set(when); err != nil || terminal.Coloured(os.Stdout) != (when == "always") {
			t.Errorf("--color %s: %v, coloured %v", when, err, terminal.Coloured(os.Stdout))
		}
	}
	if terminal.Colours.Set("blue") == nil {
		t.Error("blue was taken")
	}
}

func TestVersion(t *testing.T) {
	defer func(a, b string) { commit, committed = a, b }(commit, committed)
	commit, committed = "0123456789ab", "2026-11-22T10:00:00Z"
	want := "waldo " + version + " (commit 0123456789ab of 2026-11-22T10:00:00Z"
	for _, args := range [][]string{{"--version"}, {"-v"}, {"version"}} {
		var out, errw bytes.Buffer
		if code := run(args, strings.NewReader(""), &out, &errw); code != 0 || !strings.HasPrefix(out.String(), want) {
			t.Errorf("waldo %v: %d %s%s", args, code, out.String(), errw.String())
		}
	}
	var out, errw bytes.Buffer
	var a about
	if run([]string{"--version", "--json"}, strings.NewReader(""), &out, &errw); json.Unmarshal(out.Bytes(), &a) != nil ||
		a.Commit != commit {
		t.Errorf("--json: %s", out.String())
	}
}
