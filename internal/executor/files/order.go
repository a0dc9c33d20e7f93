package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

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
	sum := sha256.Sum256([]byte(dir))
	locks := filepath.Join(o.state, "locks")
	if err := os.MkdirAll(locks, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(locks, hex.EncodeToString(sum[:16])), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		free, err := safefile.TryLock(f, false)
		if free {
			return func() { _ = safefile.Unlock(f); _ = f.Close() }, nil
		}
		if err == nil {
			select {
			case <-time.After(wait):
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		_ = f.Close()
		return nil, err
	}
}

// maxHashed is how much of a file's content is hashed for its stamp, in bytes. The stamp of a larger file, or of a
// file in a folder, has its size and the time of its last change instead.
const maxHashed = 256 << 20

// stamp changes when a file or a folder changes: a yes to one content does not hold for another.
func (p *place) stamp() (string, error) {
	info, err := p.info()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	switch {
	case info.IsDir():
		top, err := step(p.dir, p.base)
		if err != nil {
			return "", err
		}
		defer top.Close()
		n := 0
		err = fs.WalkDir(top.FS(), ".", func(at string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if n++; n > maxDeleted {
				return fmt.Errorf("it has more than %d entries", maxDeleted)
			}
			i, err := e.Info()
			if err == nil {
				fmt.Fprintf(h, "%q %s %d %d\n", at, i.Mode(), i.Size(), i.ModTime().UnixNano())
			}
			return err
		})
		if err != nil {
			return "", err
		}
	case info.Mode().IsRegular() && info.Size() <= maxHashed:
		f, _, err := p.open()
		if err != nil {
			return "", err
		}
		defer f.Close()
		if _, err := io.Copy(h, io.LimitReader(f, maxHashed)); err != nil {
			return "", err
		}
	default:
		fmt.Fprintf(h, "%s %d %d", info.Mode(), info.Size(), info.ModTime().UnixNano())
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))[:32], nil
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
