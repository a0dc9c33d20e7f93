//go:build unix

package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
)

// TestFigureIndex measures the index over WALDO_RECORDS records: rows of BENCHMARKS.md. It runs the program WALDO_BINARY
// besides, so that the start of a process counts.
func TestFigureIndex(t *testing.T) {
	var records int
	if _, err := fmt.Sscan(os.Getenv("WALDO_RECORDS"), &records); err != nil {
		t.Skip("WALDO_RECORDS is the number of records to measure with")
	}
	state := t.TempDir()
	dir := Dir(state)
	callID := manyCalls(t, dir, records)
	begun, used := time.Now(), processorTime(t)
	if _, err := Select(t.Context(), dir, Selection{Last: 1}, func(Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	t.Logf("first build: %v, processor time %v", time.Since(begun), processorTime(t)-used)
	for _, row := range []struct {
		why string
		s   Selection
	}{
		{"principal", Selection{Principal: "os:1007", Last: 20}},
		{"capability", Selection{Capability: "server3.*", Last: 20}},
		{"host", Selection{Host: "*.h77.example.com", Last: 20}},
		{"effect", Selection{Effect: "deny", Last: 20}},
		{"denied, principal and a day", Selection{Denied: true, Principal: "os:10*", Since: time.Now().Add(-24 * time.Hour), Last: 20}},
		{"a call and its calls", Selection{About: []string{callID}}},
		{"the last", Selection{Last: 20}},
	} {
		figure(t, row.why, func() {
			n, err := Select(t.Context(), dir, row.s, func(Record) error { return nil })
			if err != nil || n.Shown == 0 || n.Rebuilt {
				t.Fatal(row.why, n, err)
			}
		})
	}
	if os.Getenv("WALDO_BINARY") == "" {
		return
	}
	for _, args := range [][]string{
		{"log", "--principal", "os:1007"}, {"log", "--capability", "server3.*"}, {"log", "--host", "*.h77.example.com"},
		{"log", "--effect", "deny"}, {"log", "--call", callID}, {"explain", callID}, {"log"},
	} {
		figure(t, fmt.Sprint("waldo ", args[:min(2, len(args))]), func() {
			out, err := exec.Command(os.Getenv("WALDO_BINARY"), append([]string{"--state", state}, args...)...).CombinedOutput()
			if err != nil || len(out) < 100 {
				t.Fatal(args, err, string(out))
			}
		})
	}
}

// figure runs something 100 times.
func figure(t *testing.T, why string, do func()) {
	var times, work []time.Duration
	for range 100 {
		begun, used := time.Now(), processorTime(t)
		do()
		times, work = append(times, time.Since(begun)), append(work, processorTime(t)-used)
	}
	slices.Sort(times)
	slices.Sort(work)
	t.Logf("%-30s p50 %v, p99 %v; processor time %v, %v", why, times[50], times[98], work[50], work[98])
}

// manyCalls writes calls of 50 principals, 300 capabilities and 500 hosts, two records each, and returns one call.
func manyCalls(t *testing.T, dir string, records int) (one string) {
	l := openLog(t, dir, Options{Heads: &memory{}})
	defer closeLog(t, l)
	r := &Recorder{Log: l}
	text := call.Result{Status: facts.OK, Content: []call.Content{{Text: "done"}}}
	for i := range records / 2 {
		d := decision(t, `{"path":"/work/some/file.txt","text":"a text as an agent writes it"}`)
		d.ID, d.Call.ID = id.New(id.Decision), id.New(id.Call)
		d.Call.Principal, d.Call.Agent = call.Principal(fmt.Sprint("os:", 1000+i%50)), fmt.Sprint("claude-code ", i%9)
		d.Call.Capability, d.Call.Channel = call.Capability(fmt.Sprintf("server%d.tool%d", i%15, i%20)), "mcp"
		d.Call.Parent = one
		if d.Effect = policy.Allow; i%40 == 0 {
			d.Effect = policy.Deny
		}
		if i == records/4 {
			one = d.Call.ID
		}
		res := text
		res.Facts = facts.New()
		if i%3 == 0 {
			res.Facts.Network.Attempts = []facts.Attempt{{Host: fmt.Sprintf("a.h%d.example.com", i%500), Port: 443, Allowed: true}}
		}
		if i > records/4+10 {
			d.Call.Parent = ""
		}
		if err := putNow(r, d, res); err != nil {
			t.Fatal(err)
		}
	}
	return one
}

// putNow records a call without a wait for the disk.
func putNow(r *Recorder, d policy.Decision, res call.Result) error {
	d.Contract.Mode = contract.Read
	if err := r.Decision(context.Background(), d); err != nil {
		return err
	}
	_, err := r.Outcome(context.Background(), d, res)
	return err
}

func processorTime(t *testing.T) time.Duration {
	var own, ended unix.Rusage
	if err := errors.Join(unix.Getrusage(unix.RUSAGE_SELF, &own), unix.Getrusage(unix.RUSAGE_CHILDREN, &ended)); err != nil {
		t.Fatal(err)
	}
	return time.Duration(own.Utime.Nano() + own.Stime.Nano() + ended.Utime.Nano() + ended.Stime.Nano())
}
