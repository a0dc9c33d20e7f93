// Package initproc is waldo's side of the process that prepares a sandbox. It starts one, sends it lists of
// system calls and descriptors, and receives their results. The namespace driver writes the lists.
package initproc
