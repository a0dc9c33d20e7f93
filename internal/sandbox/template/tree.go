package template

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"waldo/internal/sandbox"
)

// The bounds of one entry's name.
const (
	maxName  = 4096
	maxDepth = 128
)

// ErrTooMuch is the error for a template beyond its limits.
var ErrTooMuch = errors.New("more than a template may have")

// ErrName is the error for an entry that would land outside.
var ErrName = errors.New("not the name of a file below a root")

// The marks by which a layer takes away what lower layers brought (OCI image spec, layer.md).
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// tree is a root filesystem in the making. Layers are unpacked into it, one over the other. No code of a
// sandbox runs meanwhile, so checked entries do not change.
type tree struct {
	root    *os.Root
	left    Bounds
	skipped int
	here    map[string]bool // the entries of the layer being unpacked, and their folders
	dir     string          // where it is
	bounds  Bounds
	config  Config // of the image that was unpacked
}

// newTree makes an empty root.
func newTree(dir string, b Bounds) (*tree, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &tree{root: root, left: b, dir: dir, bounds: b}, nil
}

// aside moves what was unpacked to a folder beside the root, which starts empty again. The caller
// closes and removes the folder.
func (t *tree) aside() (*os.Root, string, error) {
	at := t.dir + ".aside"
	if err := errors.Join(t.close(), os.Rename(t.dir, at)); err != nil {
		return nil, at, err
	}
	again, err := newTree(t.dir, t.bounds)
	if err != nil {
		return nil, at, err
	}
	*t = *again
	parts, err := os.OpenRoot(at)
	return parts, at, err
}

func (t *tree) close() error { return t.root.Close() }

// unpack applies a tar stream to the tree. A layer's whiteouts remove entries of lower layers. Links stay
// links. Devices and pipes are left out; owners, set-id bits and extended attributes are dropped. Names that
// climb and entries beyond the limits are errors.
func (t *tree) unpack(from io.Reader, layer bool) error {
	t.here = map[string]bool{}
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("tar: %w", err)
		}
		if t.left.Entries--; t.left.Entries < 0 {
			return fmt.Errorf("too many entries: %w", ErrTooMuch)
		}
		if err := t.entry(h, r, layer); err != nil {
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
}

// clean returns the name of an entry from the root, empty for the root itself.
func clean(name string) (string, error) {
	if len(name) > maxName || strings.ContainsRune(name, 0) {
		return "", ErrName
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", ErrName
		}
	}
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if strings.Count(name, "/") >= maxDepth {
		return "", ErrName
	}
	return name, nil
}

func (t *tree) entry(h *tar.Header, from io.Reader, layer bool) error {
	name, err := clean(h.Name)
	if err != nil || name == "" || h.Typeflag == tar.TypeXGlobalHeader {
		return err // the root itself stays as we made it
	}
	dir, err := t.follow(path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	if layer && strings.HasPrefix(base, whiteout) {
		return t.whiteout(dir, base)
	}
	if err := t.root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return t.put(path.Join(dir, base), h, from)
}

// put makes one entry. The folders above it exist and are not links.
func (t *tree) put(at string, h *tar.Header, from io.Reader) error {
	mode := fs.FileMode(h.Mode) & 0o755 // neither set-id bits nor writers beside us
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
	default:
		t.skipped++
		return nil
	}
	old := "" // resolved before the place is cleared
	if h.Typeflag == tar.TypeLink {
		var err error
		if old, err = t.linked(h.Linkname); err != nil || old == at {
			return err
		}
	}
	if err := t.clear(at, h.Typeflag == tar.TypeDir); err != nil {
		return err
	}
	t.mark(at)
	switch h.Typeflag {
	case tar.TypeDir:
		if err := t.root.Mkdir(at, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return t.root.Chmod(at, mode|0o700)
	case tar.TypeSymlink:
		if len(h.Linkname) >= maxName {
			return ErrName
		}
		return t.root.Symlink(h.Linkname, at)
	case tar.TypeLink:
		return t.root.Link(old, at)
	}
	return t.file(at, mode|0o600, from)
}

// clear removes what is in the way. A folder stays where a folder comes.
func (t *tree) clear(at string, folder bool) error {
	st, err := t.root.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) || err == nil && folder && st.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	return t.root.RemoveAll(at)
}

// mark notes what the layer under way has brought.
func (t *tree) mark(at string) {
	for ; at != "." && !t.here[at]; at = path.Dir(at) {
		t.here[at] = true
	}
}

