//go:build linux

package sandboxtest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/testing/corpus"
)

// factRow is one row of the corpus: a program, its limits, and the expected facts about its end.
type factRow struct {
	ID    string
	Why   string
	Input struct {
		Lang, Code string
		Limits     struct {
			Wall   int64 `json:"wall_s"`
			Memory int64 `json:"mem_mb"`
			Pids   int64 `json:"pids"`
			Output int64 `json:"out_kb"`
		}
	}
	Expect map[string]any
}

var interpreters = map[string][]string{"py": {"python3", "-c"}, "js": {"node", "-e"}, "sh": {"sh", "-c"}}

// testFacts runs every row in a sandbox of its own.
func (s *suite) testFacts(t *testing.T) {
	rows := corpus.Rows[factRow](t, "exec_facts.jsonl")
	var wg sync.WaitGroup
	defer wg.Wait()
	room := make(chan struct{}, 6) // most rows wait for a clock, not for a processor
	for _, row := range rows {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			t.Run(row.Why, func(t *testing.T) { s.factRow(t, row) })
		})
	}
	if len(rows) < 30 {
		t.Fatalf("only %d rows", len(rows))
	}
}

// factRow runs a row. If a row times out unexpectedly after its limit's full time, it is run again with more
// time: the machine can be busy.
func (s *suite) factRow(t *testing.T, row factRow) {
	argv := interpreters[row.Input.Lang]
	if !s.has[argv[0]] {
		t.Skipf("this machine has no %s in /usr/bin", argv[0])
	}
	p := Profile()
	p.Tmpfs = append(p.Tmpfs, sandbox.Tmpfs{Target: "/work", Bytes: 1 << 20, Inodes: 100, Export: true})
	l := row.Input.Limits
	p.Limits.Wall = time.Duration(l.Wall) * time.Second
	if row.Expect["limit_hit"] == "pids" || row.Expect["oom"] == true {
		// storms of forks and half a gigabyte take long on a busy machine, and these rows are not about time
		p.Limits.Wall *= 6
	}
	if row.Expect["limit_hit"] == "pids" {
		l.Memory *= 2 // 128 tracebacks of Python 3.13 at once take 540 MB
	}
	p.Limits.Memory, p.Limits.Pids, p.Limits.Output = l.Memory<<20, l.Pids, l.Output<<10
	var b sandbox.Sandbox
	var f facts.Facts
	for range 3 {
		b = s.start(t, p)
		f = run(t, b, sandbox.Command{Argv: append(slices.Clone(argv), row.Input.Code), Env: env})
		if !f.TimedOut || row.Expect["timed_out"] == true || f.Usage.WallMS < facts.MS(p.Limits.Wall) {
			break
		}
		p.Limits.Wall *= 3
	}
	for key, want := range row.Expect {
		if !s.holds(key, want, row, f) {
			t.Errorf("%s: want %v\ncode  %s\nfacts %+v\nexit %v signal %v limit %v", key, want, row.Input.Code, brief(f),
				deref(f.ExitCode), deref(f.Signal), deref(f.Limit))
		}
	}
	if row.Expect["leftover_killed"] == true {
		s.alone(t, b)
	}
}

// holds compares one expectation with the facts.
func (s *suite) holds(key string, want any, row factRow, f facts.Facts) bool {
	number, _ := want.(float64)
	text, _ := want.(string)
	wall := time.Duration(f.Usage.WallMS * float64(time.Millisecond)).Seconds()
	switch key {
	case "exit":
		if strings.Contains(row.Input.Code, "multiprocessing") && s.answer("own shared memory", "", "no") == "no" {
			number = 1
		}
		return f.ExitCode != nil && *f.ExitCode == int(number) && f.Signal == nil && (f.Status == facts.OK) == (number == 0)
	case "exit_in":
		return f.ExitCode != nil && slices.Contains(want.([]any), any(float64(*f.ExitCode)))
	case "signal":
		return f.Signal != nil && *f.Signal == map[float64]string{9: "SIGKILL", 11: "SIGSEGV"}[number] &&
			f.ExitCode == nil && f.Status == facts.Failed
	case "killed":
		return (f.Signal != nil) == want.(bool)
	case "timed_out":
		return f.TimedOut == want.(bool) && (f.Status == facts.Timeout) == want.(bool)
	case "oom":
		if want == true && !s.ability["cgroup memory"] { // then each process has a limit, and no facts say oom
			return f.Status != facts.OK
		}
		return f.OOMKilled == want.(bool) && (f.Status == facts.OOM) == want.(bool)
	case "limit_hit":
		if !s.ability["cgroup pids"] {
			return f.Status == facts.Failed
		}
		return f.Limit != nil && string(*f.Limit) == text
	case "stdout_truncated":
		return f.Truncated.Stdout == want.(bool) && len(f.Stdout) == int(row.Input.Limits.Output<<10)
	case "stderr_truncated":
		return f.Truncated.Stderr == want.(bool) && len(f.Stderr) == int(row.Input.Limits.Output<<10)
	case "stdout_bytes_total":
		return f.Usage.OutputBytes == int64(number)
	case "stdout":
		return f.Stdout == text
	case "stderr_has":
		return strings.Contains(f.Stderr, text)
	case "facts_not_forged":
		return f.Status == facts.OK && *f.ExitCode == 0 && f.Stdout != "" && !f.TimedOut
	case "files_changed":
		if s.less { // its code has no /work: that is another folder
			return s.answer("folders at their names", "", "no") == "no" && *f.ExitCode == 1 && len(f.Files.Written) == 0
		}
		return slices.Equal(f.Files.Written, []string{"/work/" + want.([]any)[0].(string)})
	case "filesystem":
		return strings.Contains(f.Stderr, "OSError") || strings.Contains(f.Stderr, "PermissionError")
	case "leftover_killed":
		return true // checked in the sandbox, afterwards
	case "max_rss_reported":
		return f.Usage.MemoryPeak > 1<<20
	case "wall_s_below":
		return wall < 6*number // a run that waited wrongly takes a minute
	case "wall_s_about":
		return wall > number-0.5 && wall < number+20
	case "cpu_s_below":
		return f.Usage.CPUMS < 5*number*1000 // a loop that waits takes ten
	}
	return false // an unknown expectation
}

// alone fails when anything but the looking process is left in the sandbox.
func (s *suite) alone(t *testing.T, b sandbox.Sandbox) {
	t.Helper()
	if s.less {
		return // /proc is closed: testNothingLeft looks from outside
	}
	f := run(t, b,
		python(`print(sorted(open("/proc/%s/comm" % p).read().strip() for p in os.listdir("/proc") if p.isdigit() and `+
			`int(p) > 1))`))
	if !strings.HasPrefix(f.Stdout, "['python3") || strings.Contains(f.Stdout, ",") {
		t.Errorf("left in the sandbox: %s%s", f.Stdout, f.Stderr)
	}
}

func brief(f facts.Facts) facts.Facts {
	f.Stdout, f.Stderr = f.Stdout[:min(len(f.Stdout), 300)], f.Stderr[:min(len(f.Stderr), 1000)]
	return f
}

func deref[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func run(t *testing.T, b sandbox.Sandbox, c sandbox.Command) facts.Facts {
	t.Helper()
	f, err := b.Run(context.Background(), c)
	if err != nil {
		t.Fatalf("run %q: %v", c.Argv, err)
	}
	return f
}
