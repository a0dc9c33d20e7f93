package sandbox

import "testing"

// TestValidateWritable: files that this machine runs cannot be writable, and sealed paths lie below their mount.
func TestValidateWritable(t *testing.T) {
	for _, row := range []struct {
		m  Mount
		ok bool
	}{
		{Mount{Source: "/srv/project", Writable: true, Sealed: []string{".git/hooks", "a"}}, true},
		{Mount{Source: "/usr"}, true},
		{Mount{Source: "/user", Writable: true}, true},
		{Mount{Source: "/usr", Writable: true}, false},
		{Mount{Source: "/usr/local/bin", Writable: true}, false},
		{Mount{Source: "/etc/x", Writable: true}, false},
		{Mount{Source: "/srv", Sealed: []string{"a"}}, false},
		{Mount{Source: "/srv", Writable: true, Sealed: []string{"../a"}}, false},
		{Mount{Source: "/srv", Writable: true, Sealed: []string{"a/../b"}}, false},
		{Mount{Source: "/srv", Writable: true, Sealed: []string{"/etc"}}, false},
		{Mount{Source: "/srv", Writable: true, Sealed: []string{"."}}, false},
		{Mount{Source: "/srv", Writable: true, Live: true}, true},
		{Mount{Source: "/srv", Live: true}, false},
	} {
		if err := validateWritable(row.m); (err == nil) != row.ok {
			t.Errorf("%+v: %v", row.m, err)
		}
	}
	for h, ok := range map[string]bool{"a/.env": true, ".ssh/": true, "../a": false, "/etc": false, ".": false, "./": false,
		"": false, "a//b": false} {
		if err := validateHidden(Mount{Source: "/srv", Hidden: []string{h}}); (err == nil) != ok {
			t.Errorf("%q: %v", h, err)
		}
	}
	hides := Profile{Mounts: []Mount{{Source: "/srv", Hidden: []string{"a"}}}}
	if NoHidden(hides) == nil || NoHidden(Profile{Mounts: []Mount{{Source: "/srv"}}}) != nil {
		t.Error("a driver that hides nothing takes a hidden file, or refuses a folder without one")
	}
	p := Profile{Mounts: []Mount{{Source: "/srv"}, {Source: "/srv", Writable: true}}}
	if NoWritable(p) == nil || NoWritable(Profile{Mounts: p.Mounts[:1]}) != nil {
		t.Error("a driver without writable mounts takes one, or refuses a read-only one")
	}
}
