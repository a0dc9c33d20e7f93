package files

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/storage/safefile"
)

// Limits of reading.
const (
	maxScan    = 64 << 20 // bytes of one file that are passed over, and of all files of a search
	maxLine    = 16 << 10 // bytes of one line that are shown
	usualLines = 2000
	maxText    = 1 << 20 // bytes of text in one answer
	maxPicture = 3 << 20
	maxListed  = 2000
	maxVisited = 50_000 // entries that a list or a search looks at
	maxFound   = 200
	maxFoundAt = 300 // bytes of a line that was found
)

// sniffed is how much of a file tells whether it is text.
const sniffed = 8000

// binary reports whether the beginning of a file is not text: a NUL, or bytes that are no UTF-8.
func binary(head []byte) bool {
	if bytes.IndexByte(head, 0) >= 0 {
		return true
	}
	for n := 0; n < utf8.UTFMax && len(head) >= sniffed; n++ { // a character can be cut
		if utf8.Valid(head) {
			return false
		}
		head = head[:len(head)-1]
	}
	return !utf8.Valid(head)
}

func read(w *work, a call.Args) ([]call.Content, error) {
	var in struct {
		Path  string `json:"path"`
		Line  int    `json:"line"`
		Lines int    `json:"lines"`
	}
	if err := decode(a, &in); err != nil {
		return nil, err
	}
	if in.Line < 0 || in.Lines < 0 {
		return nil, errors.New("line and lines count from 1")
	}
	p, err := w.find(in.Path, follow, false)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	f, info, err := p.open()
	if err != nil {
		return nil, about(in.Path, err)
	}
	defer f.Close()
	w.read = append(w.read, p.name)
	r := bufio.NewReaderSize(io.LimitReader(f, maxScan), sniffed)
	head, _ := r.Peek(sniffed)
	if binary(head) {
		return picture(w, p.name, info.Size(), r)
	}
	if err := w.covers(min(info.Size(), maxText)); err != nil {
		return nil, err
	}
	text, next, err := lines(w, r, max(in.Line, 1), cmp.Or(min(in.Lines, 20_000), usualLines))
	if err != nil {
		return nil, about(in.Path, err)
	}
	out := []call.Content{call.Text(text)}
	if next > 0 {
		out = append(out, call.Text(fmt.Sprintf("\nwaldo: there is more (%d bytes in all): go on with line %d", info.Size(), next)))
	}
	return out, nil
}

// lines returns lines of a text, and the number of the next one; 0: absent.
func lines(w *work, r *bufio.Reader, first, count int) (text string, next int, err error) {
	var b strings.Builder
	for n := 1; ; n++ {
		if n%1000 == 0 && w.ctx.Err() != nil {
			return "", 0, w.ctx.Err()
		}
		if n >= first+count || b.Len() > maxText {
			if _, err := r.Peek(1); err != nil {
				return b.String(), 0, nil
			}
			return b.String(), n, nil
		}
		line, rest, err := cutLine(r, maxLine)
		if n >= first {
			b.WriteString(line)
			if rest > 0 {
				fmt.Fprintf(&b, " … (%d more bytes in this line)\n", rest)
			}
		}
		if err == io.EOF {
			if b.Len() == 0 && first > 1 {
				return "", 0, fmt.Errorf("it has %d lines", n-1)
			}
			return b.String(), 0, nil
		}
		if err != nil {
			return "", 0, err
		}
	}
}

// cutLine reads one line with its end, and keeps at most that many bytes of it.
func cutLine(r *bufio.Reader, most int) (line string, rest int, err error) {
	var b []byte
	for {
		part, err := r.ReadSlice('\n')
		room := min(len(part), max(0, most-len(b)))
		b, rest = append(b, part[:room]...), rest+len(part)-room
		if err != bufio.ErrBufferFull {
			if rest > 0 {
				b = bytes.ToValidUTF8(b, nil)
			}
			return string(b), rest, err
		}
	}
}

// pictures are the types that hosts show.
var pictures = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// picture answers with a picture, or says what a binary file is.
func picture(w *work, name string, size int64, r *bufio.Reader) ([]call.Content, error) {
	head, _ := r.Peek(512)
	kind, _, _ := strings.Cut(http.DetectContentType(head), ";")
	if !slices.Contains(pictures, kind) || size > maxPicture {
		return []call.Content{call.Text(fmt.Sprintf("%s is a binary file: %s, %d bytes. Its bytes are not shown.",
			facts.Name(name), kind, size))}, nil
	}
	if err := w.covers(size); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, size))
	if err != nil {
		return nil, about(name, err)
	}
	v, err := call.ArgsOf(map[string]any{"type": "image", "mimeType": kind, "data": base64.StdEncoding.EncodeToString(b)})
	if err != nil {
		return nil, err
	}
	return []call.Content{{Type: "image", Raw: v.Value()}}, nil
}

// kind names what a file is.
func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "folder"
	case m.IsRegular():
		return "file"
	case m&fs.ModeSymlink != 0:
		return "link"
	case m&fs.ModeNamedPipe != 0:
		return "pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

func stat(w *work, a call.Args) ([]call.Content, error) {
	var in struct {
		Path string `json:"path"`
	}
	if err := decode(a, &in); err != nil {
		return nil, err
	}
	p, err := w.find(in.Path, follow, false)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	info, err := p.info()
	if err != nil {
		return nil, about(in.Path, err)
	}
	return []call.Content{call.Text(fmt.Sprintf("%s: %s, %d bytes, changed %s, permissions %s\n", facts.Name(p.name),
		kind(info.Mode()), info.Size(), info.ModTime().UTC().Format("2006-01-02T15:04:05Z"), info.Mode().Perm()))}, nil
}

