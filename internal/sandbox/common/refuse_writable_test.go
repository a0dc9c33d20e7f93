//go:build linux

package common

import (
	"testing"

	"waldo/internal/sandbox"
)

// TestRefuseWritable: files that this machine runs cannot be writable, and sealed paths lie below their mount.
func TestRefuseWritable(t *testing.T) {
	for _, row := range []struct {
		m  sandbox.Mount
		ok bool
	}{
		{sandbox.Mount{Source: "/srv/project", Writable: true, Sealed: []string{".git/hooks", "a"}}, true},
		{sandbox.Mount{Source: "/usr"}, true},
		{sandbox.Mount{Source: "/user", Writable: true}, true},
		{sandbox.Mount{Source: "/usr", Writable: true}, false},
		{sandbox.Mount{Source: "/usr/local/bin", Writable: true}, false},
		{sandbox.Mount{Source: "/etc/x", Writable: true}, false},
		{sandbox.Mount{Source: "/srv", Sealed: []string{"a"}}, false},
		{sandbox.Mount{Source: "/srv", Writable: true, Sealed: []string{"../a"}}, false},
		{sandbox.Mount{Source: "/srv", Writable: true, Sealed: []string{"a/../b"}}, false},
		{sandbox.Mount{Source: "/srv", Writable: true, Sealed: []string{"/etc"}}, false},
		{sandbox.Mount{Source: "/srv", Writable: true, Sealed: []string{"."}}, false},
	} {
		if err := refuseWritable(row.m); (err == nil) != row.ok {
			t.Errorf("%+v: %v", row.m, err)
		}
	}
	p := sandbox.Profile{Mounts: []sandbox.Mount{{Source: "/srv"}, {Source: "/srv", Writable: true}}}
	if ValidateWritable(p) == nil || ValidateWritable(sandbox.Profile{Mounts: p.Mounts[:1]}) != nil {
		t.Error("a driver without writable mounts takes one, or refuses a read-only one")
	}
}
