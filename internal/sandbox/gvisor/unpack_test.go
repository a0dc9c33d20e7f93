//go:build linux && (amd64 || arm64)

package gvisor

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

const program = "#!/bin/sh\necho a program\n"

func pack(text string) packed {
	var gz bytes.Buffer
	z := gzip.NewWriter(&gz)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	sum := sha256.Sum256([]byte(text))
	return packed{gz: gz.Bytes(), digest: hex.EncodeToString(sum[:])}
}

func content(t *testing.T, f *os.File) string {
	t.Helper()
	defer f.Close()
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestUnpack(t *testing.T) {
	p := pack(program)
	for _, row := range []struct {
		why  string
		harm func(t *testing.T, dir, name string)
		err  string
	}{
		{"control: nothing is there", func(*testing.T, string, string) {}, ""},
		{"control: it is there", func(t *testing.T, dir, name string) {
			f, err := p.open(context.Background(), dir)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		}, ""},
		{"another program of that name is replaced", func(t *testing.T, dir, name string) {
			must(t, os.WriteFile(name, []byte("evil"), 0o555))
		}, ""},
		{"half of it is replaced", func(t *testing.T, dir, name string) {
			must(t, os.WriteFile(name, []byte(program[:5]), 0o555))
		}, ""},
		{"the right bytes in a file that can be written are replaced", func(t *testing.T, dir, name string) {
			must(t, os.WriteFile(name, []byte(program), 0o755))
		}, ""},
		{"a link to the right bytes is replaced, not followed", func(t *testing.T, dir, name string) {
			other := filepath.Join(t.TempDir(), "other")
			must(t, os.WriteFile(other, []byte(program), 0o555))
			must(t, os.Symlink(other, name))
		}, ""},
		{"a pipe is replaced and not waited for", func(t *testing.T, dir, name string) { must(t, mkfifo(name)) }, ""},
		{"a folder that others can write to", func(t *testing.T, dir, name string) { must(t, os.Chmod(dir, 0o777)) },
			"other users cannot write to"},
		{"a folder of that name", func(t *testing.T, dir, name string) {
			must(t, os.Mkdir(name, 0o700))
			must(t, os.WriteFile(filepath.Join(name, "x"), nil, 0o600))
		}, "file exists"},
		{"a link in place of the folder", func(t *testing.T, dir, name string) {
			must(t, os.Remove(dir))
			must(t, os.Symlink(t.TempDir(), dir))
		}, "must be a folder"},
	} {
		t.Run(row.why, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			must(t, os.Mkdir(dir, 0o700))
			name := filepath.Join(dir, "gvisor-"+p.digest[:32])
			row.harm(t, dir, name)
			f, err := p.open(context.Background(), dir)
			if row.err != "" {
				if err == nil || !strings.Contains(err.Error(), row.err) {
					t.Fatalf("error %v, want %q", err, row.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := content(t, f); got != program {
				t.Errorf("it is %q", got)
			}
			info, err := os.Lstat(name)
			if err != nil || info.Mode() != 0o555 {
				t.Errorf("%v %v", info.Mode(), err)
			}
			entries, _ := os.ReadDir(dir)
			if len(entries) != 1 {
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}

func TestUnpackDamaged(t *testing.T) {
	p := pack(program)
	p.digest = strings.Repeat("0", 64)
	dir := filepath.Join(t.TempDir(), "run")
	if f, err := p.open(context.Background(), dir); err == nil || !strings.Contains(err.Error(), "its digest is") {
		t.Errorf("opened %v: %v", f, err)
	}
	p = pack(program)
	p.gz = p.gz[:len(p.gz)-6]
	if _, err := p.open(context.Background(), dir); err == nil {
		t.Error("half an archive was unpacked")
	}
}

func TestUnpackAtOnce(t *testing.T) {
	p := pack(strings.Repeat(program, 10000))
	dir := filepath.Join(t.TempDir(), "run")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			f, err := p.open(context.Background(), dir)
			if err != nil {
				t.Error(err)
				return
			}
			f.Close()
		})
	}
	wg.Wait()
}

func TestInside(t *testing.T) {
	if _, err := inside(fstest.MapFS{}); !errors.Is(err, errNoPayload) {
		t.Errorf("a build without gVisor says %v", err)
	}
	both := func(sum string) fs.ReadFileFS {
		m := fstest.MapFS{}
		for _, arch := range []string{"amd64", "arm64"} {
			m["payload/"+arch+"/waldo-gvisor.gz"] = &fstest.MapFile{Data: []byte("x")}
			m["payload/"+arch+"/waldo-gvisor.sha256"] = &fstest.MapFile{Data: []byte(sum)}
		}
		return m
	}
	if _, err := inside(both("abc\n")); err == nil {
		t.Error("a damaged digest was taken")
	}
	if p, err := inside(both(strings.Repeat("ab", 32) + "\n")); err != nil || p.digest != strings.Repeat("ab", 32) {
		t.Errorf("control: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// counted is a display of progress.
type counted struct{ bytes, all int64 }

func (c *counted) Write(b []byte) (int, error) { c.bytes += int64(len(b)); return len(b), nil }
func (c *counted) Close() error                { return nil }

// TestUnpackCancelled: unpacking ends with its context and leaves nothing; the next one shows how far it is.
func TestUnpackCancelled(t *testing.T) {
	p, dir, seen := pack(strings.Repeat("program", 1000)), t.TempDir(), &counted{}
	p.progress = func(_ string, all int64) io.WriteCloser { seen.all = all; return seen }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f, err := p.open(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v %v", f, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	f, err := p.open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if seen.bytes != 7000 || seen.all != 7000 {
		t.Errorf("shown: %d of %d bytes", seen.bytes, seen.all)
	}
}
