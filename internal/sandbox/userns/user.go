//go:build linux

package userns

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
)

// The users that sandboxes belong to when waldo runs as root: each its own, from a range that nothing else
// claims (systemd's "Users, Groups, UIDs and GIDs": 1879048192 and up is unused).
const (
	firstUID = 0x70000000
	uidBits  = 1<<27 - 1
)

// OutsideIDs returns the user and group that a sandbox belongs to outside. As root they are new for each
// sandbox, so that no count, signal or file crosses from one to another.
func OutsideIDs() (uid, gid int, err error) {
	if os.Geteuid() != 0 {
		return os.Geteuid(), os.Getegid(), nil
	}
	var b [4]byte
	_, _ = rand.Read(b[:])
	n := int(binary.LittleEndian.Uint32(b[:]) & uidBits)
	for _, kind := range []struct {
		file string
		read func() (string, error)
		out  *int
	}{{usersFile, userMap, &uid}, {groupsFile, groupMap, &gid}} {
		m, err := kind.read()
		if err == nil {
			*kind.out, err = pick(m, n)
		}
		if err != nil {
			return 0, 0, sandbox.WithHint(fmt.Errorf("%s: %w", kind.file, err), hintUsers)
		}
	}
	return uid, gid, nil
}

// Administers reports whether this process can act for other users in the namespaces of others: map a sandbox's
// user to another user outside, and copy mounts. Root of most containers cannot.
var Administers = sync.OnceValue(func() bool {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	return unix.Capget(&head, &has[0]) == nil && has[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
})

// The maps of waldo's own user namespace are written once, before waldo starts.
const usersFile, groupsFile = "/proc/self/uid_map", "/proc/self/gid_map"

var userMap, groupMap = once(usersFile), once(groupsFile)

func once(file string) func() (string, error) {
	return sync.OnceValues(func() (string, error) { b, err := os.ReadFile(file); return string(b), err })
}

// pick chooses the nth id above firstUID. If the map (user_namespaces(7)) does not hold it, pick chooses one
// from the upper half of the map's last range.
func pick(idMap string, n int) (int, error) {
	var last, size int64
	for line := range strings.Lines(idMap) {
		var inside, outside, count int64
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
			return 0, fmt.Errorf("line %q: %w", line, err)
		}
		if inside <= firstUID+int64(n) && firstUID+int64(n) < inside+count {
			return firstUID + n, nil
		}
		if count > 1 {
			last, size = inside, count
		}
	}
	if size < 2000 {
		return 0, errors.New("no range of users to take a sandbox's from")
	}
	return int(last + size/2 + int64(n)%(size/2)), nil
}
