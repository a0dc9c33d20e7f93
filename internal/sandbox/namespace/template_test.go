//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/mount"
	"waldo/internal/testing/sandboxtest"
)

func TestAnotherRoot(t *testing.T) { sandboxtest.Template(t, New(Options{})) }

// noOverlay is a driver on a kernel that refuses an overlay of each template.
type noOverlay struct{ *Driver }

func (d noOverlay) Start(ctx context.Context, p sandbox.Profile) (sandbox.Sandbox, error) {
	d.refused.learn(&initproc.StepError{Step: overlayOf + p.Template.Dir, Errno: unix.EINVAL})
	return d.Driver.Start(ctx, p)
}

// TestTemplateAsItIs: a template without an overlay is as closed as with one.
func TestTemplateAsItIs(t *testing.T) { sandboxtest.Template(t, noOverlay{New(Options{})}) }

func TestRefusedRoots(t *testing.T) {
	root := t.TempDir()
	many := t.TempDir()
	for i := range mount.MaxTop + 1 {
		if err := os.Mkdir(filepath.Join(many, strings.Repeat("x", i+1)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		why      string
		template sandbox.Template
		ok       bool
	}{
		{"this machine's own", sandbox.Template{Name: "host"}, true},
		{"a folder", sandbox.Template{Name: "dir:x", Dir: root}, true},
		{"no name", sandbox.Template{}, false},
		{"no name, and a folder", sandbox.Template{Dir: root}, false},
		{"a name, and no folder", sandbox.Template{Name: "python:3.12"}, false},
		{"the name of this machine's own, and another folder", sandbox.Template{Name: "host", Dir: root}, false},
		{"the whole machine", sandbox.Template{Name: "dir:/", Dir: "/"}, false},
		{"a relative folder", sandbox.Template{Name: "dir:x", Dir: "x"}, false},
		{"a folder that climbs", sandbox.Template{Name: "dir:x", Dir: root + "/../../../.."}, false},
		{"a folder that is not there", sandbox.Template{Name: "dir:x", Dir: root + "/none"}, false},
		{"a folder with too much at its top", sandbox.Template{Name: "dir:x", Dir: many}, false},
	} {
		p := sandboxtest.Profile()
		p.Template = row.template
		sb, err := New(Options{}).Start(context.Background(), p)
		if err == nil {
			if err := sb.Close(); err != nil || !row.ok {
				t.Errorf("%s: started, and closed with %v", row.why, err)
			}
		} else if row.ok {
			t.Errorf("%s: %v", row.why, err)
		}
	}
}
