//go:build linux

package main

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/gvisor/job"
)

// openEgress gives this network namespace, which the kernel in the sandbox shares, waldo's route and sockets. Then
// it drops the capabilities that it took. The namespace has no other interface than lo.
func openEgress(w job.Egress) (sockets []*os.File, err error) {
	if len(w.Sockets) == 0 {
		return nil, nil
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(s)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return nil, err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, up); err != nil {
		return nil, fmt.Errorf("the egress: loopback: %w", err)
	}
	nl, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer unix.Close(nl)
	if err := unix.Sendto(nl, w.Route, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("the egress: its route: %w", err)
	}
	for _, want := range w.Sockets {
		f, err := listen(want)
		if err != nil {
			return nil, fmt.Errorf("the egress: port %d: %w", want.Port, err)
		}
		sockets = append(sockets, f)
	}
	return sockets, lower(unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE)
}

func listen(want job.Socket) (*os.File, error) {
	kind := unix.SOCK_STREAM
	if want.UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "egress")
	if err = unix.Bind(fd, &unix.SockaddrInet4{Addr: want.Addr, Port: int(want.Port)}); err == nil && !want.UDP {
		err = unix.Listen(fd, 512)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// lower gives up powers in every thread, for good.
func lower(powers ...uint) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return err
	}
	for _, p := range powers {
		d, bit := &data[p/32], uint32(1)<<(p%32)
		d.Effective, d.Permitted, d.Inheritable = d.Effective&^bit, d.Permitted&^bit, d.Inheritable&^bit
	}
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)),
		uintptr(unsafe.Pointer(&data[0])), 0); e != 0 {
		return fmt.Errorf("giving up powers: %w", e)
	}
	return nil
}
