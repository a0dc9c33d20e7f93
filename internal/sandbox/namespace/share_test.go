//go:build linux && (amd64 || arm64)

package namespace

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/testing/sandboxtest"
)

// TestShare: a folder and a place of a sandbox have each other's files while a command runs, and no other place is
// shared.
func TestShare(t *testing.T) {
	b, err := New(Options{}).Start(t.Context(), sandboxtest.Profile())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s, dir := b.Abilities(), t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	write("first", "1")
	if _, err := s.Share("/workspace/output", dir); err != nil {
		t.Fatal(err)
	}
	ran := make(chan facts.Facts, 1)
	go func() {
		f, err := b.Run(t.Context(), sandbox.Command{Env: []string{"PATH=/usr/bin:/bin"}, Argv: []string{"/bin/sh", "-c",
			`cd /workspace/output && cat first && echo 2 >second && ln -s /etc/passwd link && until [ -e third ]; do sleep ` +
				`0.02; done; cat third; echo 4 >>third; ls -l third | cut -c1`}})
		if err != nil {
			t.Error(err)
		}
		ran <- f
	}()
	var given []string
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
		more, err := s.Share("/workspace/output", dir)
		if err != nil {
			t.Fatal(err)
		}
		given = append(given, more...)
		if b, _ := os.ReadFile(filepath.Join(dir, "second")); string(b) == "2\n" { // it is there, and empty, before that
			break
		}
	}
	if given = slices.Compact(given); strings.Join(given, " ") != "second" {
		t.Fatalf("given: %q", given)
	}
	write("third", "3\n")
	if _, err := s.Share("/workspace/output", dir); err != nil {
		t.Fatal(err)
	}
	if f := <-ran; f.Stdout != "13\n-\n" {
		t.Errorf("the command said %q %q", f.Stdout, f.Stderr)
	}
	if given, err := s.Share("/workspace/output", dir); err != nil || strings.Join(given, " ") != "third" {
		t.Errorf("after its end: %q %v", given, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "link")); err == nil {
		t.Error("a link came out")
	}
	if _, err := s.Share("/tmp", dir); err == nil {
		t.Error("a place that is not exported was shared")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Share("/workspace/output", dir); err == nil {
		t.Error("a sandbox that is closed shared files")
	}
}
