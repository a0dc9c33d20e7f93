//go:build !linux

package loopback

import "net"

// Mark returns the listener: no sandbox of this system reaches its loopback.
func Mark(l net.Listener) (net.Listener, error) { return l, nil }

// Ours reports true: who listens is unknown here.
func Ours(uint16) bool { return true }
