//go:build linux && (amd64 || arm64)

package pool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/guest"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/sandbox/pool"
)

// sandboxMain is for the runner of the probes. It runs "python3 -c CODE" in the copy of a zygote that was waiting
// in a sandbox. Any other command replaces the interpreter in such a sandbox.
func sandboxMain(argv []string) (int, error) {
	const disk, inodes = 256 << 20, 16 << 10
	start, head, err := guest.Start{Lang: guest.Python, Warm: true}.Command()
	if err != nil {
		return 0, err
	}
	own := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/workspace/tmp", "LANG=C.UTF-8", "TMPDIR=/tmp"}
	p := sandbox.Profile{
		ID: "s_probe", Template: sandbox.Template{Name: "host"},
		Tmpfs: []sandbox.Tmpfs{{Target: "/tmp", Bytes: disk, Inodes: inodes},
			{Target: "/workspace/tmp", Bytes: disk, Inodes: inodes},
			{Target: "/workspace/output", Bytes: disk, Inodes: inodes, Export: true}},
		Limits: sandbox.Limits{Wall: 10 * time.Second, CPU: 10 * time.Second, Memory: 512 << 20, Pids: 64, Files: 64,
			Disk: disk, Inodes: inodes, Output: 1 << 20},
		Prestart: &sandbox.Prestart{Argv: append([]string{"/usr/bin/python3"}, start...), Env: own, Dir: "/workspace/tmp",
			Prelude: head,
			Zygote:  guest.Start{Lang: guest.Python}.Zygote(), Domain: "probes"},
	}
	d := pool.New(namespace.New(namespace.Options{MilliCPU: 1000}), pool.Options{Most: 1})
	defer d.Close()
	d.Keep(p, 1)
	for end := time.Now().Add(time.Minute); d.Ready(p) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	b, err := d.Start(context.Background(), p)
	if err != nil {
		return 0, err
	}
	defer b.Close()
	c := sandbox.Command{Argv: argv, Env: own, Dir: "/workspace/tmp", Stdin: os.Stdin, Stdout: os.Stdout,
		Stderr: os.Stderr}
	i := slices.Index(argv, "-c")
	python := i > 0 && strings.HasPrefix(filepath.Base(argv[0]), "python3")
	if python {
		stdin, err := guest.Script{Lang: guest.Python, Code: []byte(argv[i+1]), Args: argv[i+2:]}.Job()
		if err != nil {
			return 0, err
		}
		c.Argv, c.Stdin = p.Prestart.Argv, io.MultiReader(strings.NewReader(head), stdin, os.Stdin)
	}
	f, err := b.Run(context.Background(), c)
	switch {
	case err != nil:
		return 0, err
	case python && !f.Sandbox.Warm:
		return 0, fmt.Errorf("the sandbox was not warm")
	case f.TimedOut:
		return 124, nil
	case f.OOMKilled || f.Signal != nil:
		return 137, nil
	case f.ExitCode != nil:
		return *f.ExitCode, nil
	}
	return 1, nil
}

// TestProbes: escape attempts from a sandbox forked from a zygote fail. The probes cover identity, processes
// and the remains of another sandbox; WALDO_PROBES=. runs all.
func TestProbes(t *testing.T) {
	only := os.Getenv("WALDO_PROBES")
	if only == "" {
		only = "^(0|1)"
	}
	probes, err := filepath.Abs("../../../attack/testdata/probes")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	verdicts := filepath.Join(t.TempDir(), "verdicts.json")
	c := exec.Command("/usr/bin/python3", filepath.Join(probes, "runner.py"), "--lim", "pids=64", "--lim", "nofile=64",
		"--lim", "out_kb=1024",
		"--lim", "inodes=20000", "--cwd", t.TempDir(), "--only", only, "--json", verdicts, "--", self, "sandbox", "--")
	out, err := c.CombinedOutput()
	var all struct {
		Results []struct{ ID, Verdict, Why string }
	}
	if b, rerr := os.ReadFile(verdicts); rerr != nil || json.Unmarshal(b, &all) != nil {
		t.Fatalf("no verdicts: %v\n%s", err, out)
	}
	contained := 0
	for _, r := range all.Results {
		switch r.Verdict {
		case "CONTAINED":
			contained++
		case "N/A":
			t.Logf("%s does not apply here: %s", r.ID, r.Why)
		default:
			t.Errorf("%s: %s: %s", r.ID, r.Verdict, r.Why)
		}
	}
	if contained < 10 {
		t.Errorf("only %d probes were contained:\n%s", contained, out)
	}
	t.Logf("%d probes contained", contained)
}
