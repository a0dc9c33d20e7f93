package files

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/protocol/zipfile"
	"waldo/internal/storage/safefile"
)

// Limits of an archive.
const (
	maxEntries   = 10_000
	maxDirectory = 4 << 20   // bytes of the list of entries of a zip
	maxUnpacked  = 256 << 20 // bytes of all files
	maxRatio     = 200       // times the size of the archive, from a mebibyte on
	maxLevels    = 64        // folders inside folders
	maxReported  = 20        // entries that were left out, by name
)

var errArchive = errors.New("not a zip, tar or tar.gz file")

// extract unpacks into a folder beside the trash first, and moves that into place when all is well: a refused archive
// leaves nothing behind.
func extract(w *work, a call.Args) ([]call.Content, error) {
	var in struct {
		Path string `json:"path"`
		Into string `json:"into"`
	}
	if err := decode(a, &in); err != nil {
		return nil, err
	}
	from, err := w.find(in.Path, follow, false)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	f, info, err := from.open()
	if err != nil {
		return nil, about(in.Path, err)
	}
	defer f.Close()
	w.read = append(w.read, from.name)
	into, err := w.find(in.Into, follow|create, true)
	if err != nil {
		return nil, err
	}
	defer into.Close()
	if err := into.vacant(); err != nil {
		return nil, about(in.Into, err)
	}
	t, err := w.trash()
	if err != nil {
		return nil, fmt.Errorf("the trash cannot be opened: %w", err)
	}
	defer t.Close()
	stage := "u" + strings.TrimPrefix(id.New(deletion), string(deletion))
	if err := t.Mkdir(stage, 0o755); err != nil {
		return nil, err
	}
	defer func() { _ = t.RemoveAll(stage) }() // the rest after an error
	dir, err := safefile.Step(t, stage)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	u := &unpacking{ctx: w.ctx, dir: dir, most: min(maxUnpacked, max(1<<20, maxRatio*info.Size()))}
	if err := u.unpack(f, info.Size()); err != nil {
		return nil, about(in.Path, err)
	}
	w.acted = true
	if i, err := into.info(); err == nil && i.IsDir() { // it is empty
		if err := into.dir.Remove(into.base); err != nil {
			return nil, about(in.Into, err)
		}
	}
	if err := w.renameOnto(&place{dir: t, base: stage, name: trashDir + "/" + stage}, into); err != nil {
		return nil, about(in.Into, err)
	}
	w.written = append(w.written, into.name)
	return say("unpacked %d files, %d bytes, into %s\n%s", u.files, u.bytes, facts.Name(into.name), u.report()), nil
}

// vacant returns an error where an archive cannot be unpacked: at a file, or at a folder that is not empty.
func (p *place) vacant() error {
	i, err := p.info()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !i.IsDir():
		return fs.ErrExist
	case p.base == ".":
		return errors.New("name a new folder")
	}
	d, err := safefile.Step(p.dir, p.base)
	if err != nil {
		return err
	}
	defer d.Close()
	f, err := d.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	if names, _ := f.Readdirnames(1); len(names) > 0 {
		return errors.New("the folder is not empty; name a new one")
	}
	return nil
}

// unpacking is an archive that is being unpacked into an empty folder.
type unpacking struct {
	ctx            context.Context
	dir            *os.Root
	most           int64 // bytes
	bytes          int64
	entries, files int
	left           []string // out, by name
	leftOut        int
}

// unpack finds out what the archive is, by its content, and unpacks it.
func (u *unpacking) unpack(f *os.File, size int64) error {
	head := make([]byte, 262)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return err
	}
	head = head[:n]
	switch {
	case strings.HasPrefix(string(head), "PK"):
		return u.zip(f, size)
	case strings.HasPrefix(string(head), "\x1f\x8b"):
		z, err := gzip.NewReader(bufio.NewReader(f))
		if err != nil {
			return errArchive
		}
		return u.tar(z)
	case len(head) >= 262 && string(head[257:262]) == "ustar":
		return u.tar(f)
	}
	return errArchive
}

