//go:build !linux

package remote

import "net"

// silent cannot look into a connection here, so each is used once.
func silent(net.Conn) bool { return false }
