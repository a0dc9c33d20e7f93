package files

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"waldo/internal/executor/preview"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
)

// maxWritten is how many bytes a file may have that is edited or appended to.
const maxWritten = 8 << 20

// newFile begins the name of a file that is being written.
const newFile = ".waldo-new-"

// writing are the arguments of files.write.
type writing struct {
	Path    string  `json:"path"`
	Content *string `json:"content"`
	Base64  *string `json:"base64"`
	Append  bool    `json:"append"`
	New     bool    `json:"new"`
}

func (in *writing) bytes() ([]byte, error) {
	switch {
	case (in.Content == nil) == (in.Base64 == nil):
		return nil, errors.New("give content or base64")
	case in.Content != nil:
		return []byte(*in.Content), nil
	}
	b, err := base64.StdEncoding.Strict().DecodeString(*in.Base64)
	if err != nil {
		return nil, errors.New("base64 is malformed")
	}
	return b, nil
}

func write(w *work, a call.Args) ([]call.Content, error) {
	in, b, p, err := w.writing(a, create)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	was, err := p.writable()
	switch {
	case err != nil:
		return nil, about(in.Path, err)
	case was != nil && in.New:
		return nil, about(in.Path, fs.ErrExist)
	}
	added := len(b)
	var old []byte
	if was != nil && (in.Append || w.replaced != "") {
		if old, err = w.whole(p); err != nil && in.Append {
			return nil, about(in.Path, err)
		}
		if in.Append {
			b = slices.Concat(old, b)
		}
	}
	if err == nil {
		w.keep(change{Path: p.name, Made: was == nil, Left: strictjson.Digest(b)}, old)
	} else {
		w.cannotUndo("what was there is not kept: " + plain(err))
	}
	if err := w.replace(p, b, was); err != nil {
		return nil, about(in.Path, err)
	}
	done := "wrote"
	switch {
	case was != nil && in.Append:
		done = fmt.Sprintf("appended %d bytes to", added)
	case was != nil:
		done = fmt.Sprintf("replaced %d bytes in", was.Size())
	}
	return say("%s %s, now %d bytes\n", done, facts.Name(p.name), len(b)), nil
}

func (w *work) writing(a call.Args, h how) (in writing, b []byte, p *place, err error) {
	if err = decode(a, &in); err == nil {
		b, err = in.bytes()
	}
	if err == nil {
		p, err = w.find(in.Path, h|follow, true)
	}
	return in, b, p, err
}

// showWrite says what files.write would do.
func showWrite(w *work, a call.Args) ([]call.Content, error) {
	in, b, p, err := w.writing(a, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return show(b, "creates %s and its folder, %d bytes", facts.Name(in.Path), len(b)), nil
	}
	if err != nil {
		return nil, err
	}
	defer p.Close()
	was, err := p.writable()
	switch {
	case err != nil:
		return nil, about(in.Path, err)
	case was == nil:
		return show(b, "creates %s, %d bytes", facts.Name(p.name), len(b)), nil
	case in.Append:
		return show(b, "appends %d bytes to %s, which has %d", len(b), facts.Name(p.name), was.Size()), nil
	}
	head := fmt.Sprintf("replaces all %d bytes of %s by %d", was.Size(), facts.Name(p.name), len(b))
	old, err := w.whole(p)
	if err != nil || isBinary(old) || isBinary(b) {
		return show(b, "%s", head), nil
	}
	return say("%s\n%s", head, changed(p.name, string(old), string(b))), nil
}

// show says what is done, and shows the text that is written.
func show(b []byte, format string, a ...any) []call.Content {
	head := fmt.Sprintf(format, a...)
	if isBinary(b) {
		return say("%s; it is binary, sha256:%x", head, sha256.Sum256(b))
	}
	return say("%s\n%s", head, strings.Join(preview.Numbered("the content", string(b)), "\n"))
}

func isBinary(b []byte) bool { return binary(b[:min(len(b), sniffed)]) }

// changed returns a diff of all between the first and the last difference of two texts.
func changed(name, old, new string) string {
	if old == new {
		return "the content stays the same"
	}
	from, end := 0, 0
	for from < min(len(old), len(new)) && old[from] == new[from] {
		from++
	}
	for end < min(len(old), len(new))-from && old[len(old)-1-end] == new[len(new)-1-end] {
		end++
	}
	return diff(name, old, from, old[from:len(old)-end], new[from:len(new)-end])
}

func say(format string, a ...any) []call.Content {
	return []call.Content{call.Text(fmt.Sprintf(format, a...))}
}

// writable returns the file that a place would replace, or nil.
func (p *place) writable() (fs.FileInfo, error) {
	i, err := p.info()
	if errors.Is(err, fs.ErrNotExist) {
		if p.folder {
			return nil, errFolder
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return i, regular(i)
}

// whole reads a file of at most maxWritten bytes.
func (w *work) whole(p *place) ([]byte, error) {
	f, info, err := p.open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := w.covers(min(info.Size(), maxWritten)); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxWritten+1))
	if err == nil && len(b) > maxWritten {
		err = fmt.Errorf("it has more than %d bytes: this tool changes no larger files", maxWritten)
	}
	return b, err
}

// replace writes the file of a place whole or not at all. It never writes into the file that was there, so other names
// of it (hard links) keep the old content.
func (w *work) replace(p *place, b []byte, was fs.FileInfo) (err error) {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	temp := newFile + strings.ToLower(rand.Text()[:16])
	f, err := p.dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = p.dir.Remove(temp)
		}
	}()
	_, err = f.Write(b)
	if was != nil {
		err = errors.Join(err, f.Chmod(was.Mode().Perm()))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	w.acted = true
	if was == nil { // another that appeared meanwhile stays
		err = w.renameOnto(&place{dir: p.dir, base: temp, name: sibling(p.name, temp)}, p)
	} else {
		err = p.dir.Rename(temp, p.base)
	}
	if err == nil {
		w.written, w.replacedBy[p.name] = append(w.written, p.name), strictjson.Digest(b)
	}
	return err
}

