//go:build linux

package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
)

// pairOf makes a place that holds most bytes and inodes, as a folder, and the folder beside it.
func pairOf(t *testing.T, most, inodes int64) (p Volume, sb, host string) {
	t.Helper()
	sb, host = t.TempDir(), t.TempDir()
	d, err := os.Open(sb)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return Volume{Tmpfs: sandbox.Tmpfs{Target: "/out", Bytes: most, Inodes: inodes, Export: true}, Dir: d}, sb, host
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	at := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// holds returns the files below a folder as "name=text".
func holds(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			b, _ := os.ReadFile(name)
			rel, _ := filepath.Rel(dir, name)
			all = append(all, fmt.Sprintf("%s=%.10s", rel, b))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

// TestSync: a file that is new or changed on one side is on both sides afterwards.
func TestSync(t *testing.T) {
	p, sb, host := pairOf(t, 5<<12, 100)
	s := &Syncer{}
	swap := func(want string, given ...string) {
		t.Helper()
		got, err := s.Sync(p, host, nil)
		if err != nil || !slices.Equal(got, given) {
			t.Errorf("given %q, want %q: %v", got, given, err)
		}
		if b, h := holds(t, sb), holds(t, host); b != want || h != want {
			t.Errorf("sandbox %s, folder %s, want %s", b, h, want)
		}
	}
	write(t, host, "a", "1")
	write(t, host, "in/b", "1")
	swap("a=1 in/b=1") // at first all of the folder's
	write(t, sb, "a", "22")
	write(t, sb, "out/c", "1")
	swap("a=22 in/b=1 out/c=1", "a", "out/c")
	write(t, host, "out/c", "333")
	swap("a=22 in/b=1 out/c=333")
	swap("a=22 in/b=1 out/c=333") // nothing has changed
	write(t, sb, "a", "the sandbox's")
	write(t, host, "a", "the folder's")
	swap("a=the folder in/b=1 out/c=333") // both have: the folder's stays
	write(t, host, "big", strings.Repeat("x", 500))
	write(t, sb, "a", "4")
	swap("a=4 big=xxxxxxxxxx in/b=1 out/c=333", "a")
	write(t, sb, "big", strings.Repeat("y", 8000)) // the file that it replaces makes room for it
	swap("a=4 big=yyyyyyyyyy in/b=1 out/c=333", "big")

	// A deletion on one side does not reach the other, and the next exchange does not restore the file.
	if err := os.Remove(filepath.Join(sb, "a")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sync(p, host, nil); err != nil {
		t.Fatal(err)
	}
	if b, h := holds(t, sb), holds(t, host); strings.Contains(b, "a=") || !strings.Contains(h, "a=4") {
		t.Errorf("sandbox %s, folder %s", b, h)
	}
}

// TestSyncHolds: files that a sandbox writes reach only the folder, and never exceed the quota.
func TestSyncHolds(t *testing.T) {
	p, sb, host := pairOf(t, 3<<12, 6)
	s := &Syncer{}
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, filepath.Dir(secret), "secret", "canary")
	write(t, sb, "good", "1")
	for _, err := range []error{os.Symlink(secret, filepath.Join(sb, "link")),
		os.Symlink(filepath.Dir(secret), filepath.Join(sb, "links")), unix.Mkfifo(filepath.Join(sb, "pipe"), 0o600),
		os.Symlink(secret, filepath.Join(host, "victim"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, sb, "victim", "evil") // a folder with that name exists
	given, err := s.Sync(p, host, nil)
	if !slices.Equal(given, []string{"good"}) || !errors.Is(err, errExists) {
		t.Errorf("%q %v", given, err)
	}
	if got := holds(t, host); got != "good=1" {
		t.Errorf("the folder holds %s", got)
	}
	if b, _ := os.ReadFile(secret); string(b) != "canary" {
		t.Errorf("a link of the folder was written through: %q", b)
	}
	_, _ = os.Remove(filepath.Join(sb, "victim")), os.Remove(filepath.Join(host, "victim"))

	// The quota is the folder's: files of others count.
	write(t, host, "theirs", strings.Repeat("x", 8000))
	write(t, sb, "ours", strings.Repeat("y", 600))
	if given, err = s.Sync(p, host, nil); len(given) != 0 || !errors.Is(err, errRoom) {
		t.Errorf("more than fits: %q %v", given, err)
	}
	if got := holds(t, host); strings.Contains(got, "ours") {
		t.Errorf("the folder holds %s", got)
	}
	write(t, host, "theirs", "x") // there is room again, and nothing was forgotten
	if given, err = s.Sync(p, host, nil); !slices.Equal(given, []string{"ours"}) || err != nil {
		t.Errorf("%q %v", given, err)
	}
	for i := range 4 {
		write(t, sb, fmt.Sprintf("many/%d", i), "")
	}
	if given, err = s.Sync(p, host, nil); len(given) != 1 || !errors.Is(err, errRoom) {
		t.Errorf("more files than fit: %q %v", given, err)
	}
	if err := os.RemoveAll(host); err != nil {
		t.Fatal(err)
	}
	if _, err = s.Sync(p, host, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that was deleted: %v", err)
	}
	if _, err := os.Lstat(host); err == nil {
		t.Error("a folder that was deleted is there again")
	}
}

// TestExportHolds: a folder gets no more of a sandbox than the next sandbox can begin with.
func TestExportHolds(t *testing.T) {
	p, sb, host := pairOf(t, 4<<12, 6)
	fits := func(copied, refused string) {
		t.Helper()
		got, err := Export([]Volume{p}, "/out", host)
		if strings.Join(got, " ") != copied || (err == nil) != (refused == "") ||
			err != nil && (!errors.Is(err, errRoom) || !strings.Contains(err.Error(), refused)) {
			t.Errorf("copied %q: %v", got, err)
		}
		next, err := os.Open(host)
		if err != nil {
			t.Fatal(err)
		}
		defer next.Close()
		if _, used, _ := seen(next); used.bytes > p.Bytes || used.inodes > p.Inodes {
			t.Errorf("the folder holds %+v", used)
		}
	}
	write(t, host, "theirs", strings.Repeat("x", 9000)) // three pages
	write(t, sb, "a", "1")
	fits("a", "")
	write(t, sb, "b", "1")
	fits("a", "copy b:")
	write(t, host, "theirs", "x") // makes room
	write(t, sb, "d/c", "")
	fits("a b d/c", "") // with their folder and the root, six
	write(t, sb, "e", "")
	fits("a b d/c", "copy e:")
	write(t, sb, "a", strings.Repeat("y", 8000)) // the file that it replaces makes room for it
	fits("a b d/c", "copy e:")
}

// TestNamesThatAreKept: a file whose name would break a listing of the folder is left in the sandbox and
// reported. Other files are copied.
func TestNamesThatAreKept(t *testing.T) {
	for _, exchange := range []bool{false, true} {
		p, sb, host := pairOf(t, 40<<12, 60)
		bad := []string{`back\slash`, "bad\xff", `fol\der/in`}
		for _, n := range append(bad, "a", "z", "line\nend", "x/f") {
			write(t, sb, n, "1")
		}
		var copied []string
		var err error
		if exchange {
			copied, err = new(Syncer).Sync(p, host, nil)
		} else {
			copied, err = Export([]Volume{p}, "/out", host)
		}
		if got := strings.Join(copied, " "); got != "a line\nend x/f z" {
			t.Errorf("exchange %v: copied %q", exchange, got)
		}
		if !errors.Is(err, errName) || strings.Count(err.Error(), errName.Error()) != len(bad) ||
			!strings.Contains(err.Error(), `copy "bad\xff"`) {
			t.Errorf("exchange %v: %v", exchange, err)
		}
	}
}

// TestTemporaryNames: a file with the name of a temporary one is not copied out. Copied, it would count in no later
// sum, and a sandbox could fill the folder with such files. Those that lie in the folder count.
func TestTemporaryNames(t *testing.T) {
	for _, exchange := range []bool{false, true} {
		p, sb, host := pairOf(t, 4<<12, 20)
		s := &Syncer{}
		move := func() ([]string, error) {
			if exchange {
				return s.Sync(p, host, nil)
			}
			return Export([]Volume{p}, "/out", host)
		}
		write(t, sb, "control", strings.Repeat("x", 3<<12))
		if got, err := move(); !slices.Equal(got, []string{"control"}) || err != nil {
			t.Errorf("exchange %v: control: %q %v", exchange, got, err)
		}
		_, _ = os.Remove(filepath.Join(sb, "control")), os.Remove(filepath.Join(host, "control"))
		for i := range 3 {
			name := fmt.Sprintf("%s%d", temporary, i)
			write(t, sb, name, strings.Repeat("x", 3<<12))
			got, err := move()
			if len(got) > 0 || !exchange && !errors.Is(err, errTemporary) {
				t.Errorf("exchange %v: copied %q: %v", exchange, got, err)
			}
			if err := os.Remove(filepath.Join(sb, name)); err != nil {
				t.Fatal(err)
			}
		}
		if got := holds(t, host); got != "" {
			t.Errorf("exchange %v: the folder holds %s", exchange, got)
		}
		write(t, host, temporary+"left", strings.Repeat("x", 3<<12))
		write(t, sb, "one", "1")
		write(t, sb, "two", "2")
		if got, err := move(); !slices.Equal(got, []string{"one"}) || !errors.Is(err, errRoom) {
			t.Errorf("exchange %v: beside a temporary file, copied %q: %v", exchange, got, err)
		}
		write(t, host, temporary+"left", "")
		if got, err := move(); !slices.Contains(got, "two") || err != nil {
			t.Errorf("exchange %v: control: beside a small one, copied %q: %v", exchange, got, err)
		}
	}
}

// TestPlaceOfATarget: only the named place comes out, and files that another exports stay.
func TestPlaceOfATarget(t *testing.T) {
	one, oneSandbox, host := pairOf(t, 40<<12, 60)
	two, twoSandbox, _ := pairOf(t, 40<<12, 60)
	hidden, hiddenSandbox, _ := pairOf(t, 40<<12, 60)
	one.Target, two.Target, hidden.Target, hidden.Tmpfs.Export = "/one", "/two", "/hidden", false
	write(t, oneSandbox, "a", "1")
	write(t, twoSandbox, "b", "2")
	write(t, hiddenSandbox, "c", "3")
	all := []Volume{one, hidden, two}
	if got, err := Export(all, "/two", host); !slices.Equal(got, []string{"b"}) || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if got, err := Export(all, "/hidden", host); len(got) > 0 || err == nil {
		t.Errorf("a place that is not exported: %q %v", got, err)
	}
	if got := Scan(all).Written(State{}); slices.Contains(got, "/hidden/c") || len(got) != 2 {
		t.Errorf("files in sight: %q", got)
	}
}
