package main

import (
	"os"
	"runtime/debug"
)

// serving sets a process up that lives long. What is alive in a gateway under load is 3 to 4 MB, and Go
// would collect each time as much again was made, every hundred calls or two: at half as much again less time
// goes into it, for some 3 MB, which is less than what starting leaves behind. An operator's GOGC holds.
func serving() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(150)
	}
	letGo()
}
