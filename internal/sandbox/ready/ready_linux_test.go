package ready

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSignals: signals that reach the thread change no answer. The control shows that they change poll's.
func TestSignals(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, done := unix.Gettid(), make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG)
			}
		}
	}()
	at := unix.PollFd{Fd: int32(r.Fd()), Events: unix.POLLIN}
	interrupted := false
	for end := time.Now().Add(10 * time.Second); !interrupted; {
		if time.Now().After(end) {
			t.Fatal("control: no signal came during poll")
		}
		_, err := unix.Poll([]unix.PollFd{at}, 0)
		interrupted = err == unix.EINTR
	}
	for range 20_000 {
		if n, err := Now(at); n != 0 || err != nil {
			t.Fatalf("an empty pipe: %d, %v", n, err)
		}
	}
}
