package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"waldo/internal/sandbox/engine/quickjs"
)

// The folders of the workspace, as the program names them. Nothing else of this machine has a name for it.
var folders = []string{"input", "output", "tmp"}

// Bounds on one request about files.
const (
	maxFile = 64 << 20 // bytes of one file that is read at once
	maxList = 10_000   // names of one folder
)

// files are the workspace of one program. Each folder is an os.Root: no name and no link leads out of it.
type files struct {
	roots map[string]*os.Root
	left  int64 // bytes that may still be written; counted where no file system bounds them
}

func openFiles(workspace string, most int64) (*files, error) {
	f := &files{roots: map[string]*os.Root{}, left: most}
	for _, name := range folders {
		r, err := os.OpenRoot(path.Join(workspace, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		f.roots[name] = r
	}
	return f, nil
}

// at returns the folder that a path is in, and the name there.
func (f *files) at(name string, write bool) (*os.Root, string, error) {
	if !path.IsAbs(name) {
		name = path.Join("/workspace", name)
	}
	rest, ok := strings.CutPrefix(path.Clean(name), "/workspace/")
	top, below, _ := strings.Cut(rest, "/")
	if top == ".workspace" { // the old name
		top = "output"
	}
	r := f.roots[top]
	if !ok || r == nil {
		return nil, "", fmt.Errorf("ENOENT: %s is not in /workspace/input, output or tmp", name)
	}
	if write && top == "input" {
		return nil, "", fmt.Errorf("EROFS: %s: the input is read-only", name)
	}
	if below == "" {
		below = "."
	}
	return r, below, nil
}

// fault is an error as the program reads it: a code, and no path of this machine.
func fault(name string, err error) quickjs.Value {
	if err == nil {
		return quickjs.Text("")
	}
	var own *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return quickjs.Text("!ENOENT: no such file or directory, '" + name + "'")
	case errors.Is(err, fs.ErrExist):
		return quickjs.Text("!EEXIST: file exists, '" + name + "'")
	case errors.Is(err, fs.ErrPermission):
		return quickjs.Text("!EACCES: permission denied, '" + name + "'")
	case errors.As(err, &own):
		return quickjs.Text("!EIO: " + own.Err.Error() + ", '" + name + "'")
	}
	return quickjs.Text("!" + err.Error())
}

func (f *files) read(name string) ([]byte, error) {
	r, below, err := f.at(name, false)
	if err != nil {
		return nil, err
	}
	file, err := r.Open(below)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("EISDIR: illegal operation on a directory, '%s'", name))
	}
	b, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if len(b) > maxFile {
		return nil, fmt.Errorf("EFBIG: '%s' has more than %d bytes", name, maxFile)
	}
	return b, err
}

func (f *files) write(name string, data []byte, more bool) error {
	r, below, err := f.at(name, true)
	if err != nil {
		return err
	}
	if f.left -= int64(len(data)); f.left < 0 {
		return fmt.Errorf("ENOSPC: no space left for '%s'", name)
	}
	flag := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if more {
		flag = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	}
	file, err := r.OpenFile(below, flag, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}

func (f *files) mkdir(name string) error {
	r, below, err := f.at(name, true)
	if err != nil || below == "." {
		return err
	}
	return r.MkdirAll(below, 0o755)
}

func (f *files) remove(name string) error {
	r, below, err := f.at(name, true)
	if err != nil {
		return err
	}
	return r.Remove(below)
}

// stat returns "dir", "file" or nothing.
func (f *files) stat(name string) string {
	r, below, err := f.at(name, false)
	if err != nil {
		return ""
	}
	st, err := r.Stat(below)
	switch {
	case err != nil:
		return ""
	case st.IsDir():
		return "dir"
	}
	return "file"
}

// list returns the names in a folder as JSON, each with whether it is a folder.
func (f *files) list(name string) (string, error) {
	r, below, err := f.at(name, false)
	if err != nil {
		return "", err
	}
	dir, err := r.Open(below)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(maxList)
	if err != nil && err != io.EOF {
		return "", err
	}
	all := make([][2]any, 0, len(entries))
	for _, e := range entries {
		all = append(all, [2]any{e.Name(), e.IsDir()})
	}
	b, err := json.Marshal(all)
	return string(b), err
}
