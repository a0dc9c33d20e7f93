//go:build linux && (amd64 || arm64)

package namespace

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/mount"
	"waldo/internal/testing/sandboxtest"
)

func TestWorse(t *testing.T) {
	for _, r := range []struct {
		why        string
		a, b, want error
	}{
		{"the first is taken", nil, unix.ENOENT, unix.ENOENT},
		{"that it may not be executed says more than that it is not there", unix.EACCES, unix.ENOENT, unix.EACCES},
		{"and does so later", unix.ENOENT, unix.EACCES, unix.EACCES},
		{"a folder in PATH that is a file says nothing", unix.ENOTDIR, unix.ENOEXEC, unix.ENOEXEC},
	} {
		if got := worse(r.a, r.b); got != r.want {
			t.Errorf("%s: %v", r.why, got)
		}
	}
}

// TestKindOf: only an interpreter of this machine's own root, by its path, is forked, and only from its own domain's
// zygote.
func TestKindOf(t *testing.T) {
	profile := func(harm func(p *sandbox.Profile)) sandbox.Profile {
		p := sandbox.Profile{
			Template: sandbox.Template{Name: "host"}, Prestart: &sandbox.Prestart{
				Argv: []string{"/usr/bin/python3"}, Zygote: "head", Domain: "a",
			},
		}
		harm(&p)
		return p
	}
	own, ok := kindOf(profile(func(*sandbox.Profile) {}))
	if !ok {
		t.Fatal("control: what can be forked is not")
	}
	for _, r := range []struct {
		why  string
		ok   bool
		harm func(p *sandbox.Profile)
	}{
		{"another root", false, func(p *sandbox.Profile) { p.Template = sandbox.Template{Name: "own", Dir: "/srv/own"} }},
		{"a program that is looked for", false, func(p *sandbox.Profile) { p.Prestart.Argv[0] = "python3" }},
		{"no arguments", false, func(p *sandbox.Profile) { p.Prestart.Argv = nil }},
		{"no word of a zygote", false, func(p *sandbox.Profile) { p.Prestart.Zygote = "" }},
		{"no command ahead", false, func(p *sandbox.Profile) { p.Prestart = nil }},
		{"another domain", true, func(p *sandbox.Profile) { p.Prestart.Domain = "b" }},
		{"another program", true, func(p *sandbox.Profile) { p.Prestart.Argv = append(p.Prestart.Argv, "-v") }},
	} {
		if k, ok := kindOf(profile(r.harm)); ok != r.ok || k == own {
			t.Errorf("%s: %v %+v", r.why, ok, k)
		}
	}
}

// TestTooMany: a profile with more mounts or writable places than the program of PID 1 holds is refused.
func TestTooMany(t *testing.T) {
	fit := initproc.MaxFiles/2 - mount.MaxTop/2
	for _, row := range []struct {
		mounts, places int
		want           string
	}{
		{fit, 0, ""}, {fit + 1, 0, "mounts; at most"}, {0, initproc.MaxPlaces - 1, ""},
		{0, initproc.MaxPlaces, "writable places; at most"},
	} {
		p := sandboxtest.Profile()
		p.Mounts, p.Tmpfs = nil, nil
		for i := range row.mounts {
			p.Mounts = append(p.Mounts, sandbox.Mount{Source: "/srv", Target: fmt.Sprintf("/shown/%d", i)})
		}
		for i := range row.places {
			p.Tmpfs = append(p.Tmpfs, sandbox.Tmpfs{Target: fmt.Sprintf("/place/%d", i), Bytes: 1, Inodes: 1})
		}
		err := refuse(p)
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%d mounts, %d places: %v", row.mounts, row.places, err)
		}
	}
}

// TestFolderWithMounts: a folder in which another file system is mounted is neither writable, nor shown without an
// overlay, nor shown by a user who cannot copy that mount.
func TestFolderWithMounts(t *testing.T) {
	below, err := mount.Below("/dev")
	if err != nil || len(below) == 0 {
		t.Skipf("nothing is mounted in /dev here (%v)", err)
	}
	empty := t.TempDir()
	for _, row := range []struct {
		path             string
		writable, refuse bool
		want             string
	}{
		{empty, true, false, ""}, {empty, false, false, ""}, {empty, false, true, ""},
		{"/dev", true, false, "so it cannot be writable"},
		{"/dev", true, true, "so it cannot be writable"},
		{"/dev", false, false, "another file system is mounted in it"},
		{"/dev", false, true, "another file system is mounted in it"},
	} {
		b := &instance{driver: &Driver{}}
		if row.refuse {
			b.driver.refused.all = map[string]unix.Errno{row.path: unix.EINVAL}
		}
		out, err := b.folder(nil, sandbox.Mount{Source: row.path, Target: "/shown", Writable: row.writable},
			mount.Source{Path: row.path})
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %+v %v", row, out, err)
		}
	}
	b := &instance{driver: &Driver{}}
	b.driver.refused.all = map[string]unix.Errno{"/dev": unix.EINVAL}
	if out, err := b.folder(nil, sandbox.Mount{Source: "/dev", Target: "/shown"},
		mount.Source{Path: "/dev", Held: true}); err == nil ||
		!strings.Contains(err.Error(), "no overlay of /dev") {
		t.Errorf("held, and no overlay: %+v %v", out, err)
	}
}

// TestOtherDescriptors: a sandbox whose PID 1 sends another number of descriptors than it has volumes and overlays is an
// error. The control sends as many.
func TestOtherDescriptors(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	stage, theirs, err := initproc.New(zygoteBoot())
	if err != nil {
		t.Fatal(err)
	}
	defer errors.Join(stage.Close(), theirs.Close())
	for _, row := range []struct {
		overlays, sent int
		want           string
	}{
		{1, 1, ""}, {2, 1, "its overlays alone are 2"}, {0, 1, "sent 1 places, not 0"},
	} {
		b := &instance{driver: &Driver{}, stage: stage}
		files := make([]*os.File, row.sent)
		for i := range files {
			files[i] = null
		}
		err := b.receive(&plan{overlays: row.overlays}, initproc.RecPlaces, files)
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%d overlays, %d sent: %v", row.overlays, row.sent, err)
		}
	}
}

// TestLongProgram: a sandbox with more names than the program of PID 1 holds is refused, and one with few starts.
func TestLongProgram(t *testing.T) {
	for names, want := range map[int]string{1: "", 12: "bytes, and at most"} {
		p := sandboxtest.Profile()
		p.Tmpfs = nil
		for i := range names { // each folder on the way is a step with its path
			p.Tmpfs = append(p.Tmpfs, sandbox.Tmpfs{
				Target: fmt.Sprintf("/place/%d", i) + strings.Repeat("/d", 600), Bytes: 1 << 20, Inodes: 10,
			})
		}
		b, err := New(Options{}).Start(t.Context(), p)
		if err == nil {
			b.Close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", names, err)
		}
	}
}
