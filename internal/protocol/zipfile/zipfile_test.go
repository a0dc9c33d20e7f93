package zipfile

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var limits = Limits{Entries: 100, Directory: 20_000}

// pack makes an archive of n files.
func pack(t testing.TB, n int, comment string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	err := w.SetComment(comment)
	for i := range n {
		// not compressed: a compressor for each of 70,000 entries takes half a minute
		f, e := w.CreateHeader(&zip.FileHeader{Name: fmt.Sprintf("folder/file-%d", i), Method: zip.Store})
		if e == nil {
			_, e = fmt.Fprintf(f, "content %d", i)
		}
		err = errors.Join(err, e)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// end returns the last record of an archive without a comment, to be changed in place.
func end(b []byte) []byte { return b[len(b)-endLen:] }

func names(z *zip.Reader) (all []string) {
	for _, f := range z.File {
		all = append(all, f.Name)
	}
	return all
}

func changed(b []byte, change func(end []byte)) []byte {
	b = slices.Clone(b)
	change(end(b))
	return b
}

// TestOpen: honest archives open with their content, with bytes before them and a comment after them, too.
func TestOpen(t *testing.T) {
	script := "#!/bin/sh\nexit 1\n"
	for name, b := range map[string][]byte{
		"plain":          pack(t, 100, ""),
		"empty":          pack(t, 0, ""),
		"comment":        pack(t, 3, strings.Repeat("c", 60_000)),
		"script before":  append([]byte(script), pack(t, 3, "")...),
		"bytes after it": append(pack(t, 3, ""), 0, 0, 0),
		"offset right, length not": changed(pack(t, 3, ""), func(end []byte) {
			binary.LittleEndian.PutUint32(end[12:], binary.LittleEndian.Uint32(end[12:])-1)
		}),
	} {
		want, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal("control:", name, err)
		}
		got, err := Open(bytes.NewReader(b), int64(len(b)), limits)
		if err != nil || !slices.Equal(names(got), names(want)) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, f := range got.File {
			r, err := f.Open()
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if b, err := io.ReadAll(r); err != nil || string(b) != fmt.Sprintf("content %d", i) {
				t.Errorf("%s: %q %v", name, b, err)
			}
		}
	}
	large := pack(t, 70_000, "")
	if z, err := Open(bytes.NewReader(large), int64(len(large)), Limits{Entries: 70_000, Directory: 8 << 20}); err != nil || len(z.File) != 70_000 {
		t.Errorf("ZIP64: %v", err)
	}
}

// TestBounds: an archive beyond a limit is refused, also with a false last record. archive/zip reads each of them.
func TestBounds(t *testing.T) {
	count := func(b []byte, n uint16) []byte {
		return changed(b, func(end []byte) { binary.LittleEndian.PutUint16(end[10:], n) })
	}
	many := pack(t, 70_000, "")
	hidden := pack(t, 1<<16+50, "") // archive/zip compares 16 bits of the count
	hidden = count(append(hidden[:len(hidden)-endLen-locatorLen-end64Len], end(hidden)...), 50)
	at := bytes.Index(hidden, []byte(headerSignature))
	binary.LittleEndian.PutUint32(end(hidden)[12:], uint32(len(hidden)-endLen-at))
	binary.LittleEndian.PutUint32(end(hidden)[16:], uint32(at))
	for _, c := range []struct {
		name, want string
		b          []byte
	}{
		{"one too many", "it has 101 entries; at most 100 are unpacked", pack(t, 101, "")},
		{"ZIP64", "it has 70000 entries; at most 100 are unpacked", many},
		{"a count of 16 bits", ErrFormat.Error(), hidden},
		{"a long directory", "its list of entries is longer than 20000 bytes", long(t)},
	} {
		if _, err := zip.NewReader(bytes.NewReader(c.b), int64(len(c.b))); err != nil {
			t.Errorf("control: %s: %v", c.name, err)
		}
		if _, err := Open(bytes.NewReader(c.b), int64(len(c.b)), limits); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// long returns an archive of few entries with long names.
func long(t *testing.T) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := range 2 {
		if _, err := w.Create(strings.Repeat("n", 15_000) + fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestForgedRecords: an archive with a second last record, in the place where archive/zip looks for one of ZIP64, has
// the entries that were counted.
func TestForgedRecords(t *testing.T) {
	many := pack(t, 300, "")
	forged := binary.LittleEndian.AppendUint64([]byte(locatorSignature+"\x00\x00\x00\x00"), uint64(len(many)))
	forged = append(forged, 1, 0, 0, 0)
	record := append([]byte(end64Signature), make([]byte, end64Len-4)...)
	at := bytes.Index(many, []byte(headerSignature))
	binary.LittleEndian.PutUint64(record[32:], 300)
	binary.LittleEndian.PutUint64(record[40:], uint64(len(many)-at))
	binary.LittleEndian.PutUint64(record[48:], uint64(at))
	b := append(slices.Clone(many), record...)
	start := len(b)
	h := append([]byte(headerSignature), make([]byte, headerLen-4)...)
	binary.LittleEndian.PutUint16(h[28:], 1)
	binary.LittleEndian.PutUint16(h[32:], 1<<16-1-headerLen-1) // the length of all is the one that means ZIP64
	comment := append(make([]byte, 1<<16-1-headerLen-1-locatorLen), forged...)
	b = append(append(append(b, h...), 'x'), comment...)
	last := append([]byte(endSignature), make([]byte, endLen-4)...)
	binary.LittleEndian.PutUint16(last[8:], 1)
	binary.LittleEndian.PutUint16(last[10:], 1)
	binary.LittleEndian.PutUint32(last[12:], 1<<16-1)
	binary.LittleEndian.PutUint32(last[16:], uint32(start))
	b = append(b, last...)
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil || len(z.File) < 300 {
		t.Fatalf("control: %v", err)
	}
	if _, err := Open(bytes.NewReader(b), int64(len(b)), limits); err == nil || err.Error() != "it has 300 entries; at most 100 are unpacked" {
		t.Error(err)
	}
}

// exchanged is an archive whose last bytes become others once they were read.
type exchanged struct {
	now, then []byte
	read      bool
}

func (e *exchanged) ReadAt(p []byte, off int64) (int, error) {
	b := e.now
	if e.read {
		b = e.then
	}
	e.read = e.read || off+int64(len(p)) >= int64(len(b))
	return bytes.NewReader(b).ReadAt(p, off)
}

// TestOneRecord: an archive has the entries that were judged, also where its last record is exchanged after that.
func TestOneRecord(t *testing.T) {
	many := pack(t, 300, "")
	few := changed(many, func(end []byte) {
		from := bytes.LastIndex(many, []byte(headerSignature))
		binary.LittleEndian.PutUint16(end[10:], 1)
		binary.LittleEndian.PutUint32(end[12:], uint32(len(many)-endLen-from))
		binary.LittleEndian.PutUint32(end[16:], uint32(from))
	})
	if z, err := zip.NewReader(&exchanged{now: few, then: many, read: true}, int64(len(few))); err != nil || len(z.File) != 300 {
		t.Fatal("control:", err)
	}
	z, err := Open(&exchanged{now: few, then: many}, int64(len(few)), limits)
	if err != nil || !slices.Equal(names(z), []string{"folder/file-299"}) {
		t.Error(err)
	}
}

// sparse is an archive of many bytes without a content.
type sparse struct {
	size int64
	end  []byte
}

func (s sparse) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	for i := range p {
		if at := off + int64(i) - (s.size - int64(len(s.end))); at >= 0 && at < int64(len(s.end)) {
			p[i] = s.end[at]
		}
	}
	return len(p), nil
}

// TestMemory: a refusal allocates less than a mebibyte.
func TestMemory(t *testing.T) {
	many := pack(t, 60_000, "")
	claims := lastRecords(100_000_000, 0, 0, 4<<30-1<<17)
	for _, c := range []struct {
		name, want string
		r          io.ReaderAt
		size       int64
	}{
		{"many", "it has 60000 entries; at most 100 are unpacked", bytes.NewReader(many), int64(len(many))},
		{"a large file that claims many", "it has 100000000 entries; at most 100 are unpacked", sparse{4<<30 - 1<<17 + int64(len(claims)), claims}, 4<<30 - 1<<17 + int64(len(claims))},
		{"a larger file", ErrLarge.Error(), sparse{1 << 40, claims}, 1 << 40},
	} {
		if got := allocated(func() {
			if _, err := Open(c.r, c.size, limits); err == nil || err.Error() != c.want {
				t.Errorf("%s: %v", c.name, err)
			}
		}); got > 1<<20 {
			t.Errorf("%s: %d bytes", c.name, got)
		}
	}
	if got := allocated(func() { _, _ = zip.NewReader(bytes.NewReader(many), int64(len(many))) }); got < 10<<20 {
		t.Errorf("control: %d bytes", got)
	}
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// FuzzOpen: an archive that opens is within its limits, and has the entries that archive/zip finds, if that opens it.
func FuzzOpen(f *testing.F) {
	f.Add(pack(f, 3, ""))
	f.Add(pack(f, 3, "PK\x05\x06 a comment"))
	f.Add(append([]byte("before"), pack(f, 101, "")...))
	f.Add(append(append([]byte("PK"), headerSignature...), lastRecords(1, 46, 2, 48)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		z, err := Open(bytes.NewReader(b), int64(len(b)), limits)
		if err != nil {
			return
		}
		if len(z.File) > limits.Entries {
			t.Fatalf("%d entries", len(z.File))
		}
		length := 0
		for _, f := range z.File {
			length += headerLen + len(f.Name) + len(f.Extra) + len(f.Comment)
		}
		if int64(length) > limits.Directory {
			t.Fatalf("%d bytes", length)
		}
		if other, err := zip.NewReader(bytes.NewReader(b), int64(len(b))); err == nil && !slices.Equal(names(z), names(other)) {
			t.Errorf("%q, and archive/zip finds %q", names(z), names(other))
		}
	})
}
