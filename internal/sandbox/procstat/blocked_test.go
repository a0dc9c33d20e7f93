//go:build linux

package procstat

import (
	"os/exec"
	"testing"
	"time"
)

// TestWaitBlocked: a thread that runs is waited for, but not for long; one that waits, or is gone, is not.
func TestWaitBlocked(t *testing.T) {
	took := func(script string) (d, gone time.Duration) {
		c := exec.Command("/bin/sh", "-c", script)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // it has begun
		stat := OpenStat(c.Process.Pid)
		defer stat.Close()
		began := time.Now()
		WaitBlocked(stat)
		d = time.Since(began)
		_ = c.Process.Kill()
		_ = c.Wait()
		began = time.Now()
		WaitBlocked(stat)
		WaitBlocked(OpenStat(c.Process.Pid))
		return d, time.Since(began)
	}
	most, least, gone := time.Duration(0), time.Hour, time.Hour
	for range 5 { // where the machine is busy one may not run yet, and another not wait yet
		runs, over := took("while :; do :; done")
		waits, _ := took("sleep 60; :")
		most, least, gone = max(most, runs), min(least, waits), min(gone, over)
	}
	if gone > 4*time.Millisecond {
		t.Errorf("one that is gone was waited for %v", gone)
	}
	if most < 4*time.Millisecond {
		t.Errorf("one that runs was waited for %v", most)
	}
	if least > 4*time.Millisecond {
		t.Errorf("control: one that waits was waited for %v", least)
	}
}
