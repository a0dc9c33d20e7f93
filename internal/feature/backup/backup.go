// Package backup copies a state directory while waldo runs, and restores it.
package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"

	"waldo/internal/storage/database"
)

// parts are what a backup holds of a state directory beside waldo.db and the log. The rest is made again when needed.
var parts = []string{"waldo.lock", "trust.json", "agents", "blobs", "data", "hosts", "backups", "programs", "evidence"}

// The parts that are copied on request alone.
const (
	workspaces = "workspaces"
	secrets    = "secrets"
	approvers  = "approvers"
)

// Options choose the parts of a backup.
type Options struct {
	Workspaces bool // files of sessions
	Secrets    bool // the sealed secrets, and the sealed keys of approvers
}

// Write writes a backup of a state directory, sealed for a recipient. The database is copied first, as one transaction
// sees it, and the log after it: the log then holds every record that the database knows of.
func Write(ctx context.Context, w io.Writer, s *database.Store, o Options, to age.Recipient) error {
	sealed, err := age.Encrypt(w, to)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(sealed)
	t := tar.NewWriter(z)
	err = write(ctx, t, s, o)
	return errors.Join(err, t.Close(), z.Close(), sealed.Close())
}

func write(ctx context.Context, t *tar.Writer, s *database.Store, o Options) error {
	dir, err := os.MkdirTemp(s.Dir(), ".backup-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	copied := filepath.Join(dir, "waldo.db")
	if err := s.Copy(ctx, copied); err != nil {
		return fmt.Errorf("copying the database: %w", err)
	}
	if err := add(t, copied, "waldo.db"); err != nil {
		return err
	}
	names := append([]string{"log"}, parts...)
	if o.Workspaces {
		names = append(names, workspaces)
	}
	if o.Secrets {
		names = append(names, secrets, approvers)
	}
	for _, name := range names {
		err := filepath.WalkDir(s.Path(name), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || err == nil && !d.Type().IsRegular() || ctx.Err() != nil {
				return ctx.Err() // absent, or removed meanwhile
			}
			if err != nil {
				return err
			}
			in, err := filepath.Rel(s.Dir(), path)
			if err != nil {
				return err
			}
			return add(t, path, filepath.ToSlash(in))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds a file. A segment of the log that grows is added up to its last whole line.
func add(t *tar.Writer, path, name string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if strings.HasPrefix(name, "log/") && strings.HasSuffix(name, ".jsonl") {
		if size, err = whole(f, size); err != nil {
			return err
		}
	}
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Size: size, ModTime: info.ModTime(),
		Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err = io.Copy(t, io.NewSectionReader(f, 0, size))
	return err
}

// whole returns how many bytes of a segment are whole lines.
func whole(f io.ReaderAt, size int64) (int64, error) {
	for end := size; end > 0; {
		from := max(0, end-64<<10)
		b := make([]byte, end-from)
		if _, err := f.ReadAt(b, from); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
		end = from
	}
	return 0, nil
}

// files are the parts that are one file; folders are the others.
var files = []string{"waldo.db", "waldo.lock", "trust.json"}

// listed reports whether a backup can hold a file: one of its parts, or one in a folder of its parts.
func listed(name string) bool {
	folder, _, below := strings.Cut(name, "/")
	return path.Clean(name) == name && (slices.Contains(files, name) || below && !slices.Contains(files, folder) &&
		(slices.Contains(parts, folder) || slices.Contains([]string{"log", workspaces, secrets, approvers}, folder)))
}

// ErrDamaged is returned for a backup that was changed or cut short, or is none.
var ErrDamaged = errors.New("this is no whole backup")

// ErrUnlisted is returned for a backup with a file that no waldo puts into one.
var ErrUnlisted = errors.New("the backup holds a file that no backup has")

// ErrInUse is returned for a state directory that is not empty.
var ErrInUse = errors.New("the state directory is not empty")

// maxBackup bounds what a backup can grow to when it is unpacked.
const maxBackup = 1 << 40

// Restore unpacks a backup into a state directory that must be empty. A failure leaves nothing.
func Restore(ctx context.Context, r io.Reader, state string, by age.Identity) (err error) {
	if found, err := os.ReadDir(state); err == nil && len(found) > 0 {
		return ErrInUse
	}
	plain, err := age.Decrypt(r, by)
	if wrong := (*age.NoIdentityMatchError)(nil); errors.As(err, &wrong) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	z, err := gzip.NewReader(plain)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	temp, err := os.MkdirTemp(filepath.Dir(state), ".restore-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	root, err := os.OpenRoot(temp)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := unpack(ctx, tar.NewReader(io.LimitReader(z, maxBackup)), root); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, z); err != nil { // the end of the archive is sealed, too
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if _, err := root.Stat("waldo.db"); err != nil {
		return fmt.Errorf("%w: it holds no waldo.db", ErrDamaged)
	}
	if err := os.Remove(state); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(temp, state)
}

// reading marks errors of a backup that is read, beside those of the disk that is written.
type reading struct{ io.Reader }

// Read satisfies io.Reader.
func (r reading) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return n, err
}

func unpack(ctx context.Context, t *tar.Reader, root *os.Root) error {
	for {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(filepath.FromSlash(h.Name)) || !listed(h.Name) {
			return fmt.Errorf("%w: %.200q", ErrUnlisted, h.Name)
		}
		if err := root.MkdirAll(filepath.Dir(filepath.FromSlash(h.Name)), 0o700); err != nil {
			return err
		}
		f, err := root.OpenFile(filepath.FromSlash(h.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(h.Mode)&0o700)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, reading{t})
		if err = errors.Join(err, f.Sync(), f.Close(), ctx.Err()); err != nil {
			return err
		}
	}
}
