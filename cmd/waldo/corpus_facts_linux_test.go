package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/facts"
)

// leftoverMark is in the arguments of each process that a row leaves behind.
const leftoverMark = "73519"

// leftovers counts the processes of this machine that rows left behind.
func leftovers() (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		if b, _ := os.ReadFile(f); strings.HasPrefix(string(b), "sleep\x00") &&
			strings.Contains(string(b), "."+leftoverMark) {
			n++
		}
	}
	return n
}

// factRow is one run and the facts that waldo must report.
type factRow struct {
	Lang, Code string
	Limits     struct {
		Wall float64 `json:"wall_s"`
		Mem  int     `json:"mem_mb"`
		Pids int
		Out  int `json:"out_kb"`
	}
}

// TestCorpusOfFacts runs each row of exec_facts with `waldo run --json`. Rows that run out of time get 2 s in place of
// 10, and the one that stays below its limit has a second to spare, for machines under load.
func TestCorpusOfFacts(t *testing.T) {
	for class, n := range map[string]int{"facts-py": 23, "facts-js": 7, "facts-sh": 7} {
		for _, r := range corpusCases(t, class, n) {
			t.Run(r.ID+" "+r.Why, func(t *testing.T) {
				var in factRow
				if err := json.Unmarshal(r.Whole, &in); err != nil {
					t.Fatal(err)
				}
				judgeFacts(t, in, r.Expect.(map[string]any))
			})
		}
	}
}

func judgeFacts(t *testing.T, in factRow, expect map[string]any) {
	wall := in.Limits.Wall
	if expect["timed_out"] == true {
		wall = 2
	}
	code := strings.NewReplacer("/work/out.txt", "/workspace/output/out.txt", "sleep(9.5)", "sleep(9.0)", "nohup sleep 99",
		"nohup sleep 99."+leftoverMark,
		"import time; time.sleep(60)", `os.execvp("sleep", ["sleep", "60.`+leftoverMark+`"])`).Replace(in.Code)
	lang := map[string]string{"py": "python", "js": "javascript", "sh": "shell"}[in.Lang]
	file := filepath.Join(t.TempDir(), "code") // for -c '' is a mistake, and an empty file is an empty program
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	said := typing(t, "", "--state", t.TempDir(), "run", "--json", "--lang", lang, "--timeout", fmt.Sprintf("%gs", wall),
		"--cpu-seconds", "20",
		"--memory-mb", fmt.Sprint(in.Limits.Mem), "--pids", fmt.Sprint(in.Limits.Pids), "--output-kb",
		fmt.Sprint(in.Limits.Out), file)
	var f facts.Facts
	if err := json.Unmarshal([]byte(said.out), &f); err != nil {
		t.Fatalf("%v: %+v", err, said)
	}
	exit, signal, limit := -1, "", ""
	if f.ExitCode != nil {
		exit = *f.ExitCode
	}
	if f.Signal != nil {
		signal = *f.Signal
	}
	if f.Limit != nil {
		limit = string(*f.Limit)
	}
	for what, want := range expect {
		ok := false
		switch what {
		case "exit":
			ok = float64(exit) == want
		case "exit_in":
			ok = slices.Contains(want.([]any), any(float64(exit)))
		case "signal":
			ok = signal == map[float64]string{9: "SIGKILL", 11: "SIGSEGV"}[want.(float64)]
		case "killed":
			ok = (signal != "") == want
		case "timed_out":
			ok = f.TimedOut == want && (limit == "wall") == want && (f.Status == facts.Timeout) == want
		case "oom":
			ok = f.OOMKilled == want && (f.Status == facts.OOM) == want
		case "limit_hit":
			ok = limit == want || slices.ContainsFunc(f.Warnings,
				func(w string) bool { return strings.Contains(w, want.(string)) }) || f.Usage.PidsPeak >= int64(in.Limits.Pids)
		case "stdout":
			ok = f.Stdout == want
		case "stderr_has":
			ok = strings.Contains(f.Stderr, want.(string))
		case "stdout_truncated":
			ok = f.Truncated.Stdout == want
		case "stderr_truncated":
			ok = f.Truncated.Stderr == want
		case "stdout_bytes_total":
			ok = float64(f.Usage.OutputBytes) == want
		case "files_changed":
			ok = slices.ContainsFunc(f.Files.Artifacts, func(name string) bool {
				return strings.HasSuffix(name, want.([]any)[0].(string))
			})
		case "filesystem": // the write fails in the sandbox; the namespace driver does not observe which file it was
			ok = strings.Contains(f.Stderr, "Error") && f.SideEffect == facts.None
		case "leftover_killed":
			for end := time.Now().Add(5 * time.Second); !ok && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				ok = leftovers() == 0
			}
		case "wall_s_below":
			ok = f.Usage.WallMS < want.(float64)*1000
		case "wall_s_about":
			ok = f.Usage.WallMS >= wall*1000 && f.Usage.WallMS < wall*1000+5000
		case "cpu_s_below":
			ok = f.Usage.CPUMS < want.(float64)*1000
		case "max_rss_reported":
			ok = f.Usage.MemoryPeak > 1<<20
		case "facts_not_forged":
			ok = exit == 0 && f.Status == facts.OK && strings.Count(said.out, "\n  \"exit_code\":") == 1 && f.Usage.WallMS > 0
		}
		if !ok {
			t.Errorf("%s: wanted %v: %.3000s", what, want, said.out)
		}
	}
}

// TestLeftoversAreSeen is the control: a process in a sandbox that lasts is among those that are counted.
func TestLeftoversAreSeen(t *testing.T) {
	ended := make(chan said)
	go func() { ended <- typing(t, "", "--state", t.TempDir(), "exec", "--", "sleep", "3."+leftoverMark) }()
	for seen := 0; seen == 0; seen = leftovers() {
		select {
		case s := <-ended:
			t.Fatalf("it was not seen: %+v", s)
		case <-time.After(20 * time.Millisecond):
		}
	}
	<-ended
}
