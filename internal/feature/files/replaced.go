package files

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/protocol/strictjson"
)

// replacedDir is the folder of the state directory with what calls replaced. It has a folder for each root, and in it a
// file for each call: a change as one line of JSON, then the content that was there.
const replacedDir = "replaced"

// Limits of the changes of one folder. The oldest make room.
const (
	maxReplaced = 256 << 20 // bytes
	maxChanges  = 500
)

// change is what files.restore needs to undo a call of files.write, files.edit or files.move.
type change struct {
	Path string    `json:"path"`           // that the call wrote, or moved to
	From string    `json:"from,omitempty"` // of a move
	Made bool      `json:"made,omitempty"` // there was no file
	Left string    `json:"left"`           // the digest of what the call left at Path
	Was  string    `json:"was,omitempty"`  // the digest of the content that was there
	At   time.Time `json:"at"`
}

var (
	errNoChange  = errors.New("no change has this id; files.restore without an id lists what can be undone")
	errSince     = errors.New("it changed since the call, so nothing was undone")
	errLinkSince = errors.New("a link is on its path since the call, so nothing was undone")
)

// replacedIn returns the folder of the changes of a root; empty: waldo has no state directory here.
func (o opener) replacedIn(dir string) string {
	if o.state == "" {
		return ""
	}
	return filepath.Join(o.state, replacedDir, folderKey(dir))
}

// keep notes what the call is about to change, with the content that was there. A call goes on without it: then its
// facts say that it cannot be undone.
func (w *work) keep(c change, old []byte) {
	if w.replaced == "" {
		return
	}
	if !c.Made && c.From == "" {
		c.Was = strictjson.Digest(old)
	}
	c.At = time.Now().UTC().Truncate(time.Second)
	line, err := json.Marshal(c)
	if err == nil {
		err = keepIn(w.replaced, w.callID, slices.Concat(line, []byte("\n"), old))
	}
	if err != nil {
		slog.Warn("what a call replaces is not kept", "call", w.callID, "why", err)
		w.cannotUndo("waldo could not keep what was there")
		return
	}
	w.undo = true
}

func (w *work) cannotUndo(why string) {
	if w.replaced != "" {
		w.warnings = append(w.warnings, "waldo undo cannot undo this call: "+why)
	}
}

