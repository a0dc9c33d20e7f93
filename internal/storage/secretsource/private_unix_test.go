//go:build unix

package secretsource

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"waldo/internal/model/secret"
)

// TestResolveFile: a file is read only if no other user could have read or changed it.
func TestResolveFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("good"), canary+"\n", 0o600)
	write(t, at("group"), canary, 0o640)
	write(t, at("others"), canary, 0o604)
	write(t, at("shared"), canary, 0o620)
	write(t, at("empty"), "\n", 0o600)
	write(t, at("full"), strings.Repeat("x", maxFile), 0o600)
	write(t, at("big"), strings.Repeat("x", maxFile+1), 0o600)
	write(t, at("env"), "A=other\nTOKEN='"+canary+"'\n", 0o600)
	write(t, at("bad"), "A=a\n"+canary+"\n", 0o600)
	if err := os.Symlink(at("good"), at("link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := Sources{Files: true}
	for _, ref := range []string{"file:" + at("good"), "dotenv:" + at("env") + "#TOKEN"} {
		if v, err := s.Resolve(secret.Ref(ref)); err != nil || v.Reveal() != canary {
			t.Fatalf("control %s: %v", ref, err)
		}
	}
	if _, err := s.Resolve(secret.Ref("file:" + at("full"))); err != nil {
		t.Errorf("control: 64 KiB fit: %v", err)
	}
	rows := []struct {
		why, ref string
		err      error
	}{
		{"the group can read it", "file:" + at("group"), ErrUnsafe},
		{"everyone can read it", "file:" + at("others"), ErrUnsafe},
		{"the group can change it", "file:" + at("shared"), ErrUnsafe},
		{"a link leads where its owner likes", "file:" + at("link"), ErrUnsafe},
		{"a pipe would keep us waiting", "file:" + at("pipe"), ErrUnsafe},
		{"a directory holds no secret", "file:" + dir, ErrUnsafe},
		{"there is no such file", "file:" + at("absent"), ErrMissing},
		{"a newline alone is no secret", "file:" + at("empty"), ErrEmpty},
		{"a file beyond the limit is not cut", "file:" + at("big"), ErrTooBig},
		{"the variable is not in the file", "dotenv:" + at("env") + "#NOPE", ErrMissing},
		{"a variable must be named", "dotenv:" + at("env"), ErrForm},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			done := make(chan error, 1)
			go func() { _, err := s.Resolve(secret.Ref(r.ref)); done <- err }()
			select {
			case err := <-done:
				if !errors.Is(err, r.err) || strings.Contains(err.Error(), canary) {
					t.Errorf("got %v, want %v", err, r.err)
				}
			case <-time.After(time.Minute):
				t.Error("it waits")
			}
		})
	}
	_, err := s.Resolve(secret.Ref("dotenv:" + at("bad") + "#A"))
	var pe *ParseError
	if !errors.As(err, &pe) || pe.Line != 2 || strings.Contains(err.Error(), canary) {
		t.Errorf("a bad line is named by its number alone: %v", err)
	}
}

// owned is a regular file of mode 0600 that belongs to someone.
type owned struct {
	fs.FileInfo
	uid uint32
}

func (owned) Mode() fs.FileMode { return 0o600 }
func (o owned) Sys() any        { return &syscall.Stat_t{Uid: o.uid} }

// TestPrivateOwner: another user's file may change under us, however tight its mode.
func TestPrivateOwner(t *testing.T) {
	for uid, want := range map[uint32]bool{1000: true, 0: true, 1001: false} {
		if got := private(owned{uid: uid}, 1000, onlyMine); got != want {
			t.Errorf("owner %d, we are 1000: %v", uid, got)
		}
	}
}
