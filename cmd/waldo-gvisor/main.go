//go:build linux

// Command waldo-gvisor is gVisor's runsc with the few commands that a sandbox needs, and the process that makes
// a sandbox. It is compressed inside waldo; internal/sandbox/gvisor unpacks and starts it. It is not a command
// for users.
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
