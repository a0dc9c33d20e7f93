// Package ready looks at descriptors without waiting.
package ready

import "golang.org/x/sys/unix"

// Now fills in the returned events of descriptors as they are now, and returns how many have some. A signal, which Go's
// own scheduler sends to threads, is no error: poll(2) fails with EINTR also where it would not wait.
func Now(fds ...unix.PollFd) (n int, err error) {
	for err = unix.EINTR; err == unix.EINTR; {
		n, err = unix.Poll(fds, 0)
	}
	return n, err
}
