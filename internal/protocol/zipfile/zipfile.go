// Package zipfile opens ZIP archives of hostile origin. archive/zip reads the whole directory of an archive into
// memory, however many entries it has, and allocates for the number that its last record claims.
package zipfile

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Limits of an archive.
type Limits struct {
	Entries   int
	Directory int64 // bytes of the directory: its names, comments and extra fields too
}

// Errors of Open. A directory beyond its limits gets an error of its own.
var (
	ErrFormat = errors.New("not a zip file, or a damaged one")
	ErrLarge  = errors.New("zip files of 4 GiB and more are not read")
)

// The records of APPNOTE.TXT 4.3.12 to 4.3.16, of which each begins with its signature.
const (
	headerSignature, headerLen         = "PK\x01\x02", 46
	endSignature, endLen               = "PK\x05\x06", 22
	locatorSignature, locatorLen       = "PK\x06\x07", 20
	end64Signature, end64Len           = "PK\x06\x06", 56
	maxTail                            = 65 << 10 // archive/zip looks for the last record there
	maxSize                      int64 = 1<<32 - 1<<16
)

// Open returns an archive within its limits. It counts the directory itself, with a few KiB of memory, and gives
// archive/zip the archive up to the end of that directory, with a last record written here: no record of the file's
// own can name another directory than the one that was counted.
func Open(r io.ReaderAt, size int64, l Limits) (*zip.Reader, error) {
	if size > maxSize {
		return nil, ErrLarge
	}
	d, err := find(r, size)
	if err != nil {
		return nil, err
	}
	if d.entries > uint64(l.Entries) {
		return nil, fmt.Errorf("it has %d entries; at most %d are unpacked", d.entries, l.Entries)
	}
	length, err := measure(r, size, d, l)
	if err != nil {
		return nil, err
	}
	cut := d.start + length
	last := lastRecords(d.entries, length, d.start-d.base, cut)
	z, err := zip.NewReader(&spliced{r, cut, last}, cut+int64(len(last)))
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // callers judge the names
		return nil, ErrFormat
	}
	if uint64(len(z.File)) != d.entries {
		return nil, ErrFormat
	}
	return z, nil
}

// lastRecords returns the records that end an archive. All have the form of ZIP64, so that archive/zip looks for no
// other record of that form.
func lastRecords(entries uint64, length, offset, at int64) []byte {
	b := append([]byte(end64Signature), end64Len-12, 0, 0, 0, 0, 0, 0, 0, 45, 0, 45, 0)
	b = append(b, make([]byte, 8)...) // the numbers of its disks
	for _, v := range []uint64{entries, entries, uint64(length), uint64(offset)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = append(b, locatorSignature+"\x00\x00\x00\x00"...)
	b = binary.LittleEndian.AppendUint64(b, uint64(at))
	b = append(b, "\x01\x00\x00\x00"+endSignature+"\x00\x00\x00\x00"...)
	return append(append(b, bytes.Repeat([]byte{0xff}, 12)...), 0, 0) // see above; no comment
}

// directory is a directory as the last record of an archive states it.
type directory struct {
	base, start int64 // of the archive in its file, and of the directory
	entries     uint64
}

// find reads the last record of an archive, as archive/zip does.
func find(r io.ReaderAt, size int64) (directory, error) {
	tail := make([]byte, min(size, maxTail))
	if _, err := r.ReadAt(tail, size-int64(len(tail))); err != nil && err != io.EOF {
		return directory{}, err
	}
	i := bytes.LastIndex(tail[:max(0, len(tail)-endLen+len(endSignature))], []byte(endSignature))
	if i < 0 || int(binary.LittleEndian.Uint16(tail[i+20:])) > len(tail)-i-endLen {
		return directory{}, ErrFormat
	}
	b := tail[i:]
	end := size - int64(len(b))
	entries := uint64(binary.LittleEndian.Uint16(b[10:]))
	length, start := uint64(binary.LittleEndian.Uint32(b[12:])), uint64(binary.LittleEndian.Uint32(b[16:]))
	if entries == 1<<16-1 || length == 1<<16-1 || length == 1<<32-1 || start == 1<<32-1 {
		if at, ok := locate(r, end); ok {
			b := make([]byte, end64Len)
			if _, err := r.ReadAt(b, at); err != nil || string(b[:4]) != end64Signature {
				return directory{}, ErrFormat
			}
			end = at
			entries, length, start = binary.LittleEndian.Uint64(b[32:]), binary.LittleEndian.Uint64(b[40:]), binary.LittleEndian.Uint64(b[48:])
		}
	}
	if length > uint64(end) || start > uint64(end)-length {
		return directory{}, ErrFormat
	}
	d := directory{base: end - int64(length) - int64(start), start: end - int64(length), entries: entries}
	// Some archives have the right offset and a wrong length.
	if h := make([]byte, headerLen); d.base > 0 {
		if _, err := r.ReadAt(h, int64(start)); err == nil && string(h[:4]) == headerSignature {
			d.base, d.start = 0, int64(start)
		}
	}
	return d, nil
}

// locate returns the place of the ZIP64 record of an archive whose last record is at end.
func locate(r io.ReaderAt, end int64) (int64, bool) {
	b := make([]byte, locatorLen)
	if end < locatorLen {
		return 0, false
	}
	if _, err := r.ReadAt(b, end-locatorLen); err != nil || string(b[:4]) != locatorSignature {
		return 0, false
	}
	at := binary.LittleEndian.Uint64(b[8:])
	ok := binary.LittleEndian.Uint32(b[4:]) == 0 && binary.LittleEndian.Uint32(b[16:]) == 1 && at <= uint64(end)
	return int64(at), ok
}

// measure goes through the directory and returns its length in bytes. It ends with the first bytes that are not an
// entry, as archive/zip does.
func measure(r io.ReaderAt, size int64, d directory, l Limits) (length int64, err error) {
	in := bufio.NewReader(io.NewSectionReader(r, d.start, size-d.start))
	count := uint64(0)
	for {
		h, err := in.Peek(headerLen)
		if len(h) < headerLen || string(h[:4]) != headerSignature {
			if err != nil && err != io.EOF {
				return 0, err
			}
			break
		}
		n := headerLen + int(binary.LittleEndian.Uint16(h[28:])) + int(binary.LittleEndian.Uint16(h[30:])) +
			int(binary.LittleEndian.Uint16(h[32:]))
		if m, err := in.Discard(n); m < n {
			if err != io.EOF {
				return 0, err
			}
			break
		}
		length += int64(n)
		if count++; count > d.entries {
			break
		}
		if length > l.Directory {
			return 0, fmt.Errorf("its list of entries is longer than %d bytes", l.Directory)
		}
	}
	if count != d.entries {
		return 0, ErrFormat
	}
	return length, nil
}

// spliced is the first cut bytes of an archive, followed by its last record.
type spliced struct {
	r    io.ReaderAt
	cut  int64
	last []byte
}

func (s *spliced) ReadAt(p []byte, off int64) (n int, err error) {
	if off < s.cut {
		want := int(min(int64(len(p)), s.cut-off))
		if n, err = s.r.ReadAt(p[:want], off); n < want {
			return n, err
		}
	}
	if n < len(p) {
		if at := off + int64(n) - s.cut; at < int64(len(s.last)) {
			n += copy(p[n:], s.last[at:])
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