func (u *unpacking) zip(f io.ReaderAt, size int64) error {
	z, err := zipfile.Open(f, size, zipfile.Limits{Entries: maxEntries, Directory: maxDirectory})
	if err != nil {
		return err
	}
	for _, e := range z.File {
		mode := e.Mode()
		if strings.HasSuffix(e.Name, "/") {
			mode |= fs.ModeDir
		}
		err := u.entry(e.Name, mode, func() (io.ReadCloser, error) { return e.Open() })
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacking) tar(r io.Reader) error {
	// Headers of long names and the like count too: a stream has at most twice the bytes of its files, and 4 KiB an entry.
	t := tar.NewReader(&bounded{r: r, left: 2*u.most + 4<<10*maxEntries})
	for {
		e, err := t.Next()
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, errMuch):
			return err
		case err != nil && !errors.Is(err, tar.ErrInsecurePath):
			return errors.New("the archive is damaged")
		}
		mode := e.FileInfo().Mode()
		switch e.Typeflag {
		case tar.TypeReg, tar.TypeDir, tar.TypeXGlobalHeader:
		default:
			mode |= fs.ModeIrregular // links and devices, regardless of the mode
		}
		if e.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if err := u.entry(e.Name, mode, func() (io.ReadCloser, error) { return io.NopCloser(t), nil }); err != nil {
			return err
		}
	}
}

var errMuch = errors.New("it unpacks to more than is allowed: 256 MiB, 200 times its size, 10,000 entries")

// bounded ends a stream that is longer than it may be.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errMuch
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// entry unpacks one entry: a folder or a regular file. Links, devices and names that this
// tool does not write are left out. A name that leads outside refuses the whole archive: a good one has none.
func (u *unpacking) entry(name string, mode fs.FileMode, open func() (io.ReadCloser, error)) error {
	if err := u.ctx.Err(); err != nil {
		return err
	}
	if u.entries++; u.entries > maxEntries {
		return errMuch
	}
	clean, err := entryName(name)
	if err != nil {
		return fmt.Errorf("the entry %s: %w", facts.Name(display.Clip(name, 200)), err)
	}
	switch {
	case hidden(clean), protects(clean, true) != nil:
		u.leave(clean)
		return nil
	case mode.IsDir():
		if clean == "." {
			return nil
		}
		return u.dir.MkdirAll(clean, 0o755)
	case !mode.IsRegular():
		u.leave(clean)
		return nil
	}
	if err := u.dir.MkdirAll(path.Dir(clean), 0o755); err != nil {
		return err
	}
	perm := fs.FileMode(0o644)
	if mode&0o100 != 0 {
		perm = 0o755
	}
	f, err := u.dir.OpenFile(clean, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return fmt.Errorf("the entry %s: %s", facts.Name(display.Clip(name, 200)), plain(err))
	}
	in, err := open()
	if err != nil {
		return errors.Join(fmt.Errorf("the entry %s cannot be unpacked", facts.Name(display.Clip(name, 200))), f.Close())
	}
	defer in.Close()
	n, err := io.Copy(f, &bounded{r: &checked{u.ctx, in}, left: u.most - u.bytes + 1})
	u.bytes, u.files = u.bytes+n, u.files+1
	if err = errors.Join(err, f.Close()); err == nil && u.bytes > u.most {
		err = errMuch
	}
	if err != nil && !errors.Is(err, errMuch) && u.ctx.Err() == nil {
		err = fmt.Errorf("the entry %s is damaged", facts.Name(display.Clip(name, 200)))
	}
	return err
}

// leave leaves an entry out.
func (u *unpacking) leave(name string) {
	if u.leftOut++; len(u.left) < maxReported {
		u.left = append(u.left, facts.Name(name))
	}
}

// checked ends a stream when its context ends.
type checked struct {
	ctx context.Context
	r   io.Reader
}

func (c *checked) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// entryName returns the path of an entry below the folder of the archive.
func entryName(name string) (string, error) {
	if name == "" || len(name) > maxPath || !utf8.ValidString(name) || strings.ContainsAny(name, "\x00\\") {
		return "", errors.New("its name is empty, too long, or has a NUL, a backslash or bytes that are no UTF-8")
	}
	if path.IsAbs(name) || absolute(name) {
		return "", errOutside
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", errOutside
		}
	}
	clean := path.Clean(name)
	if strings.Count(clean, "/") >= maxLevels {
		return "", fmt.Errorf("it is more than %d folders deep", maxLevels)
	}
	return clean, nil
}

// report names what was left out.
func (u *unpacking) report() string {
	if u.leftOut == 0 {
		return ""
	}
	return fmt.Sprintf("left out, as links, devices and names that this tool does not write are: %d, such as %s\n", u.leftOut, strings.Join(u.left, ", "))
}
