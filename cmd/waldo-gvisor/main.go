//go:build linux

// Command waldo-gvisor is gVisor's runsc with the few commands that a box needs, and the process
// that makes a box. It is compressed inside waldo, and unpacked and started by
// internal/sandbox/gvisor; nobody types its name.
package main

import (
	"os"
	"sync/atomic"

	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	"waldo/internal/sandbox/gvisor/job"
)

// latest are the notes that gVisor asked for and no guest has taken yet.
var latest atomic.Pointer[notes]

func main() {
	register(func(n *notes) { latest.Store(n) })
	switch os.Args[0] {
	case job.Name:
		os.Exit(serve())
	case compileName:
		os.Exit(compileMain())
	}
	loadPrograms()
	cli.Run(nil, map[util.SubCommand]string{
		new(sentrycmd.Boot): "", new(cmd.Gofer): "", new(sentrycmd.Umount): "",
	}, nil)
}
