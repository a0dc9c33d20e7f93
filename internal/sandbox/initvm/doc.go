// Package initvm is a program of some thirty instructions that walks a list of system calls: data,
// not code. It is an executable of its own, in a sealed file in memory, and can be put into the memory
// of an interpreter and called there.
package initvm
