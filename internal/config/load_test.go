//go:build unix

package config

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"waldo/internal/model/contract"
)

func TestLoadReadsRegularFilesOnly(t *testing.T) {
	dir := t.TempDir()
	good, fifo := filepath.Join(dir, "waldo.yaml"), filepath.Join(dir, "fifo")
	if err := os.WriteFile(good, []byte("version: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if cfg, err := Load(good); err != nil || cfg.File != good || cfg.Digest != digest([]byte("version: 1\n")) {
		t.Fatalf("control: %v %v", cfg, err)
	}
	for _, f := range []string{dir, fifo, filepath.Join(dir, "absent"), "/dev/zero"} {
		done := make(chan error, 1)
		go func() { _, err := Load(f); done <- err }()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%s was read", f)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: still waiting for it", f)
		}
	}
	if err := os.WriteFile(good, []byte("versoin: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(good)
	if problems, ok := err.(contract.Problems); !ok || !problems.Has("key.unknown") {
		t.Errorf("%T %v", err, err)
	}
}
