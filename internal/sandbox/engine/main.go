package engine

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"

	"waldo/internal/sandbox/engine/program"
)

// Argv is the command that the driver runs. It runs no other but PythonArgv.
var Argv = []string{"waldo-engine"}

// PythonArgv is the command for programs in Python. It goes into the profile's Prestart.
var PythonArgv = []string{"waldo-engine", "python"}

// Main is for the start of main: where waldo was started by this package, it does not return.
func Main() {
	if len(os.Args) != 4 || os.Args[1] != Argv[0] {
		return
	}
	runtime.LockOSThread() // on the first thread, from which leave is called
	var o program.Options
	if err := json.Unmarshal([]byte(os.Args[2]), &o); err != nil {
		fmt.Fprintln(os.Stderr, "waldo: this command is a part of waldo's own")
		os.Exit(program.ExitBroken)
	}
	o.Workspace = os.Args[3]
	leave(program.Main(o, os.Stdin, os.Stdout, os.Stderr))
}
