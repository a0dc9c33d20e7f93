package powertest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// TestCut: what was synced survives a cut, and what was not does not. This is the control of every test on the disk.
func TestCut(t *testing.T) {
	if !Own(t) {
		return
	}
	d := New(t, 32<<20)
	write := func(name string, sync bool) {
		t.Helper()
		f, err := os.Create(filepath.Join(d.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Write(bytes.Repeat([]byte(name), 10_000)); err != nil {
			t.Fatal(err)
		}
		if !sync {
			return
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	write("synced", true)
	at := d.At()
	if at == 0 {
		t.Fatal("control: no operation reached the disk")
	}
	write("late", false)
	image, dir := filepath.Join(t.TempDir(), "cut"), filepath.Join(t.TempDir(), "mounted")
	top, err := os.Open(d.Dir)
	if err == nil {
		err = errors.Join(unix.Syncfs(int(top.Fd())), top.Close()) // the late file reaches the disk after the cut
	}
	if err != nil {
		t.Fatal(err)
	}
	cuts := d.Cuts(t, 1)
	look := func(at int64, keep float64, late bool) {
		t.Helper()
		if _, err := cuts.Image(image, at, keep); err != nil {
			t.Fatal(err)
		}
		Mount(t, image, dir)
		defer Unmount(t, dir)
		b, err := os.ReadFile(filepath.Join(dir, "synced"))
		if err != nil || len(b) != 60_000 || !bytes.HasPrefix(b, []byte("syncedsynced")) {
			t.Errorf("cut at %d: the synced file has %d bytes: %v", at, len(b), err)
		}
		b, _ = os.ReadFile(filepath.Join(dir, "late"))
		if (len(b) == 40_000) != late {
			t.Errorf("cut at %d: the late file has %d bytes", at, len(b))
		}
	}
	look(at, 0, false)
	look(d.At(), 1, true)
}
