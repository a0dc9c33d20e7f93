package cpython

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"time"

	wasi "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/sys"
)

// Bridge is the program's way to waldo, in frames of a line each.
type Bridge interface {
	// Frame waits for the next frame until the patience is over; a negative one is endless. Open is false when waldo is
	// gone.
	Frame(patience time.Duration) (text []byte, open bool)
	Send(frame []byte)
}

// maxFrame bounds a line of a program, in bytes, as waldo's end does.
const maxFrame = 16 << 20

// devices is /dev: the bridge, and the environment of the job.
type devices struct {
	wasi.UnimplementedFS
	late   *late
	bridge Bridge
}

// OpenFile satisfies wasi.FS.
func (d devices) OpenFile(name string, _ wasi.Oflag, _ fs.FileMode) (wasi.File, wasi.Errno) {
	switch {
	case isTop(name):
		return &top{late: &late{}}, 0
	case name == "bridge" && d.bridge != nil:
		return &bridgeFile{bridge: d.bridge}, 0
	case name == "clock":
		return clock{}, 0
	case name == "environment":
		text, err := json.Marshal(d.late.job.Env)
		if err != nil {
			return nil, wasi.EIO
		}
		return &textFile{Reader: bytes.NewReader(text)}, 0
	}
	return nil, wasi.ENOENT
}

// Stat satisfies wasi.FS.
func (d devices) Stat(name string) (sys.Stat_t, wasi.Errno) {
	if isTop(name) {
		return sys.Stat_t{Mode: fs.ModeDir | 0o555, Nlink: 1}, 0
	}
	f, errno := d.OpenFile(name, 0, 0)
	if errno != 0 {
		return sys.Stat_t{}, errno
	}
	return f.Stat()
}

// Lstat satisfies wasi.FS.
func (d devices) Lstat(name string) (sys.Stat_t, wasi.Errno) { return d.Stat(name) }

// textFile is a file that is only read, in memory.
type textFile struct {
	wasi.UnimplementedFile
	*bytes.Reader
}

func (t *textFile) IsDir() (bool, wasi.Errno)       { return false, 0 }
func (t *textFile) Read(b []byte) (int, wasi.Errno) { return end(t.Reader.Read(b)) }
func (t *textFile) Stat() (sys.Stat_t, wasi.Errno) {
	return sys.Stat_t{Mode: 0o444, Size: t.Size(), Nlink: 1}, 0
}
func (t *textFile) Seek(o offset, w int) (int64, wasi.Errno) {
	n, err := t.Reader.Seek(o, w)
	return n, reason(err)
}

// patience is an offset as a time to wait.
func patience(microseconds int64) time.Duration {
	return time.Duration(min(max(microseconds, 0), 1<<50)) * time.Microsecond
}

// clock is a file for waiting: a read at an offset waits so many microseconds.
type clock struct{ wasi.UnimplementedFile }

func (clock) IsDir() (bool, wasi.Errno)      { return false, 0 }
func (clock) Stat() (sys.Stat_t, wasi.Errno) { return sys.Stat_t{Mode: 0o600, Nlink: 1, Ino: 1}, 0 }

// Pread satisfies wasi.File.
func (clock) Pread(_ []byte, microseconds int64) (int, wasi.Errno) {
	time.Sleep(patience(microseconds))
	return 0, 0
}

// bridgeFile is the bridge as a file. A read waits for a frame; a read at an offset waits so many microseconds at most,
// and returns a byte if there is one: WASI's poll knows no such files.
type bridgeFile struct {
	wasi.UnimplementedFile
	bridge   Bridge
	in, out  []byte
	finished bool
}

func (f *bridgeFile) IsDir() (bool, wasi.Errno)      { return false, 0 }
func (f *bridgeFile) Stat() (sys.Stat_t, wasi.Errno) { return sys.Stat_t{Mode: 0o600, Nlink: 1}, 0 }

// take gets the next frame, if it comes in time.
func (f *bridgeFile) take(patience time.Duration) {
	if len(f.in) > 0 || f.finished {
		return
	}
	frame, open := f.bridge.Frame(patience)
	if f.finished = !open; frame != nil {
		f.in = append(bytes.Clone(frame), '\n')
	}
}

// Read satisfies wasi.File.
func (f *bridgeFile) Read(b []byte) (int, wasi.Errno) {
	f.take(-1)
	n := copy(b, f.in)
	f.in = f.in[n:]
	return n, 0
}

// Pread satisfies wasi.File.
func (f *bridgeFile) Pread(b []byte, microseconds int64) (int, wasi.Errno) {
	f.take(patience(microseconds))
	if len(b) == 0 || len(f.in) == 0 && !f.finished {
		return 0, 0
	}
	b[0] = 1
	return 1, 0
}

// Write satisfies wasi.File.
func (f *bridgeFile) Write(b []byte) (int, wasi.Errno) {
	if len(f.out)+len(b) > maxFrame {
		return 0, wasi.EIO
	}
	f.out = append(f.out, b...)
	for {
		line, rest, ok := bytes.Cut(f.out, []byte("\n"))
		if !ok {
			return len(b), 0
		}
		f.bridge.Send(append(bytes.Clone(line), '\n'))
		f.out = bytes.Clone(rest)
	}
}
