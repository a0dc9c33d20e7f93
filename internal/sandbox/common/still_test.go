//go:build linux

package common

import (
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStill: a thread that runs is waited for, but not for long; one that waits, or is gone, is not.
func TestStill(t *testing.T) {
	took := func(script string) (d, gone time.Duration) {
		c := exec.Command("/bin/sh", "-c", script)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // it has begun
		stands := Stat(c.Process.Pid)
		defer stands.Close()
		began := time.Now()
		WaitBlocked(stands)
		d = time.Since(began)
		_ = c.Process.Kill()
		_ = c.Wait()
		began = time.Now()
		WaitBlocked(stands)
		WaitBlocked(Stat(c.Process.Pid))
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

// TestPackets: a pipe in packet mode is read to its end, and an endless writer does not block the reader for
// ever.
func TestPackets(t *testing.T) {
	for why, flags := range map[string]int{"control: a stream": 0, "packets": unix.O_DIRECT} {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK|flags); err != nil {
			t.Fatal(err)
		}
		if n, err := unix.Write(p[1], make([]byte, 60_000)); n != 60_000 {
			t.Fatal(n, err)
		}
		s := &Stream{Limit: 1 << 20}
		if more := s.Now(p[0]); s.Total != 60_000 || !more {
			t.Errorf("%s: %d bytes, more %v", why, s.Total, more)
		}
		unix.Close(p[1])
		if s.Now(p[0]) {
			t.Errorf("%s: more after the end", why)
		}
		unix.Close(p[0])
	}
	zero, err := unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(zero)
	s := &Stream{Whole: true}
	if !s.Now(zero) || s.Total == 0 || s.Total > packets<<16 {
		t.Errorf("stopped after %d bytes of a file without one", s.Total)
	}
}
