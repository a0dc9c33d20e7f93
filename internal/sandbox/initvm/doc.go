// Package initvm is a program of some thirty instructions that executes a list of system calls: data, not code.
// It is an executable of its own in a sealed memfd. It can also be mapped into an interpreter's memory and
// called there.
package initvm