// sibling returns the name of a file beside another.
func sibling(name, base string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i+1] + base
	}
	return base
}

// editing are the arguments of files.edit.
type editing struct {
	Path string `json:"path"`
	Old  string `json:"old"`
	New  string `json:"new"`
}

// edited finds the file of an edit and where its old text is.
func (w *work) edited(a call.Args) (in editing, p *place, old []byte, at int, err error) {
	if err = decode(a, &in); err != nil {
		return in, nil, nil, 0, err
	}
	if in.Old == "" || in.Old == in.New {
		return in, nil, nil, 0, errors.New("old must be some text of the file, and new another")
	}
	if p, err = w.find(in.Path, follow, true); err != nil {
		return in, nil, nil, 0, err
	}
	if old, err = w.whole(p); err == nil {
		n := 0
		at, n = occurrences(string(old), in.Old, w.hiding.In(string(old)))
		switch {
		case binary(old[:min(len(old), sniffed)]):
			err = errors.New("it is a binary file")
		case n == 0:
			err = errors.New("it does not contain the old text; read it again and copy the text exactly")
		case n > 1:
			err = errors.New("it contains the old text more than once: give more of its surroundings")
		}
	}
	if err != nil {
		p.Close()
		return in, nil, nil, 0, about(in.Path, err)
	}
	return in, p, old, at, nil
}

func edit(w *work, a call.Args) ([]call.Content, error) {
	in, p, old, at, err := w.edited(a)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	was, err := p.writable()
	if err == nil && was == nil {
		err = errChanged
	}
	if err == nil {
		b := []byte(string(old[:at]) + in.New + string(old[at+len(in.Old):]))
		w.keep(change{Path: p.name, Left: strictjson.Digest(b)}, old)
		err = w.replace(p, b, was)
	}
	if err != nil {
		return nil, about(in.Path, err)
	}
	w.read = append(w.read, p.name)
	return say("%s", diff(p.name, string(old), at, in.Old, in.New)), nil
}

// showEdit returns the diff of an edit.
func showEdit(w *work, a call.Args) ([]call.Content, error) {
	in, p, old, at, err := w.edited(a)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return say("%s", diff(p.name, string(old), at, in.Old, in.New)), nil
}

// The lines of a diff: those around the change, and the most that are shown.
const (
	around   = 3
	maxLines = 200
)

// diff returns the change of one place of a text as a unified diff. It looks for lines from the change outwards.
func diff(name, text string, at int, old, new string) string {
	start := strings.LastIndexByte(text[:at], '\n') + 1
	end := len(text)
	if i := strings.IndexByte(text[at+len(old):], '\n'); i >= 0 {
		end = at + len(old) + i
	}
	from := start
	for range around {
		if from > 0 {
			from = strings.LastIndexByte(text[:from-1], '\n') + 1
		}
	}
	before := firstLines(strings.TrimSuffix(text[from:start], "\n"), from < start)
	rest := strings.TrimPrefix(text[end:], "\n")
	until := 0
	for range around {
		if i := strings.IndexByte(rest[until:], '\n'); i >= 0 {
			until += i + 1
		} else {
			until = len(rest)
		}
	}
	after := firstLines(strings.TrimSuffix(rest[:until], "\n"), rest != "")
	gone := firstLines(text[start:end], true)
	come := firstLines(text[start:at]+new+text[at+len(old):end], true)
	line := strings.Count(text[:from], "\n") + 1
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n@@ -%d,%d +%d,%d @@\n", facts.Name(name), facts.Name(name), line,
		before.count+gone.count+after.count, line, before.count+come.count+after.count)
	for _, part := range []struct {
		mark string
		of   someLines
	}{{" ", before}, {"-", gone}, {"+", come}, {" ", after}} {
		for _, l := range part.of.first {
			b.WriteString(part.mark + display.Excerpt(l, maxFoundAt) + "\n")
		}
		if n := part.of.count - len(part.of.first); n > 0 {
			fmt.Fprintf(&b, "… %d more lines that begin with %q\n", n, part.mark)
		}
	}
	return b.String()
}

// someLines are the first lines of a text, and how many it has.
type someLines struct {
	first []string
	count int
}

// firstLines returns the first maxLines lines of a text; none if there is no text.
func firstLines(text string, there bool) (l someLines) {
	if !there {
		return l
	}
	l.count = strings.Count(text, "\n") + 1
	for line := range strings.SplitSeq(text, "\n") {
		if len(l.first) == maxLines {
			break
		}
		l.first = append(l.first, line)
	}
	return l
}

func move(w *work, a call.Args) ([]call.Content, error) {
	var in struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	if err := decode(a, &in); err != nil {
		return nil, err
	}
	from, err := w.find(in.From, 0, true)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	info, err := from.info()
	if err == nil && (from.base == "." || !info.IsDir() && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0) {
		err = errSpecial
	}
	if err != nil {
		return nil, about(in.From, err)
	}
	to, err := w.find(in.To, create, true)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	if to.base == "." {
		return nil, about(in.To, fs.ErrExist)
	}
	w.acted = true
	if err := w.renameOnto(from, to); err != nil {
		return nil, about(in.To, err)
	}
	w.written = append(w.written, from.name, to.name)
	if left, err := to.left(true); err != nil {
		w.cannotUndo(plain(err))
	} else {
		w.keep(change{Path: to.name, From: from.name, Left: left}, nil)
	}
	return say("moved %s to %s\n", facts.Name(from.name), facts.Name(to.name)), nil
}
