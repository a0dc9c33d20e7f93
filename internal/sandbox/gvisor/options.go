package gvisor

import "io"

// Options are what a driver is made with.
type Options struct {
	State    string // waldo's state directory: gVisor is unpacked into its folder run
	MilliCPU int64  // thousandths of a processor that one sandbox may use at a time; 0: as many as there are
	// Progress shows how far the unpacking is; it is given each byte, and closed at the end. nil: nothing is shown.
	Progress func(what string, bytes int64) io.WriteCloser
}
