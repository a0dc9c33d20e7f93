//go:build linux && (amd64 || arm64)

package namespace

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/lookup"
	"waldo/internal/sandbox/netns"
)

// makeEgress appends the egress that waldo serves: a route that makes all addresses of sandbox.Outside local (AnyIP),
// and sockets that listen there. The sockets go to waldo and are closed here, so no process in the sandbox has them.
// Only lo exists.
func (s *setup) makeEgress() {
	ports := s.profile.Network.Ports
	if len(ports) == 0 {
		if !s.joined { // commands that share their network have no such socket
			lookup.Append(&s.List, s.free)
		}
		return
	}
	s.Call("netlink", unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	route := netns.LocalRoute()
	s.Call("route", unix.SYS_SENDTO, s.free, route, len(route), 0, 0, 0)
	s.Call("close netlink", unix.SYS_CLOSE, s.free)
	next := s.free
	socket := func(kind int, addr [4]byte, port uint16) {
		s.Call("a socket of the egress", unix.SYS_SOCKET, unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
		// fails where the route is not there
		s.Call("bind it", unix.SYS_BIND, next, sockaddr(addr, port), unix.SizeofSockaddrInet4)
		s.Hint("the kernel made no route of the sandbox's own, or keeps low ports from it")
		if kind == unix.SOCK_STREAM {
			s.Call("listen", unix.SYS_LISTEN, next, 512)
		}
		next++
	}
	socket(unix.SOCK_DGRAM, sandbox.Gateway.As4(), 53)
	socket(unix.SOCK_STREAM, sandbox.Gateway.As4(), sandbox.ProxyPort)
	for _, p := range ports {
		socket(unix.SOCK_STREAM, [4]byte{}, p)
	}
	s.SendFiles("the egress", initproc.RecFiles, s.free, next-s.free)
	s.Call("close the egress", unix.SYS_CLOSE_RANGE, s.free, 0xffffffff, 0)
}

func sockaddr(addr [4]byte, port uint16) []byte {
	b := make([]byte, unix.SizeofSockaddrInet4)
	binary.NativeEndian.PutUint16(b, unix.AF_INET)
	binary.BigEndian.PutUint16(b[2:], port)
	copy(b[4:], addr[:])
	return b
}

// coverResolv appends a resolv.conf over that of another root, which is read-only. A root without
// one keeps none: its programs find no names.
func (s *setup) coverResolv() {
	if len(s.profile.Network.Ports) == 0 || s.profile.Template.Dir == "" {
		return
	}
	s.write("/.resolv.conf", netns.ResolvConf, unix.O_CREAT)
	s.Call("cover /etc/resolv.conf", unix.SYS_MOUNT, "/.resolv.conf", "/etc/resolv.conf", 0, unix.MS_BIND, 0)
	s.Optional()
}

// open makes the egress from the sockets that the sandbox sent, and gives it to its server.
func (b *instance) open(files []*os.File) (err error) {
	if len(b.profile.Network.Ports) == 0 && len(files) == 1 {
		b.lookups, err = lookup.Serve(files[0])
		b.egress = b.lookups
		return err
	}
	egress, err := netns.Egress(files, len(b.profile.Network.Ports))
	if err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	b.egress = b.profile.Network.Serve(egress)
	return nil
}

// outside reports whether an address that a denial names is one that the egress answers for.
func (b *instance) outside(what string) bool {
	a, err := netip.ParseAddrPort(what)
	return err == nil && len(b.profile.Network.Ports) > 0 && sandbox.Outside.Contains(a.Addr())
}
