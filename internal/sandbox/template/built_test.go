package template

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func fillWith(name, text string) func(dir string) error {
	return func(dir string) error {
		if err := os.MkdirAll(filepath.Join(dir, "python"), 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "python", name), []byte(text), 0o644)
	}
}

func TestBuild(t *testing.T) {
	link := filepath.Join(t.TempDir(), "python3")
	python3 = link
	t.Cleanup(func() { python3 = "/usr/bin/python3" })
	version := func(v string) {
		_ = os.Remove(link)
		at := filepath.Join(filepath.Dir(link), "python"+v)
		if err := errors.Join(os.WriteFile(at, nil, 0o755), os.Symlink(at, link)); err != nil {
			t.Fatal(err)
		}
	}
	version("3.11")
	s, err := Open(t.TempDir(), Bounds{Bytes: 100, Entries: 10})
	if err != nil {
		t.Fatal(err)
	}
	one, two := "sha256:"+strings.Repeat("1", 64), "sha256:"+strings.Repeat("2", 64)
	made, err := s.Build(t.Context(), one, Built{Name: "data", Python: "3.11", Wheels: 1}, fillWith("a.py", "x"))
	if err != nil || made.Dir != "" || made.Packages == "" || made.Name != "data@"+one {
		t.Fatalf("%+v %v", made, err)
	}
	found, err := s.Find(t.Context(), "data", false)
	if err != nil || found.Packages != made.Packages || found.Dir != "" || len(found.Config.Env) != 1 {
		t.Errorf("%+v %v", found, err)
	}
	if again, err := s.Reopen(found.Name, found.Digest); err != nil || again.Packages != made.Packages {
		t.Errorf("%+v %v", again, err)
	}
	if _, err := s.Build(t.Context(), one, Built{Name: "data", Python: "3.11"},
		func(string) error { return errors.New("built twice") }); err != nil {
		t.Error(err)
	}
	if all, err := s.List(); err != nil || len(all) != 1 || all[0].Packages == "" || all[0].Dir != "" {
		t.Errorf("%+v %v", all, err)
	}

	// A failure leaves the name where it was, and no files.
	if _, err := s.Build(t.Context(), two, Built{Name: "data"},
		func(string) error { return context.Canceled }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := s.Build(t.Context(), two, Built{Name: "data"},
		fillWith("a.py", strings.Repeat("x", 101))); !errors.Is(err, ErrTooMuch) {
		t.Errorf("more than the bounds: %v", err)
	}
	if found, err := s.Find(t.Context(), "data", false); err != nil || found.Digest != one {
		t.Errorf("%+v %v", found, err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, half+"*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}

	// Wheels are for one Python, and not for the one that the machine has since.
	version("3.13")
	if _, err := s.Find(t.Context(), "data", false); err == nil ||
		!strings.Contains(err.Error(), "was built for Python 3.11") || !errors.As(err, &Unfit{}) {
		t.Errorf("another Python: %v", err)
	}
	version("3.11")

	for _, bad := range []string{"", "host", "Data", "a.b", "a/b", "python:3", "-x", "../x", strings.Repeat("a", 64)} {
		if _, err := s.Build(t.Context(), two, Built{Name: bad}, fillWith("a.py", "x")); !errors.As(err, &Unfit{}) {
			t.Errorf("the name %q: %v", bad, err)
		}
	}

	// A removed one is not taken for an image of that name.
	if err := s.Remove(one); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Find(t.Context(), "data", false); err == nil ||
		!strings.Contains(err.Error(), "its packages were removed; build it again") {
		t.Errorf("a removed template: %v", err)
	}
	if _, err := s.Build(t.Context(), one, Built{Name: "data", Python: "3.11"}, fillWith("a.py", "x")); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("data"); err != nil {
		t.Error("by its name:", err)
	}
	if err := s.Remove("data"); !errors.As(err, &Unfit{}) {
		t.Errorf("removed twice: %v", err)
	}
}
