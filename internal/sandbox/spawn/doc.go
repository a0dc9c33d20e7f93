// Package spawn holds what applies when the first process of a sandbox starts: its thread, processors and resource
// limits.
package spawn
