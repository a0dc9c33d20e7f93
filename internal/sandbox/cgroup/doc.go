// Package cgroup makes one control group per run: it bounds memory, processes and processors of
// the whole tree, tells what the tree used, and ends it. It knows version 2, version 1, and both
// at once; it makes, changes and removes only groups of its own name beneath waldo's own group or
// one that was delegated to this user.
package cgroup
