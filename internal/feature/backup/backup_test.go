package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
)

// archive returns a backup with files, by name, sealed for a recipient.
func archive(t *testing.T, to age.Recipient, names ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	sealed, err := age.Encrypt(&out, to)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(sealed)
	w := tar.NewWriter(z)
	for _, name := range names {
		text := bytes.Repeat([]byte(name), 40_000)
		h := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close(), sealed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestRestoreRefuses: a backup that is cut, changed or none, and one with files that no backup has, leave nothing.
func TestRestoreRefuses(t *testing.T) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	to := key.Recipient()
	good := archive(t, to, "waldo.db", "waldo.lock", "log/a.jsonl", "workspaces/w_1/x", "secrets/s.age")
	changed := bytes.Clone(good)
	changed[len(changed)-1] ^= 1
	for name, row := range map[string]struct {
		text []byte
		want error
	}{
		"cut in its head":      {good[:40], ErrDamaged},
		"cut in its first key": {good[:150], ErrDamaged},
		"cut in its middle":    {good[:len(good)/2], ErrDamaged},
		"without its end":      {good[:len(good)-1], ErrDamaged},
		"changed":              {changed, ErrDamaged},
		"nothing":              {nil, ErrDamaged},
		"text":                 {[]byte("a text"), ErrDamaged},
		"without a database":   {archive(t, to, "log/a.jsonl"), ErrDamaged},
		"another file":         {archive(t, to, "waldo.db", "store.json"), ErrUnlisted},
		"another folder":       {archive(t, to, "waldo.db", "other/x"), ErrUnlisted},
		"a file as a folder":   {archive(t, to, "waldo.db/x"), ErrUnlisted},
		"a folder as a file":   {archive(t, to, "waldo.db", "log"), ErrUnlisted},
		"out of a folder":      {archive(t, to, "waldo.db", "log/../store.json"), ErrUnlisted},
		"outside":              {archive(t, to, "waldo.db", "../x"), ErrUnlisted},
	} {
		dir := t.TempDir()
		err := Restore(t.Context(), bytes.NewReader(row.text), filepath.Join(dir, "state"), key)
		left, _ := os.ReadDir(dir)
		if !errors.Is(err, row.want) || len(left) > 0 {
			t.Errorf("%s: %v, left %v", name, err, left)
		}
	}
	state := filepath.Join(t.TempDir(), "state")
	if err := Restore(t.Context(), bytes.NewReader(good), state, key); err != nil {
		t.Fatalf("control: %v", err)
	}
	if _, err := os.Stat(filepath.Join(state, "workspaces", "w_1", "x")); err != nil {
		t.Errorf("control: %v", err)
	}
}

// TestMaxWork: a passphrase that would keep waldo busy for minutes is not tried.
func TestMaxWork(t *testing.T) {
	t.Setenv(passphraseVariable, "correct horse")
	to, err := age.NewScryptRecipient("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	to.SetWorkFactor(10)
	by, err := identity("")
	if err != nil {
		t.Fatal(err)
	}
	text := archive(t, to, "waldo.db")
	if err := Restore(t.Context(), bytes.NewReader(text), filepath.Join(t.TempDir(), "state"), by); err != nil {
		t.Errorf("control: %v", err)
	}
	heavy := bytes.Replace(text, []byte(" 10\n"), fmt.Appendf(nil, " %d\n", maxWork+1), 1)
	err = Restore(t.Context(), bytes.NewReader(heavy), filepath.Join(t.TempDir(), "state"), by)
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "work factor") {
		t.Errorf("2^%d: %v", maxWork+1, err)
	}
}
