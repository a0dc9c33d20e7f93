package sandboxflags

import (
	"strings"
	"testing"
)

// TestNestedMounts: mounts of one run that lie within each other are refused with a code, whatever their order. One
// folder at two places is the control.
func TestNestedMounts(t *testing.T) {
	dir := t.TempDir()
	for _, row := range []struct {
		mounts []string
		want   string
	}{
		{[]string{dir, dir + ":/other"}, ""},
		{[]string{dir + ":/a", dir + ":/ab"}, ""},
		{[]string{dir + ":/a", dir + ":/a/b:rw"}, "mounts.nested: "},
		{[]string{dir + ":/a/b", dir + ":/a"}, "mounts.nested: "},
		{[]string{dir, dir + ":rw"}, "mounts.nested: "},
	} {
		err := (&Flags{mounts: row.mounts}).RefusedMounts()
		if (err == nil) != (row.want == "") || err != nil && !strings.HasPrefix(err.Error(), row.want) {
			t.Errorf("%q: %v", row.mounts, err)
		}
	}
}
