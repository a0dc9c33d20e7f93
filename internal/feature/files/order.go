package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/storage/safefile"
)

// inOrder waits until no other waldo of this state directory changes the folder. Two appends at once would lose one.
// The lock is in the state directory, where no sandbox and no agent can hold it.
func (o opener) inOrder(ctx context.Context, dir string) (over func(), err error) {
	if o.state == "" {
		return func() {}, nil
	}
	locks := filepath.Join(o.state, "locks")
	if err := os.MkdirAll(locks, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(locks, folderKey(dir)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := safefile.LockWithin(ctx, f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = safefile.Unlock(f); _ = f.Close() }, nil
}

// folderKey names a folder in the state directory.
func folderKey(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:16])
}

// maxHashed is how many bytes of content a stamp covers. Of more it covers the names, sizes and times alone, and its
// text states that.
const maxHashed = 256 << 20

// stamp changes when a file or a folder changes: a yes to one content does not hold for another.
func (p *place) stamp() (string, error) {
	info, err := p.info()
	if err != nil {
		return "", err
	}
	size := info.Size()
	if info.IsDir() {
		if size, _, err = measure(p); err != nil {
			return "", err
		}
	}
	whole := size <= maxHashed
	h := sha256.New()
	if !info.IsDir() {
		err = stampOne(h, p.dir, p.base, info, whole)
	} else {
		err = p.stampAll(h, whole)
	}
	if err != nil {
		return "", err
	}
	text := "sha256:" + hex.EncodeToString(h.Sum(nil))[:32]
	if !whole {
		text += " of names, sizes and times only"
	}
	return text, nil
}

// stampAll adds a folder with all that is in it to a stamp.
func (p *place) stampAll(h hash.Hash, whole bool) error {
	top, err := safefile.Step(p.dir, p.base)
	if err != nil {
		return err
	}
	defer top.Close()
	n := 0
	return fs.WalkDir(top.FS(), ".", func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if n++; n > maxDeleted {
			return fmt.Errorf("it has more than %d entries", maxDeleted)
		}
		i, err := e.Info()
		if err != nil {
			return err
		}
		return stampOne(h, top, at, i, whole)
	})
}

// stampOne adds one entry of a folder to a stamp: with its content, or with the times and the inode that show a change
// of it. No program sets the time of the last change of an inode.
func stampOne(h hash.Hash, dir *os.Root, at string, i fs.FileInfo, whole bool) error {
	fmt.Fprintf(h, "%q %s %d ", at, i.Mode(), i.Size())
	switch {
	case !whole:
		fmt.Fprintf(h, "%d %s\n", i.ModTime().UnixNano(), inode(i))
	case i.Mode()&fs.ModeSymlink != 0:
		to, err := dir.Readlink(at)
		fmt.Fprintf(h, "%q\n", to)
		return err
	case i.Mode().IsRegular():
		f, err := dir.OpenFile(at, os.O_RDONLY|nonblock, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		is, err := f.Stat()
		if err != nil || !os.SameFile(i, is) || regular(is) != nil {
			return errors.Join(errChanged, err)
		}
		if n, err := io.Copy(h, io.LimitReader(f, i.Size()+1)); err != nil || n != i.Size() {
			return errors.Join(errChanged, err)
		}
	}
	return nil
}

// showFrom is the preview of a tool that works on one file or folder.
func showFrom(w *work, a call.Args) ([]call.Content, error) {
	var in struct {
		Path string `json:"path"`
		From string `json:"from"`
		Into string `json:"into"`
		To   string `json:"to"`
	}
	if err := decode(a, &in); err != nil {
		return nil, err
	}
	from, to, verb, way := in.From, in.To, "moves", how(0)
	if from == "" {
		from, to, verb, way = in.Path, in.Into, "unpacks", follow
	}
	p, err := w.find(from, way, false)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	stamp, err := p.stamp()
	if err != nil {
		return nil, about(from, err)
	}
	return say("%s %s, %s, to %s", verb, facts.Name(p.name), stamp, facts.Name(display.Clip(to, 200))), nil
}
