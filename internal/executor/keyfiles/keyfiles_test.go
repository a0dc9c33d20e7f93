package keyfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestIs(t *testing.T) {
	for name, want := range map[string]bool{".env": true, ".ENV": true, ".env. ": true, ".env.local": true, ".npmrc": true,
		"id_rsa": true, "credentials.toml": true, ".env.example": false, "env": false, "id_rsa.pub": false, "": false} {
		if Is(name) != want {
			t.Errorf("%q: %t", name, !want)
		}
	}
}

func TestBelow(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for _, name := range []string{".env", "a/b/.npmrc", "a/.ssh/id_rsa", "a/.ssh/config", "a/main.go", ".env.example"} {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(os.WriteFile(filepath.Join(outside, ".env"), nil, 0o600), os.Symlink(outside, filepath.Join(dir, "out")),
		os.Symlink("a/main.go", filepath.Join(dir, ".netrc")))
	if err != nil {
		t.Skip(err) // a system without links
	}
	got, err := Below(dir)
	if want := []string{".env", "a/.ssh/", "a/b/.npmrc"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q %v", got, err)
	}
	if _, err := Below(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	state := filepath.Join(dir, "b", "Waldo")
	if err := errors.Join(os.MkdirAll(filepath.Join(state, "secrets"), 0o700),
		os.WriteFile(filepath.Join(state, "secrets", ".env"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got, err = Below(dir); err != nil || !slices.Contains(got, "b/Waldo/secrets/.env") {
		t.Errorf("control: %q %v", got, err)
	}
	for _, name := range stateFiles {
		at := filepath.Join(state, name)
		if err := os.WriteFile(at, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err = Below(dir); err != nil || !slices.Equal(got, []string{".env", "a/.ssh/", "a/b/.npmrc", "b/Waldo/"}) {
			t.Errorf("%s: %q %v", name, got, err)
		}
		for _, within := range []string{state, filepath.Join(state, "secrets")} {
			if got, err := Below(within); !errors.Is(err, ErrState) {
				t.Errorf("%s, %s: %q %v", name, within, got, err)
			}
		}
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	// .env, .env.example, .netrc, a and out at the top; b, .ssh and main.go in a; .npmrc in b
	for most, want := range map[int]error{9: nil, 8: ErrMany, 4: ErrMany, 0: ErrMany} {
		if got, err := below(dir, most); !errors.Is(err, want) {
			t.Errorf("at most %d entries: %q %v", most, got, err)
		}
	}
	for i := range MaxFound {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(".env.", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Below(dir); !errors.Is(err, ErrMany) {
		t.Errorf("%d: %v", len(got), err)
	}
}
