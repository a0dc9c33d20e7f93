//go:build linux

package common

import (
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"
)

// Pin holds a thread (0: this one) and all it will start to as many processors as milli thousandths
// fill, where no cgroup bounds them; zero milli bounds nothing. What it returns undoes that for what
// starts later. A box cannot undo it: its filter of system calls refuses to.
func Pin(pid int, milli int64) (undo func(), err error) {
	if milli <= 0 {
		return func() {}, nil
	}
	var have, want unix.CPUSet
	if err := unix.SchedGetaffinity(0, &have); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	n := int((milli + 999) / 1000)
	for _, i := range rand.Perm(len(have) * 64) { // not always the first: boxes share the machine
		if n > 0 && have.IsSet(i) {
			want.Set(i)
			n--
		}
	}
	if err := unix.SchedSetaffinity(pid, &want); err != nil {
		return nil, fmt.Errorf("sched_setaffinity: %w", err)
	}
	return func() { _ = unix.SchedSetaffinity(pid, &have) }, nil
}
