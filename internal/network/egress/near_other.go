//go:build !linux

package egress

import "net"

func near(net.Conn) {}
