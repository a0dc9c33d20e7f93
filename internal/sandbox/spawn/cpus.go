//go:build linux

package spawn

import (
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"
)

// Pin restricts a thread (0: this one) and all its later children to as many processors as milli thousandths
// fill. It is for machines without a CPU cgroup; zero milli restricts nothing. undo lifts the restriction for
// later children. A sandbox cannot undo it: its seccomp filter refuses the call.
func Pin(pid int, milli int64) (undo func(), err error) {
	if milli <= 0 {
		return func() {}, nil
	}
	var have, want unix.CPUSet
	if err := unix.SchedGetaffinity(0, &have); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	n := int((milli + 999) / 1000)
	for _, i := range rand.Perm(len(have) * 64) { // not always the first: sandboxes share the machine
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