func (t *tree) file(at string, mode fs.FileMode, from io.Reader) error {
	f, err := t.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(from, t.left.Bytes+1))
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	if t.left.Bytes -= n; t.left.Bytes < 0 {
		return fmt.Errorf("too many bytes: %w", ErrTooMuch)
	}
	return nil
}

// linked returns the file that a hard link names: a regular file below the root, and not a link.
func (t *tree) linked(name string) (string, error) {
	name, err := clean(name)
	if err != nil {
		return "", err
	}
	dir, err := t.follow(path.Dir(name))
	if err != nil {
		return "", err
	}
	at := path.Join(dir, path.Base(name))
	st, err := t.root.Lstat(at)
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() {
		return "", fmt.Errorf("the target of a hard link is not a regular file: %w", ErrName)
	}
	return at, nil
}

// follow resolves a path as a process with this root would: an absolute link starts at the root, and .. stops
// there. A missing part is taken for folders to be made.
func (t *tree) follow(name string) (string, error) {
	done, rest := ".", strings.Split(name, "/")
	for steps := 0; len(rest) > 0; steps++ {
		if steps > maxName {
			return "", fmt.Errorf("more than %d steps on the way: %w", maxName, ErrName)
		}
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = path.Dir(done)
			continue
		}
		at := path.Join(done, part)
		st, err := t.root.Lstat(at)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err != nil || st.Mode().Type() != fs.ModeSymlink {
			done = at
			continue
		}
		target, err := t.root.Readlink(at)
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(target, "/") {
			done = "."
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}

// whiteout takes away what lower layers brought.
func (t *tree) whiteout(dir, base string) error {
	if base == opaque {
		return t.hideBelow(dir)
	}
	name := strings.TrimPrefix(base, whiteout)
	if strings.HasPrefix(name, whiteout) {
		return nil // a file of aufs itself
	}
	if name == "" || name == "." || name == ".." {
		return ErrName
	}
	return t.hide(path.Join(dir, name))
}

// hide removes what is at a place and is not of the layer under way.
func (t *tree) hide(at string) error {
	if !t.here[at] {
		return t.root.RemoveAll(at)
	}
	return t.hideBelow(at)
}

func (t *tree) hideBelow(dir string) error {
	st, err := t.root.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !st.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	names, err := fs.ReadDir(t.root.FS(), dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range names {
		errs = append(errs, t.hide(path.Join(dir, n.Name())))
	}
	return errors.Join(errs...)
}

// The user that code runs as in every sandbox.
const (
	user  = "agent:x:1000:1000::/workspace:/bin/sh\n"
	group = "agent:x:1000:\n"
)

// ErrEmpty is the error for an archive or image without files.
var ErrEmpty = errors.New("it is empty: it holds no file")

// finish gives an unpacked root what every sandbox needs in /etc: its user, names of its loopback, no name server. It
// refuses a root without anything in it.
func (t *tree) finish() error {
	if all, err := fs.ReadDir(t.root.FS(), "."); err != nil || len(all) == 0 {
		return errors.Join(err, ErrEmpty)
	}
	at, err := t.follow("etc")
	if err != nil {
		return err
	}
	if err := t.root.MkdirAll(at, 0o755); err != nil {
		return err
	}
	for _, f := range []struct{ name, line, id string }{{"passwd", user, ":1000:"}, {"group", group, ":1000:"}} {
		if err := t.addLine(path.Join(at, f.name), f.line, f.id); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"hosts": sandbox.Hosts, "resolv.conf": ""} {
		if err := t.replace(path.Join(at, name), text); err != nil {
			return err
		}
	}
	return nil
}

// addLine appends a line to a file of accounts, unless a line holds id or the file is not a regular file.
func (t *tree) addLine(at, line, id string) error {
	text := ""
	if st, err := t.root.Lstat(at); err == nil {
		if !st.Mode().IsRegular() || st.Size() > 1<<20 {
			return nil
		}
		b, err := t.root.ReadFile(at)
		if err != nil {
			return err
		}
		if text = string(b); strings.Contains(text, id) {
			return nil
		}
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
	}
	return t.replace(at, text+line)
}

// replace puts a file of ours where something else may be. Hard links to that keep what they had.
func (t *tree) replace(at, text string) error {
	if err := t.clear(at, false); err != nil {
		return err
	}
	f, err := t.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Chmod(0o644), f.Close())
}
