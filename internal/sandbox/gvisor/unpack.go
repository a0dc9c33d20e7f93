//go:build linux && (amd64 || arm64)

package gvisor

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// errNoPayload is the error of a waldo that was built without gVisor.
var errNoPayload = errors.New("this build has no gVisor inside: run make build")

// maxPayload bounds what is unpacked, in bytes.
const maxPayload = 256 << 20

// packed is gVisor as it is inside waldo.
type packed struct {
	gz     []byte
	digest string // SHA-256 of the content of gz, in hexadecimal
	// progress gets each byte that is unpacked, and how many there will be; nil: no progress
	progress func(what string, bytes int64) io.WriteCloser
}

// reading is a reader that ends with its context.
type reading struct {
	io.Reader
	ctx context.Context
}

func (r reading) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// inside returns the payload of this build.
func inside(files fs.ReadFileFS) (packed, error) {
	dir := "payload/" + runtime.GOARCH + "/"
	gz, err := files.ReadFile(dir + "waldo-gvisor.gz")
	if err != nil {
		return packed{}, errNoPayload
	}
	sum, err := files.ReadFile(dir + "waldo-gvisor.sha256")
	if err != nil {
		return packed{}, errNoPayload
	}
	p := packed{gz: gz, digest: strings.TrimSpace(string(sum))}
	if b, err := hex.DecodeString(p.digest); err != nil || len(b) != sha256.Size {
		return packed{}, fmt.Errorf("the digest of the gVisor inside this build is damaged: run make build")
	}
	return p, nil
}

// open unpacks the executable into a folder that only this user can enter, checks its digest, and opens it. It
// replaces a file with another digest.
func (p packed) open(ctx context.Context, dir string) (*os.File, error) {
	if err := private(dir); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, "gvisor-"+p.digest[:32])
	f, err := p.check(ctx, name)
	if err == nil {
		return f, nil
	}
	if err := p.unpack(ctx, dir, name); err != nil {
		return nil, fmt.Errorf("unpacking gVisor into %s: %w", dir, err)
	}
	return p.check(ctx, name)
}

// private makes a folder that belongs to this user and that no other user can enter. It refuses one that exists
// with other rights.
func private(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s must be a folder of this user that other users cannot write to; move it away", dir)
	}
	return nil
}

// check opens the executable and reads all of it: the descriptor that is returned is of the very
// file whose digest was found right.
func (p packed) check(ctx context.Context, name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := p.same(ctx, f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

func (p packed) same(ctx context.Context, f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o222 != 0 {
		return errors.New("must be a read-only file of this user")
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, reading{f, ctx}); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != p.digest {
		return fmt.Errorf("its digest is %s, not %s", got, p.digest)
	}
	return nil
}

// unpack writes the executable to a temporary file and renames it. So no process sees half of it, and a link in
// its place is replaced, never followed.
func (p packed) unpack(ctx context.Context, dir, name string) error {
	temp, err := os.CreateTemp(dir, "unpacking-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	defer temp.Close()
	z, err := gzip.NewReader(bytes.NewReader(p.gz))
	if err != nil {
		return err
	}
	from := io.Reader(reading{io.LimitReader(z, maxPayload), ctx})
	if p.progress != nil {
		size := int64(binary.LittleEndian.Uint32(p.gz[len(p.gz)-4:])) // RFC 1952 §2.3.1
		bar := p.progress("unpacking gVisor", size)
		defer bar.Close()
		from = io.TeeReader(from, bar)
	}
	if _, err := io.Copy(temp, from); err != nil {
		return err
	}
	// Readable and executable for the user that a sandbox belongs to; the folder keeps others out.
	if err := temp.Chmod(0o555); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), name); err != nil {
		return err
	}
	p.sweep(dir, filepath.Base(name))
	return nil
}

// sweep removes what earlier builds and interrupted unpackings left. A program that runs keeps
// its file open and does not mind.
func (p packed) sweep(dir, keep string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.Name() == keep || !strings.HasPrefix(e.Name(), "gvisor-") &&
			!strings.HasPrefix(e.Name(), "unpacking-") {
			continue
		}
		if age := time.Since(info.ModTime()); age > staleAfter {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
