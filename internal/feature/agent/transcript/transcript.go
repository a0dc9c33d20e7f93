// Package transcript keeps the conversation of each agent in the state directory: a file of JSON lines, of which each
// is on the disk before the step that follows it. One process at a time has a transcript open.
package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/model/id"
	"waldo/internal/storage/safefile"
)

// Dir is the folder of the transcripts.
type Dir string

// File is one open transcript.
type File struct {
	f    *os.File
	size int64
}

// ErrBusy: another process has the transcript open.
var ErrBusy = errors.New("another waldo runs this agent")

// ErrNone: the transcript is unknown.
var ErrNone = errors.New("unknown agent")

// MaxSize is how many bytes a transcript has at most.
const MaxSize = 256 << 20

const suffix = ".jsonl"

func (d Dir) path(name string) (string, error) {
	if !id.Is(id.Session, name) {
		return "", fmt.Errorf("%q is not the id of an agent", name)
	}
	return filepath.Join(string(d), name+suffix), nil
}

// Create begins a transcript under the id of a session. An empty one is of an agent that was killed at its beginning.
func (d Dir) Create(name string) (*File, error) {
	path, err := d.path(name)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|safefile.NoFollow, 0o600)
	if err != nil {
		return nil, err
	}
	err = errors.Join(lock(f), safefile.SyncDir(string(d)))
	if about, serr := f.Stat(); err == nil && (serr != nil || about.Size() > 0) {
		err = errors.Join(fs.ErrExist, serr)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &File{f: f}, nil
}

// Open returns a transcript and its lines. It removes a last line that a crash has cut.
func (d Dir) Open(name string) (*File, [][]byte, error) {
	path, err := d.path(name)
	if err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|safefile.NoFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w %s", ErrNone, name)
	}
	if err != nil {
		return nil, nil, err
	}
	lines, whole := [][]byte(nil), int64(0)
	if err = lock(f); err == nil {
		lines, whole, err = read(f)
	}
	if err == nil {
		err = f.Truncate(whole)
	}
	if err == nil && whole == 0 {
		err = fmt.Errorf("%w %s", ErrNone, name)
	}
	if err == nil {
		_, err = f.Seek(whole, io.SeekStart)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return &File{f: f, size: whole}, lines, nil
}

func lock(f *os.File) error {
	if free, err := safefile.TryLock(f, false); err != nil || !free {
		return errors.Join(ErrBusy, err)
	}
	return nil
}

// read returns the whole lines of a transcript, and how many bytes they are.
func read(f *os.File) (lines [][]byte, whole int64, err error) {
	b, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, 0, err
	}
	if len(b) > MaxSize {
		return nil, 0, fmt.Errorf("the transcript is longer than %d bytes", MaxSize)
	}
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	for line := range bytes.Lines(b) {
		lines = append(lines, line[:len(line)-1])
	}
	return lines, int64(len(b)), nil
}

// Append adds a line and returns when it is on the disk. The line holds no line end.
func (f *File) Append(line []byte) error {
	if bytes.IndexByte(line, '\n') >= 0 {
		return errors.New("a line of a transcript holds a line end")
	}
	if f.size+int64(len(line))+1 > MaxSize {
		return fmt.Errorf("the transcript would be longer than %d bytes", MaxSize)
	}
	n, err := f.f.Write(append(slices.Clip(line), '\n'))
	f.size += int64(n)
	return errors.Join(err, f.f.Sync())
}

// Close gives the transcript up.
func (f *File) Close() error { return f.f.Close() }

// Names returns the ids of all agents, oldest first.
func (d Dir) Names() ([]string, error) {
	all, err := os.ReadDir(string(d))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []string
	for _, e := range all {
		if name, ok := strings.CutSuffix(e.Name(), suffix); ok && id.Is(id.Session, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}
