// Package sandboxtest is the suite that every driver must pass: the refusals of a sandbox with their errors,
// its limits, the facts about each end, and that no process or file is left.
package sandboxtest
