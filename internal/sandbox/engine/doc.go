// Package engine makes sandboxes for scripts with nothing installed: QuickJS or CPython in WebAssembly, in a
// process of waldo's own program. On Linux that process is in a sandbox of the driver namespace or confined, without
// network and with the folders of the workspace alone. Elsewhere it is an ordinary process, which Probe and the facts
// say. The program inside reaches what package program gives it, and nothing of the machine.
package engine
