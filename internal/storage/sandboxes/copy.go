package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"

	"waldo/internal/sandbox"
	"waldo/internal/storage/workspace"
)

// ErrKind: the source is neither a file nor a folder, so it cannot be copied.
var ErrKind = errors.New("it is neither a file nor a folder")

// until returns a reader that ends with ctx.
func until(ctx context.Context, r io.Reader) io.Reader { return &untilDone{r, ctx} }

type untilDone struct {
	io.Reader
	ctx context.Context
}

func (e *untilDone) Read(b []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	return e.Reader.Read(b)
}

// room returns what a folder of a workspace may still take, so that a running sandbox can hold it all.
func room(w *workspace.Workspace, f workspace.Folder, l sandbox.Limits) (workspace.Bounds, error) {
	return w.Room(f, workspace.Bounds{Bytes: l.Disk, Entries: int(l.Inodes)})
}

// Unpack unpacks a tar into a workspace. It skips links and devices and returns them as an error.
func Unpack(
	ctx context.Context, w *workspace.Workspace, f workspace.Folder, name string, from io.Reader, l sandbox.Limits,
) error {
	b, err := room(w, f, l)
	if err != nil {
		return err
	}
	u, err := w.ExtractTar(f, name, until(ctx, from), b)
	if err == nil && len(u.Skipped) > 0 {
		err = fmt.Errorf("left out: %s", strings.Join(u.Skipped, ", "))
	}
	return err
}

// CopyIn copies a file of this machine, or a folder with the regular files in it, into a workspace.
// An empty name is the folder itself.
func CopyIn(
	ctx context.Context, w *workspace.Workspace, from string, f workspace.Folder, name string, l sandbox.Limits,
) error {
	b, err := room(w, f, l)
	if err != nil {
		return err
	}
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !st.IsDir() && !st.Mode().IsRegular() { // opening a pipe waits for who writes
		return fmt.Errorf("%s: %w", from, ErrKind)
	}
	if !st.IsDir() {
		if name == "" {
			name = filepath.Base(from)
		}
		return copyFileIn(ctx, w, from, f, name, &b)
	}
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		return copyFileIn(ctx, w, p, f, path.Join(name, filepath.ToSlash(rel)), &b)
	})
}

func copyFileIn(
	ctx context.Context, w *workspace.Workspace, from string, folder workspace.Folder, name string, b *workspace.Bounds,
) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s: %w", from, ErrKind)
	}
	if err := b.Take(name, st.Size()); err != nil {
		return err
	}
	if err := w.Put(folder, name, until(ctx, f), st.Size()); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if st.Mode()&0o100 != 0 {
		return w.Executable(folder, name)
	}
	return nil
}

// CopyOut copies a file or folder of a workspace to this machine. Code in a running sandbox may have made them:
// no name of theirs, and no link that is there already, leads out of the folder that is copied to.
func CopyOut(ctx context.Context, w *workspace.Workspace, f workspace.Folder, name, to string) error {
	files, err := w.List(f, math.MaxInt)
	if err != nil {
		return err
	}
	st, serr := os.Stat(to)
	folder := serr == nil && st.IsDir()
	copied := 0
	for _, file := range files {
		rel, below := strings.CutPrefix(file.Name, name+"/")
		switch {
		case file.Name == name && !folder:
			return copyFileOut(ctx, w, f, file, filepath.Dir(to), filepath.Base(to))
		case file.Name == name:
			return copyFileOut(ctx, w, f, file, to, path.Base(name))
		case name == "":
			rel, below = file.Name, true
		case folder:
			rel = path.Join(path.Base(name), rel)
		}
		if !below {
			continue
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		if err := copyFileOut(ctx, w, f, file, to, rel); err != nil {
			return err
		}
		copied++
	}
	if copied == 0 {
		at := name
		if f != workspace.Files {
			at = string(f) + "/" + name
		}
		return fmt.Errorf("/workspace/%s in the sandbox: %w", at, fs.ErrNotExist)
	}
	return nil
}

func copyFileOut(
	ctx context.Context, w *workspace.Workspace, folder workspace.Folder, f workspace.File, dir, name string,
) error {
	src, err := w.Get(folder, f.Name)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	name = filepath.FromSlash(name)
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if st, err := os.Stat(filepath.Join(dir, name)); err == nil && !st.Mode().IsRegular() && !st.IsDir() { // /dev/null
		return fmt.Errorf("%s: %w", filepath.Join(dir, name), ErrKind)
	}
	mode := fs.FileMode(0o644)
	if f.Exec {
		mode = 0o755
	}
	_, err = workspace.Replace(root, name, mode, until(ctx, src), math.MaxInt64-1)
	return err
}
