// Package landlock builds the rulesets that the kernel's Landlock module holds a sandbox to: which files, which
// TCP ports, and that its abstract sockets and signals stay among its own. The ruleset is a descriptor that the
// parent makes; in the child one call puts it in force.
package landlock
