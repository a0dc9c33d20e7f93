//go:build linux

package seccompnotify

import "waldo/internal/sandbox/seccomp"

// Filters are those of one kind of sandbox: without a listener, with one, and with one that also reports exits.
type Filters [3]seccomp.Program

// Compile makes the filters of a profile for this machine.
func Compile(p seccomp.Profile) (out Filters, err error) {
	if out[0], err = seccomp.Compile(seccomp.Host(), p); err != nil {
		return out, err
	}
	p.Notify = Calls()
	if out[1], err = seccomp.Compile(seccomp.Host(), p); err != nil {
		return out, err
	}
	p.Ends = true
	out[2], err = seccomp.Compile(seccomp.Host(), p)
	return out, err
}
