// Package initproc is waldo's side of a machine that prepares a box: it starts one, sends it lists of
// system calls and descriptors, and hears what becomes of them. What the lists say is the namespace
// driver's.
package initproc