// keepIn writes the change of a call, and removes the oldest ones that exceed the limits.
func keepIn(dir, callID string, b []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	all, err := os.ReadDir(dir) // an id begins with its time
	if err != nil {
		return err
	}
	sizes, total := make([]int64, len(all)), int64(len(b))
	for i, e := range all {
		if info, err := e.Info(); err == nil {
			sizes[i] = info.Size()
			total += sizes[i]
		}
	}
	for i := 0; i < len(all) && (total > maxReplaced || len(all)-i >= maxChanges); i++ {
		if err := os.Remove(filepath.Join(dir, all[i].Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= sizes[i]
	}
	f, err := os.OpenFile(filepath.Join(dir, callID), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// forget removes the change of a call.
func (w *work) forget(callID string) error { return os.Remove(filepath.Join(w.replaced, callID)) }

// change reads the change of a call, with the content that was there.
func (w *work) change(callID string) (c change, old []byte, err error) {
	if w.replaced == "" || !id.Is(id.Call, callID) {
		return c, nil, errNoChange
	}
	f, err := os.Open(filepath.Join(w.replaced, callID))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil, errNoChange
	}
	if err != nil {
		return c, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = w.covers(info.Size())
	}
	if err != nil {
		return c, nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxWritten+64<<10))
	line, old, _ := bytes.Cut(b, []byte("\n"))
	if err == nil {
		err = json.Unmarshal(line, &c)
	}
	if err == nil && c.Was != "" && c.Was != strictjson.Digest(old) {
		err = errors.New("what the call replaced was not kept whole")
	}
	return c, old, err
}

// left returns the digest of what a call left at a place. A folder that was moved loses nothing when it moves back, so
// what is in it does not count.
func (p *place) left(moved bool) (string, error) {
	info, err := p.info()
	switch {
	case err != nil:
		return "", err
	case moved && info.IsDir():
		return "folder", nil
	case moved:
		return p.stamp()
	}
	f, _, err := p.open()
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), err
}

// changed finds the file of a change. It fails where the file is not as the call left it.
func (w *work) changed(c change) (*place, error) {
	p, err := w.find(c.Path, 0, true)
	if err != nil {
		return nil, err
	}
	left, err := p.left(c.From != "")
	switch {
	case p.name != c.Path:
		err = errLinkSince
	case err != nil && !errors.Is(err, fs.ErrNotExist), err == nil && left != c.Left:
		err = errSince
	}
	if err != nil {
		p.Close()
		return nil, about(c.Path, err)
	}
	return p, nil
}

// takeBack undoes a change, once.
func (w *work) takeBack(callID string, c change, old []byte) ([]call.Content, error) {
	p, err := w.changed(c)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	done := "restored " + facts.Name(c.Path)
	switch {
	case c.From != "":
		done = "moved " + facts.Name(c.Path) + " back to " + facts.Name(c.From)
		err = w.moveBack(p, c.From)
	case c.Made:
		done = "removed " + facts.Name(c.Path) + ", which the call made"
		w.acted = true
		if err = about(c.Path, p.dir.Remove(p.base)); err == nil {
			w.written = append(w.written, p.name)
		}
	default:
		was, statErr := p.writable()
		if err = about(c.Path, statErr); err == nil {
			err = about(c.Path, w.replace(p, old, was))
		}
	}
	if err != nil {
		return nil, err
	}
	return say("%s\n", done), w.forget(callID)
}

func (w *work) moveBack(p *place, from string) error {
	to, err := w.find(from, create, true)
	if err != nil {
		return err
	}
	defer to.Close()
	if to.name != from {
		return about(from, errLinkSince)
	}
	w.acted = true
	if err := w.renameOnto(p, to); err != nil {
		return about(from, err)
	}
	w.written = append(w.written, p.name, to.name)
	return nil
}

// showTakeBack says what undoing a change would do.
func (w *work) showTakeBack(c change, old []byte) ([]call.Content, error) {
	p, err := w.changed(c)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	switch {
	case c.From != "":
		return say("moves %s, %s, back to %s", facts.Name(c.Path), c.Left, facts.Name(c.From)), nil
	case c.Made:
		return say("removes %s, %s, which the call made", facts.Name(c.Path), c.Left), nil
	}
	head := fmt.Sprintf("replaces %s, %s, by the %d bytes that it had", facts.Name(c.Path), c.Left, len(old))
	now, err := w.whole(p)
	if err != nil || isBinary(old) || isBinary(now) {
		return say("%s, %s", head, c.Was), nil
	}
	return say("%s\n%s", head, changed(p.name, string(now), string(old))), nil
}

// changes describes the newest changes that can be undone.
func (w *work) changes(most int) string {
	all, _ := os.ReadDir(w.replaced) // none: nothing is kept
	var b strings.Builder
	for _, e := range slices.Backward(all[max(0, len(all)-most):]) {
		f, err := os.Open(filepath.Join(w.replaced, e.Name()))
		if err != nil {
			continue
		}
		line, err := bufio.NewReaderSize(f, 64<<10).ReadSlice('\n')
		c, what := change{}, "written"
		if err == nil && json.Unmarshal(line, &c) == nil {
			if c.From != "" {
				what = "moved from " + facts.Name(c.From)
			}
			fmt.Fprintf(&b, "%s\t%s, %s %s\n", e.Name(), facts.Name(c.Path), what, c.At.Format(time.RFC3339))
		}
		_ = f.Close()
	}
	return b.String()
}

// sweep removes what was replaced before a time.
func sweep(state string, before time.Time) error {
	top := filepath.Join(state, replacedDir)
	var errs []error
	folders, _ := os.ReadDir(top) // none: nothing is kept
	for _, d := range folders {
		all, err := os.ReadDir(filepath.Join(top, d.Name()))
		errs = append(errs, err)
		for _, e := range all {
			if info, err := e.Info(); err == nil && info.ModTime().Before(before) {
				errs = append(errs, os.Remove(filepath.Join(top, d.Name(), e.Name())))
			}
		}
	}
	return errors.Join(errs...)
}
