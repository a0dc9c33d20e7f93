//go:build linux && (amd64 || arm64)

package namespace

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPin(t *testing.T) {
	var have unix.CPUSet
	if err := unix.SchedGetaffinity(0, &have); err != nil {
		t.Fatal(err)
	}
	rows := []struct {
		why   string
		milli int64
		want  int
	}{
		{"a part of one", 1, 1},
		{"one", 1000, 1},
		{"more than one needs two", 1001, min(2, have.Count())},
		{"more than there are", 1 << 40, have.Count()},
	}
	for _, r := range rows {
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		err := pin(cmd.Process.Pid, r.milli)
		var got unix.CPUSet
		if e := unix.SchedGetaffinity(cmd.Process.Pid, &got); err != nil || e != nil || got.Count() != r.want {
			t.Errorf("%s: %d processors of %d, want %d (%v, %v)", r.why, got.Count(), have.Count(), r.want, err, e)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}
