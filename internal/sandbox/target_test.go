package sandbox

import "testing"

func TestValidateTarget(t *testing.T) {
	for _, r := range []struct {
		why, target string
		ok          bool
	}{
		{"a folder of its own", "/data", true},
		{"below the workspace", "/workspace/input", true},
		{"a name that only begins like one of the sandbox's", "/usr2", true},
		{"relative", "data", false},
		{"empty", "", false},
		{"the root", "/", false},
		{"a slash at the end", "/data/", false},
		{"two slashes", "/data//x", false},
		{"a way round", "/data/../etc", false},
		{"a dot", "/data/.", false},
		{"a NUL", "/data\x00x", false},
		{"what the sandbox is made of", "/usr", false},
		{"below what the sandbox is made of", "/etc/passwd", false},
		{"where the host's root is while the sandbox is made", "/old", false},
	} {
		if err := validateTarget(r.target); (err == nil) != r.ok {
			t.Errorf("%s: %v", r.why, err)
		}
	}
}
