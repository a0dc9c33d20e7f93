// Package stdio connects the standard streams of a command in a sandbox: pipes, their input, and the capture of
// their output.
package stdio
