package app

import "waldo/internal/sandbox/cgroup"

// Delegated moves this process below the control group that systemd delegated to it, so that the groups of sandboxes
// find their controllers beside it. It does nothing in another group.
func Delegated() error { return cgroup.Settle() }
