//go:build unix

package secretstore

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"waldo/internal/model/secret"
	"waldo/internal/storage/secretsource"
)

const canary = "c4nary-of-a-stored-secret"

// TestSafe keeps, lists, replaces and removes, and no file but the sealed ones holds anything.
func TestSafe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	s := Open(dir)
	if all, err := s.List(); err != nil || len(all) != 0 {
		t.Fatalf("an empty store: %v, %v", all, err)
	}
	for _, name := range []string{"github", "db.password", "key"} {
		if err := s.Set(name, secret.NewValue(canary+name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Set("github", secret.NewValue("replaced")); err != nil {
		t.Fatal(err)
	}
	again := Open(dir) // as the next process does
	for name, want := range map[string]string{
		"github": "replaced", "db.password": canary + "db.password", "key": canary + "key",
	} {
		if v, err := again.Get(name); err != nil || v.Reveal() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	all, err := s.List()
	if err != nil || len(all) != 3 || all[0].Name != "db.password" {
		t.Errorf("%v, %v", all, err)
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v: %v", path, info.Mode(), err)
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(canary)) {
			t.Errorf("%s shows the secret", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("key"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("key"); !errors.Is(err, secretsource.ErrMissing) {
		t.Errorf("a removed secret: %v", err)
	}
	if err := s.Remove("key"); !errors.Is(err, secretsource.ErrMissing) {
		t.Errorf("removed twice: %v", err)
	}
}

// TestSafeRefuses: values that the store does not take, and files that it does not open.
func TestSafeRefuses(t *testing.T) {
	dir := t.TempDir()
	s := Open(dir)
	for name, v := range map[string]string{
		"../x": "v", "": "v", "9x": "v", "empty": "", "nul": "a\x00b", "long": strings.Repeat("x", 32<<10+1),
	} {
		if s.Set(name, secret.NewValue(v)) == nil {
			t.Errorf("%q was kept", name)
		}
	}
	for _, name := range []string{"../x", "", "9x", "a/b"} {
		if _, err := s.Get(name); !errors.Is(err, ErrName) {
			t.Errorf("get %q: %v", name, err)
		}
		if err := s.Remove(name); !errors.Is(err, ErrName) {
			t.Errorf("remove %q: %v", name, err)
		}
	}
	for _, name := range []string{"a", "b"} {
		if err := s.Set(name, secret.NewValue(canary+name)); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := s.Get("a"); err != nil || v.Reveal() != canary+"a" {
		t.Fatalf("control: %v", err)
	}
	b, err := os.ReadFile(s.path("b"))
	if err != nil {
		t.Fatal(err)
	}
	change := func(path string, text []byte, mode fs.FileMode) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, text, 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	change(s.path("a"), b, 0o600)
	if v, err := s.Get("a"); !errors.Is(err, ErrSwap) || !v.IsZero() {
		t.Errorf("one secret's file under another's name: %v", err)
	}
	b[len(b)-1] ^= 1
	change(s.path("a"), b, 0o600)
	if _, err := s.Get("a"); !errors.Is(err, secretsource.ErrSealed) {
		t.Errorf("a damaged file: %v", err)
	}
	if err := os.Chmod(s.path("b"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("b"); !errors.Is(err, secretsource.ErrUnsafe) {
		t.Errorf("a file that others can read: %v", err)
	}
	change(filepath.Join(dir, "key"), []byte(canary), 0o600)
	if _, err := s.Get("a"); !errors.Is(err, ErrKey) || strings.Contains(err.Error(), canary) {
		t.Errorf("a damaged key: %v", err)
	}
	if err := s.Set("c", secret.NewValue(canary)); !errors.Is(err, ErrKey) {
		t.Errorf("a damaged key was replaced: %v", err)
	}
}

// ring is a keyring in memory.
type ring map[string]string

func (r ring) Get(service, account string) (string, error) {
	v, ok := r[service+"/"+account]
	if !ok {
		return "", secretsource.ErrMissing
	}
	return v, nil
}

func (r ring) Set(service, account, value string) error { r[service+"/"+account] = value; return nil }

// TestSafeKeyInKeyring: with a keyring nothing in the directory opens the secrets.
func TestSafeKeyInKeyring(t *testing.T) {
	s := Open(t.TempDir())
	s.Keyring = ring{}
	if err := s.Set("a", secret.NewValue(canary)); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Get("a"); err != nil || v.Reveal() != canary {
		t.Fatalf("control: %v", err)
	}
	s.Keyring = nil
	if _, err := s.Get("a"); !errors.Is(err, secretsource.ErrClosed) {
		t.Errorf("without the keyring: %v", err)
	}
	b, err := os.ReadFile(filepath.Join(s.dir, "key"))
	if err != nil || !strings.HasPrefix(string(b), "keyring:") {
		t.Errorf("the key file says %q, %v", b, err)
	}
}

// TestSafeFirstKeyStays: of many that set the first secret at once, all use one key.
func TestSafeFirstKeyStays(t *testing.T) {
	dir := t.TempDir()
	var wait sync.WaitGroup
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, n := range names {
		wait.Go(func() {
			if err := Open(dir).Set(n, secret.NewValue(canary)); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for _, n := range names {
		if v, err := Open(dir).Get(n); err != nil || v.Reveal() != canary {
			t.Errorf("%s: %v", n, err)
		}
	}
}
