package spawn

import (
	"runtime"
	"sync"
)

// launcher starts sandboxes on one thread that lives as long as the process: a sandbox dies with the thread
// that started it (PR_SET_PDEATHSIG), so that thread must die with waldo and not before.
var launcher = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// OnLauncher runs f on the thread with which sandboxes die.
func OnLauncher(f func()) {
	done := make(chan struct{})
	launcher() <- func() { defer close(done); f() }
	<-done
}
