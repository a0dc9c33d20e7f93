package identity

import (
	"net"
	"os"
	"runtime"
	"strconv"
)

// unknown is the user of a connection where the system does not name one.
const unknown = "unknown"

// User names the user of this machine who made a connection, by uid.
func User(local, remote net.Addr) string {
	uid, err := PeerOf(local, remote)
	if err != nil {
		return unknown
	}
	return strconv.Itoa(uid)
}

// Self is User for connections of this process's user.
func Self() string {
	if runtime.GOOS != "linux" {
		return unknown
	}
	return strconv.Itoa(os.Getuid())
}
