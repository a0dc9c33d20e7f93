package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"waldo/internal/storage/safefile"
)

// file is the log's view of a segment; tests substitute failing ones.
type file interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Sync() error
	Stat() (fs.FileInfo, error)
	Close() error
}

// segment is a file that syncs its data alone.
type segment struct{ *os.File }

func (s segment) Sync() error { return dataSync(s.File) }

const suffix = ".jsonl"

// segmentName names a segment by the first record in it: 16 digits, so that names sort.
func segmentName(first uint64) string { return fmt.Sprintf("%016d%s", first, suffix) }

// firstOf returns the record that a segment's name says it starts with.
func firstOf(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	return n, err == nil && n > 0
}

// segments returns the names of the segments of a log, oldest first.
func segments(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if _, ok := firstOf(e.Name()); ok {
			names = append(names, e.Name())
		}
	}
	sort.Strings(names)
	return names, nil
}

// Closed is a segment that gets no more records.
type Closed struct {
	Name           string
	First, Through uint64 // its records
}

// ClosedSegments returns the closed segments of a log, oldest first.
func ClosedSegments(dir string) (out []Closed, err error) {
	names, err := segments(dir)
	for i := 0; i+1 < len(names); i++ {
		first, _ := firstOf(names[i])
		next, _ := firstOf(names[i+1])
		out = append(out, Closed{names[i], first, next - 1})
	}
	return out, err
}

// SegmentName returns the name of the segment that starts with a record.
func SegmentName(first uint64) string { return segmentName(first) }

// IsSegment reports whether a file's name is that of a segment.
func IsSegment(name string) bool {
	_, ok := firstOf(name)
	return ok
}

// ReadSegment calls fn for each record of a segment, given as its name and its bytes. A line that is not the next whole
// record is an error.
func ReadSegment(name string, b []byte, fn func(Record) error) error {
	next, _ := firstOf(name)
	return lines(bytes.NewReader(b), 0, int64(len(b)), func(ln line) error {
		r, err := parseRecord(ln.text)
		if err == nil && (!ln.whole || r.Seq != next) {
			err = errLayout
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", next, err)
		}
		next++
		return fn(r)
	})
}

func openSegment(dir, name string, flags int) (file, error) {
	f, err := safefile.Open(filepath.Join(dir, name), flags)
	if err != nil {
		return nil, err
	}
	return segment{f}, nil
}

// lock waits for the lock of the log for at most the given time.
func lock(f *os.File, shared bool, wait time.Duration) error {
	for pause, deadline := 50*time.Microsecond, time.Now().Add(wait); ; pause = min(2*pause, 20*time.Millisecond) {
		ok, err := safefile.TryLock(f, shared)
		if err != nil {
			return fmt.Errorf("audit: lock: %w", err)
		}
		if ok {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: another process has held it for %v", ErrLocked, wait)
		}
		time.Sleep(pause)
	}
}

// A line is one line of a segment and where it starts. Whole means that a newline ends it within MaxLine; longer
// lines are cut.
type line struct {
	text  []byte // valid until the next line is read; without the newline
	start int64
	size  int64 // with the newline
	whole bool
}

// lines calls fn for each line of r from byte start to byte end.
func lines(r io.ReaderAt, start, end int64, fn func(line) error) error {
	if start >= end { // as with each append by a single writer
		return nil
	}
	br := bufio.NewReaderSize(io.NewSectionReader(r, start, end-start), int(min(MaxLine, end-start+1)))
	for start < end {
		text, err := br.ReadSlice('\n')
		l := line{start: start, size: int64(len(text)), text: text, whole: err == nil}
		if errors.Is(err, bufio.ErrBufferFull) {
			l.text = append([]byte(nil), text[:64]...)
			n, err := skipLine(br)
			if err != nil {
				return err
			}
			l.size += n
		} else if err != nil && err != io.EOF {
			return err
		}
		if l.whole {
			l.text = text[:len(text)-1]
		}
		if l.size == 0 {
			return io.ErrUnexpectedEOF // shorter than it was a moment ago
		}
		if err := fn(l); err != nil {
			return err
		}
		start += l.size
	}
	return nil
}

// skipLine reads to the end of a line that is too long and returns how many bytes that took.
func skipLine(br *bufio.Reader) (int64, error) {
	var n int64
	for {
		b, err := br.ReadSlice('\n')
		n += int64(len(b))
		if err == nil || err == io.EOF {
			return n, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return n, err
		}
	}
}

// firstRecord reads the first record of a segment; false if the segment is empty.
func firstRecord(dir, name string) (r Record, ok bool, err error) {
	f, err := openSegment(dir, name, os.O_RDONLY)
	if err != nil {
		return r, false, fmt.Errorf("audit: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return r, false, fmt.Errorf("audit: %w", err)
	}
	err = lines(f, 0, min(info.Size(), MaxLine), func(ln line) error {
		var bad error
		r, bad = parseRecord(ln.text)
		ok = bad == nil && ln.whole
		return errStop
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return r, ok, err
}

// errStop ends the reading of lines early.
var errStop = errors.New("stop")
