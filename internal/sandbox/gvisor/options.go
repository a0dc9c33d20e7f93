package gvisor

// Options are what a driver is made with.
type Options struct {
	State    string // waldo's state directory: gVisor is unpacked into its folder run
	MilliCPU int64  // thousandths of a processor that one sandbox may use at a time; 0: as many as there are
}
