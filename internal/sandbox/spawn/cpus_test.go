//go:build linux

package spawn

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPin(t *testing.T) {
	runtime.LockOSThread() // which ends with the test
	var all, now unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	if all.Count() < 2 {
		t.Skip("one processor: nothing to bound")
	}
	undo, err := Pin(0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SchedGetaffinity(0, &now); err != nil || now.Count() != 1 {
		t.Errorf("%v: %d processors, not 1", err, now.Count())
	}
	undo()
	if err := unix.SchedGetaffinity(0, &now); err != nil || now.Count() != all.Count() {
		t.Errorf("%v: %d processors afterwards, not %d", err, now.Count(), all.Count())
	}
}