func list(w *work, a call.Args) ([]call.Content, error) {
	var in struct {
		Path  string `json:"path"`
		Depth int    `json:"depth"`
	}
	if err := decode(a, &in); err != nil {
		return nil, err
	}
	var b strings.Builder
	n := 0
	more, err := w.visit(cmp.Or(in.Path, "."), max(in.Depth, 1), func(name string, _ *os.Root, e fs.FileInfo) error {
		if n++; n > maxListed || b.Len() > maxText {
			return fs.ErrClosed
		}
		if e.IsDir() {
			fmt.Fprintf(&b, "%s/\n", facts.Name(name))
		} else {
			fmt.Fprintf(&b, "%s\t%s, %d bytes\n", facts.Name(name), kind(e.Mode()), e.Size())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if n == 0 {
		b.WriteString("the folder is empty\n")
	}
	if more {
		fmt.Fprintf(&b, "waldo: there are more than are listed here; list a folder below\n")
	}
	return []call.Content{call.Text(b.String())}, nil
}

// visit calls f for every entry below a folder, in order and down to a depth, with its path from the root of the jail.
// It follows no link, and leaves out what this tool hides or does not read. It reports whether it stopped before the
// end, as it does when f returns fs.ErrClosed.
func (w *work) visit(path string, depth int, f func(name string, dir *os.Root, e fs.FileInfo) error) (more bool, err error) {
	p, err := w.find(path, follow, false)
	if err != nil {
		return false, err
	}
	defer p.Close()
	info, err := p.info()
	if err != nil {
		return false, about(path, err)
	}
	if !info.IsDir() {
		return false, about(path, errNoDir)
	}
	top := p.dir
	if p.base != "." {
		if top, err = safefile.Step(p.dir, p.base); err != nil {
			return false, about(path, err)
		}
		defer top.Close()
	}
	left := maxVisited
	err = w.below(top, p.name, depth, &left, f)
	if errors.Is(err, fs.ErrClosed) {
		return true, nil
	}
	return left <= 0, about(path, err)
}

func (w *work) below(
	dir *os.Root, at string, depth int, left *int, f func(name string, dir *os.Root, e fs.FileInfo) error,
) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(*left)
	_ = d.Close()
	if err != nil && err != io.EOF {
		return err
	}
	slices.Sort(names)
	for _, n := range names {
		if *left--; *left <= 0 || w.ctx.Err() != nil {
			return w.ctx.Err()
		}
		name := path.Join(at, n)
		e, err := dir.Lstat(n)
		if err != nil || w.unseen(name) || protects(name, false) != nil {
			continue // it is gone, or it is not for agents
		}
		if err := f(name, dir, e); err != nil {
			return err
		}
		if !e.IsDir() || depth <= 1 || n == ".git" {
			continue
		}
		next, err := safefile.Step(dir, n)
		if err != nil {
			continue // it changed meanwhile, or waldo cannot read it
		}
		err = w.below(next, name, depth-1, left, f)
		_ = next.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func search(w *work, a call.Args) ([]call.Content, error) {
	var in struct {
		Query string `json:"query"`
		Regex bool   `json:"regex"`
		Glob  string `json:"glob"`
		Path  string `json:"path"`
	}
	if err := decode(a, &in); err != nil {
		return nil, err
	}
	find, err := ask(in.Query, in.Regex)
	if err != nil {
		return nil, err
	}
	if _, err := path.Match(in.Glob, ""); err != nil {
		return nil, errors.New("the glob is malformed; write it as in *.go")
	}
	var b strings.Builder
	found, bytes := 0, int64(0)
	more, err := w.visit(cmp.Or(in.Path, "."), maxParts, func(name string, dir *os.Root, e fs.FileInfo) error {
		if ok, _ := path.Match(in.Glob, path.Base(name)); !e.Mode().IsRegular() || in.Glob != "" && !ok ||
			strings.Contains("/"+name, "/.git/") {
			return nil
		}
		if bytes += e.Size(); bytes > maxScan || found >= maxFound {
			return fs.ErrClosed
		}
		p := &place{dir: dir, base: path.Base(name), name: name}
		f, _, err := p.open()
		if err != nil {
			return nil
		}
		defer f.Close()
		return matches(bufio.NewReaderSize(io.LimitReader(f, e.Size()), sniffed), func(n int, line string) error {
			if err := w.ctx.Err(); err != nil {
				return err
			}
			shown, ok := w.in(find, line)
			if !ok {
				return nil
			}
			if last := len(w.read) - 1; last < 0 || w.read[last] != name {
				w.read = append(w.read, name)
			}
			if found++; found > maxFound {
				return fs.ErrClosed
			}
			fmt.Fprintf(&b, "%s:%d:%s\n", facts.Name(name), n, strings.ToValidUTF8(shown, ""))
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	if found == 0 {
		b.WriteString("no line matches\n")
	}
	if more {
		b.WriteString("waldo: the search stopped at a limit; narrow it by path, glob or a longer query\n")
	}
	return []call.Content{call.Text(b.String())}, nil
}

// matches calls f for each line of a text file; of a binary file, for none.
func matches(r *bufio.Reader, f func(n int, line string) error) error {
	if head, _ := r.Peek(sniffed); binary(head) {
		return nil
	}
	for n := 1; ; n++ {
		line, _, err := cutLine(r, maxLine)
		if line != "" {
			if err := f(n, strings.TrimRight(line, "\r\n")); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}
