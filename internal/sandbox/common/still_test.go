//go:build linux

package common

import (
	"os/exec"
	"testing"
	"time"
)

// TestStill: a thread that runs is waited for, but not for long; one that waits, or is gone, is not.
func TestStill(t *testing.T) {
	took := func(script string) time.Duration {
		c := exec.Command("/bin/sh", "-c", script)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // it has begun
		began := time.Now()
		Still(c.Process.Pid)
		d := time.Since(began)
		_ = c.Process.Kill()
		_ = c.Wait()
		Still(c.Process.Pid)
		return d
	}
	if d := took("while :; do :; done"); d < 4*time.Millisecond {
		t.Errorf("one that runs was waited for %v", d)
	}
	least := time.Hour
	for range 5 {
		least = min(least, took("sleep 60; :"))
	}
	if least > 4*time.Millisecond {
		t.Errorf("control: one that waits was waited for %v", least)
	}
}
