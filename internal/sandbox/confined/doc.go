// Package confined makes boxes out of Landlock, a seccomp filter and rlimits alone, for machines
// and containers that give no namespaces. Promises and Losses say what that is worth.
package confined
