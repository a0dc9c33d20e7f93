// Package systemd is the side of a service that systemd starts: the sockets that it passes, and word that the service is
// ready. Both are in sd_listen_fds(3) and sd_notify(3).
package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
)

// first is the number of the first descriptor that is passed (SD_LISTEN_FDS_START).
const first = 3

// Listeners returns the sockets that were passed to this process, none without any. It takes the variables out of the
// environment, so that no child believes to have them. A socket that is no listener of TCP is an error.
func Listeners() ([]net.Listener, error) {
	pid, count := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, nil // they are for another process
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > 16 {
		return nil, fmt.Errorf("LISTEN_FDS is %q: expected a number from 0 to 16", count)
	}
	all := make([]net.Listener, 0, n)
	for fd := first; fd < first+n; fd++ {
		l, err := listener(fd)
		if err != nil {
			for _, l := range all {
				err = errors.Join(err, l.Close())
			}
			return nil, fmt.Errorf("socket %d that systemd passed: %w", fd, err)
		}
		all = append(all, l)
	}
	return all, nil
}

// listener returns the listener of a descriptor, which it closes. The copy is closed when a program is executed.
func listener(fd int) (net.Listener, error) {
	f := os.NewFile(uintptr(fd), "passed")
	if f == nil {
		return nil, os.ErrInvalid
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	if _, ok := l.(*net.TCPListener); !ok {
		return nil, errors.Join(fmt.Errorf("%s is no socket of TCP", l.Addr().Network()), l.Close())
	}
	return l, nil
}

// Notify sends a state, as in READY=1, to the service manager. Without one it does nothing.
func Notify(state string) error {
	to := os.Getenv("NOTIFY_SOCKET")
	if to == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: to, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("telling systemd %s: %w", state, err)
	}
	_, err = c.Write([]byte(state))
	return errors.Join(err, c.Close())
}
