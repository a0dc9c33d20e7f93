//go:build linux && (amd64 || arm64)

package namespace

import (
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"
)

// pin holds a process and all it will start to as many processors as milli thousandths fill, where
// no cgroup bounds them. The filter keeps the box from changing it (seccomp.Profile.Affinity).
func pin(pid int, milli int64) error {
	var have, want unix.CPUSet
	if err := unix.SchedGetaffinity(0, &have); err != nil {
		return fmt.Errorf("namespace: sched_getaffinity: %w", err)
	}
	n := int((milli + 999) / 1000)
	for _, i := range rand.Perm(len(have) * 64) { // not always the first: boxes share the machine
		if n > 0 && have.IsSet(i) {
			want.Set(i)
			n--
		}
	}
	if err := unix.SchedSetaffinity(pid, &want); err != nil {
		return fmt.Errorf("namespace: sched_setaffinity: %w", err)
	}
	return nil
}
