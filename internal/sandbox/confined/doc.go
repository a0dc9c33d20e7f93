// Package confined makes sandboxes out of Landlock, a seccomp filter and rlimits alone, for machines and
// containers that give no namespaces. Its promises say what that is worth.
package confined

// Options are what is decided for every sandbox of a driver. The zero Options bound no processors.
type Options struct {
	MilliCPU int64 // CPU limit of a sandbox in thousandths of a processor, rounded up to whole ones
}
