// Package gvisor makes sandboxes out of gVisor. A kernel in user space serves the sandbox, so that no system
// call of the agent's code reaches this machine's kernel.
//
// gVisor is a second executable (cmd/waldo-gvisor), compressed inside waldo and unpacked on first use, so that
// waldo itself stays small and starts fast. One process of it is PID 1 of a PID namespace, a mount namespace
// and a user namespace: when it ends, everything in the sandbox is dead and every mount is gone. For each
// command it starts a gVisor anew; the sandbox's volumes stay as long as the sandbox.
package gvisor
