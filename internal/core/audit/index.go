package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"

	"waldo/internal/storage/safefile"
)

// The index has a file for each segment, with a row for each record: where it is, when it was written, and what
// a Selection asks for. Rows are columns, so that a query reads what it needs. BENCHMARKS.md has the times.
//
// It is never trusted. A file is used only for a segment of which every record has its row, and which still has its
// last record, by hash. A record is read from the log, and compared with the query, before it is shown.

// The texts of a row: numbers of words of its segment.
const (
	textKind = iota
	textEffect
	textPrincipal
	textBy
	textCapability
	textAgent
	textChannel
	textHosts // of all attempts, in lines
	textDenied
	textCategory
	texts32
)

// The numbers of a row, before its texts.
const (
	cellStart  = iota // of its line
	cellAt            // milliseconds
	cellOrigin        // the decision of its call, by number; 0: it is one itself, or there is none before it
	cellIDs           // five hashes
	cells64    = cellIDs + 5
	idCall     = 1 // among the five
)

const columns = cells64 + texts32

// width returns the bytes of a cell.
func width(column int) int {
	if column < cells64 {
		return 8
	}
	return 4
}

// cells are those of one column, as the file has them.
type cells struct {
	b    []byte
	wide bool
}

func (c cells) at(row int) uint64 {
	if c.wide {
		return binary.LittleEndian.Uint64(c.b[8*row:])
	}
	return uint64(binary.LittleEndian.Uint32(c.b[4*row:]))
}

// indexed is the index of one segment, read from its file as needed, or made from the segment.
type indexed struct {
	indexHead
	dir   string // of the log
	read  bool   // it is read from its file; else the rows are in memory
	data  int64  // where the columns begin in the file
	seqs  []uint64
	words []string
	known map[string]uint32
	cols  [columns][]byte // as in the file
	ok    [][]bool        // which words fit the tests of one query
	free  *[][]byte       // columns that one query has used; nil: none
	pages []byte          // the table of pages of ids
}

// indexHead is the first line of an index's file.
type indexHead struct {
	V     int             `json:"v"`
	First uint64          `json:"first"` // record; its name says so
	N     int             `json:"n"`
	End   int64           `json:"end"`   // of the segment, as far as it was read
	Last  string          `json:"last"`  // hash of the last record
	Time  int64           `json:"time"`  // of the segment's last change
	Words int64           `json:"words"` // bytes
	Sums  [columns]uint32 `json:"sums"`
	Sum   uint32          `json:"sum"` // of the words
	IDs   int64           `json:"ids"` // bytes of the pages of ids
	Pages uint32          `json:"pages"`
}

const indexVersion = 4

// The file ends with the ids of its rows: each as a hash with its row, in order, in pages, and a table of them. An
// entry of the table has the first hash of its page, and the checksum.
const (
	idSize   = 12
	pageSize = 341 * idSize
)

// errStale is returned where an index does not fit the log.
type errStale struct{ file string }

func (e errStale) Error() string { return "audit: " + e.file + " does not fit the log" }

func (x *indexed) stale() error { return errStale{x.file()} }

func newIndexed(dir, segment string) *indexed {
	first, _ := firstOf(segment)
	return &indexed{dir: dir, indexHead: indexHead{First: first}, known: map[string]uint32{}}
}

func (x *indexed) segment() string { return segmentName(x.First) }

func (x *indexed) file() string {
	return filepath.Join(indexDir(x.dir), strings.TrimSuffix(x.segment(), suffix)+".idx")
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// indexDir is the folder of the index of a log.
func indexDir(dir string) string { return dir + "-index" }

// hashID returns a hash of an id (FNV-1a); 0: it is empty.
func hashID(s string) uint64 {
	if s == "" {
		return 0
	}
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return max(h, 1)
}

// open reads the head of the file; false if there is none that can be used for a segment of a size.
func (x *indexed) open(size int64) bool {
	f, err := safefile.Open(x.file(), os.O_RDONLY)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	b := make([]byte, min(info.Size(), 4096))
	if _, err := io.ReadFull(f, b); err != nil {
		return false
	}
	line, _, found := bytes.Cut(b, []byte("\n"))
	h := indexHead{}
	if !found || json.Unmarshal(line, &h) != nil || h.V != indexVersion || h.First != x.First || h.End > size ||
		h.N <= 0 || h.N > math.MaxInt32 || h.Words < 0 || h.IDs < 0 || h.IDs > int64(5*idSize*h.N) {
		return false
	}
	segment, err := os.Lstat(filepath.Join(x.dir, x.segment()))
	if err != nil || h.End == size && h.Time != segment.ModTime().UnixNano() {
		return false
	}
	x.indexHead, x.read, x.data = h, true, int64(len(line))+1
	if info.Size() != x.begin(columns)+x.Words+x.IDs+x.table() {
		return false
	}
	r, err := x.record(x.N - 1)
	return err == nil && r.Hash == x.Last
}

// begin returns where a column begins in the file.
func (x *indexed) begin(column int) int64 {
	return x.data + int64(x.N)*int64(8*min(column, cells64)+4*max(0, column-cells64))
}

// table returns the bytes of the table of pages.
func (x *indexed) table() int64 { return (x.IDs + pageSize - 1) / pageSize * idSize }

// column returns the cells of a column.
func (x *indexed) column(c int) (cells, error) {
	if x.cols[c] == nil && x.read {
		b, err := x.part(x.begin(c), int64(x.N*width(c)), x.Sums[c])
		if err != nil {
			return cells{}, err
		}
		x.cols[c] = b
	}
	return cells{x.cols[c], width(c) == 8}, nil
}

// part reads a part of the file, which has a checksum.
func (x *indexed) part(at, n int64, sum uint32) ([]byte, error) {
	f, err := safefile.Open(x.file(), os.O_RDONLY)
	if err != nil {
		return nil, x.stale()
	}
	defer func() { _ = f.Close() }()
	b := x.buffer(n)
	if _, err := f.ReadAt(b, at); err != nil || crc32.Checksum(b, castagnoli) != sum {
		return nil, x.stale()
	}
	return b, nil
}

// buffer returns n bytes, those of a column used before if they are enough.
func (x *indexed) buffer(n int64) []byte {
	if x.free != nil {
		for i, b := range *x.free {
			if int64(cap(b)) >= n {
				*x.free = slices.Delete(*x.free, i, i+1)
				return b[:n]
			}
		}
	}
	return make([]byte, n, n+1<<12)
}

// release gives up the columns.
func (x *indexed) release() {
	for c, b := range x.cols {
		if b != nil && x.read && x.free != nil {
			*x.free, x.cols[c] = append(*x.free, b), nil
		}
	}
}

// dictionary returns the words of the texts.
func (x *indexed) dictionary() ([]string, error) {
	if x.words != nil || !x.read {
		return x.words, nil
	}
	b, err := x.part(x.begin(columns), x.Words, x.Sum)
	if err != nil {
		return nil, err
	}
	for s := string(b); s != ""; {
		n, used := binary.Uvarint([]byte(s[:min(len(s), binary.MaxVarintLen64)]))
		if used <= 0 || n > uint64(len(s)-used) {
			return nil, x.stale()
		}
		x.words = append(x.words, s[used:used+int(n)])
		s = s[used+int(n):]
	}
	return x.words, nil
}

// load reads everything, to add rows to it.
func (x *indexed) load() error {
	for c := range x.cols {
		if _, err := x.column(c); err != nil {
			return err
		}
	}
	words, err := x.dictionary()
	x.known = map[string]uint32{}
	for i, w := range words {
		x.known[w] = uint32(i)
	}
	return err
}

// save writes the file, if each record has its row. A failure is no error: the rows stay in memory.
func (x *indexed) save() {
	info, err := os.Lstat(filepath.Join(x.dir, x.segment()))
	if err != nil || x.seqs != nil || x.N == 0 {
		return
	}
	var words []byte
	for _, w := range x.words {
		words = append(binary.AppendUvarint(words, uint64(len(w))), w...)
	}
	for c, b := range x.cols {
		x.Sums[c] = crc32.Checksum(b, castagnoli)
	}
	ids, pages := x.ids()
	x.IDs, x.Pages = int64(len(ids)), crc32.Checksum(pages, castagnoli)
	x.V, x.Time, x.Words, x.Sum = indexVersion, info.ModTime().UnixNano(), int64(len(words)), crc32.Checksum(words, castagnoli)
	head, err := json.Marshal(x.indexHead)
	if err != nil {
		return
	}
	if err := os.Mkdir(indexDir(x.dir), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return
	}
	file := slices.Concat(head, []byte("\n"), slices.Concat(x.cols[:]...), words, ids, pages)
	if safefile.Replace(x.file(), file, 0o600) == nil {
		*x = indexed{indexHead: x.indexHead, dir: x.dir, read: true, data: int64(len(head)) + 1}
	}
}

// ids returns the pages of the ids of all rows, and their table.
func (x *indexed) ids() (pages, table []byte) {
	type id struct {
		hash uint64
		row  uint32
	}
	var all []id
	for c := range 5 {
		for row := range x.N {
			if h := (cells{x.cols[cellIDs+c], true}).at(row); h != 0 {
				all = append(all, id{h, uint32(row)})
			}
		}
	}
	slices.SortFunc(all, func(a, b id) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.row, b.row)) })
	for _, one := range all {
		pages = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(pages, one.hash), one.row)
	}
	for page := range slices.Chunk(pages, pageSize) {
		table = binary.LittleEndian.AppendUint32(append(table, page[:8]...), crc32.Checksum(page, castagnoli))
	}
	return pages, table
}

// named calls fn for each row with an id, by its hash.
func (x *indexed) named(hash uint64, fn func(row int)) (err error) {
	begin := x.begin(columns) + x.Words
	if x.pages == nil && x.IDs > 0 {
		if x.pages, err = x.part(begin+x.IDs, x.table(), x.Pages); err != nil {
			return err
		}
	}
	first := func(page int) uint64 { return binary.LittleEndian.Uint64(x.pages[page*idSize:]) }
	n := len(x.pages) / idSize
	page := max(0, sort.Search(n, func(i int) bool { return first(i) >= hash })-1)
	for ; page < n && first(page) <= hash; page++ {
		at := int64(page) * pageSize
		b, err := x.part(begin+at, min(pageSize, x.IDs-at), binary.LittleEndian.Uint32(x.pages[page*idSize+8:]))
		if err != nil {
			return err
		}
		for one := range slices.Chunk(b, idSize) {
			row := binary.LittleEndian.Uint32(one[8:])
			switch {
			case binary.LittleEndian.Uint64(one) != hash:
			case int(row) >= x.N:
				return x.stale()
			default:
				fn(int(row))
			}
		}
	}
	return nil
}

// seq returns the number of the record of a row.
func (x *indexed) seq(row int) uint64 {
	if x.seqs != nil {
		return x.seqs[row]
	}
	return x.First + uint64(row)
}

// row returns the row of a record.
func (x *indexed) row(seq uint64) (int, bool) {
	if x.seqs != nil {
		return slices.BinarySearch(x.seqs, seq)
	}
	return int(seq - x.First), seq >= x.First && seq < x.First+uint64(x.N)
}

// record reads the record of a row from the log.
func (x *indexed) record(row int) (Record, error) {
	start, err := x.cell(cellStart, row)
	if err != nil || start >= uint64(x.End) {
		return Record{}, x.stale()
	}
	f, err := openSegment(x.dir, x.segment(), os.O_RDONLY)
	if err != nil {
		return Record{}, x.stale()
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, min(4096, x.End-int64(start)))
	for {
		n, err := f.ReadAt(b, int64(start))
		if line, _, found := bytes.Cut(b[:n], []byte("\n")); found {
			r, err := parseRecord(line)
			if err != nil || r.Seq != x.seq(row) {
				return r, x.stale()
			}
			return r, nil
		}
		if err != nil || len(b) >= MaxLine || int64(len(b)) == x.End-int64(start) {
			return Record{}, x.stale()
		}
		b = make([]byte, min(int64(8*len(b)), MaxLine, x.End-int64(start)))
	}
}

// cell returns one cell, without its column.
func (x *indexed) cell(c, row int) (uint64, error) {
	var one [1]uint64
	err := x.some(c, row, one[:])
	return one[0], err
}

// some reads the cells of a row, from a column on, without their columns.
func (x *indexed) some(from, row int, out []uint64) error {
	var f *os.File
	for i := range out {
		c := from + i
		if x.cols[c] != nil || !x.read {
			out[i] = cells{x.cols[c], width(c) == 8}.at(row)
			continue
		}
		if f == nil {
			var err error
			if f, err = safefile.Open(x.file(), os.O_RDONLY); err != nil {
				return x.stale()
			}
			defer func() { _ = f.Close() }()
		}
		b := make([]byte, width(c))
		if _, err := f.ReadAt(b, x.begin(c)+int64(row*len(b))); err != nil {
			return x.stale()
		}
		out[i] = cells{b, len(b) == 8}.at(0)
	}
	return nil
}

// add enters the records of a segment from x.End to size. It leaves out lines that are no records.
func (x *indexed) add(ctx context.Context, size int64) error {
	f, err := openSegment(x.dir, x.segment(), os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return lines(f, x.End, size, func(ln line) error {
		r, err := viewRecord(ln.text)
		if !ln.whole || err != nil {
			return ctx.Err() // Verify names it
		}
		if want := x.First + uint64(x.N); r.Seq != want && x.seqs == nil {
			x.seqs = make([]uint64, x.N)
			for i := range x.seqs {
				x.seqs[i] = x.First + uint64(i)
			}
		}
		if x.seqs != nil {
			x.seqs = append(x.seqs, r.Seq)
		}
		x.enter(r, ln.start)
		x.End, x.Last = ln.start+ln.size, r.Hash
		return ctx.Err()
	})
}

// enter adds the row of a record.
func (x *indexed) enter(r Record, start int64) {
	e := entryOf(r)
	at, _ := when(r.At)
	row := [columns]uint64{cellStart: uint64(start), cellAt: uint64(at.UnixMilli())}
	for i, one := range e.ids {
		row[cellIDs+i] = hashID(one)
	}
	for i, text := range e.texts {
		n, known := x.known[text]
		if !known {
			n = uint32(len(x.words))
			x.known[text], x.words = n, append(x.words, text)
		}
		row[cells64+i] = uint64(n)
	}
	for c, v := range row {
		if width(c) == 8 {
			x.cols[c] = binary.LittleEndian.AppendUint64(x.cols[c], v)
		} else {
			x.cols[c] = binary.LittleEndian.AppendUint32(x.cols[c], uint32(v))
		}
	}
	x.N++
}

// index is the index of a whole log.
type index struct {
	dir  string
	segs []*indexed // the oldest first
}

// saveRows is how many new rows of the segment in use are worth a new file.
const saveRows = 500

// openIndex returns the index of a log as it is now. It makes the parts that are missing or do not fit; all of them
// without files. progress can be nil.
func openIndex(ctx context.Context, dir string, files bool, progress func(done, all int64)) (*index, error) {
	names, sizes, err := extent(dir)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	ix := &index{dir: dir}
	var done, all int64
	for i, name := range names {
		x := newIndexed(dir, name)
		if !files || !x.open(sizes[i]) {
			x = newIndexed(dir, name)
		}
		all += sizes[i] - x.End
		ix.segs = append(ix.segs, x)
	}
	for i, at := 0, runtime.GOMAXPROCS(0); i < len(names); i += at { // what is saved leaves the memory
		through := min(i+at, len(names))
		for j := i; j < through; j++ {
			done += sizes[j] - ix.segs[j].End
		}
		old, err := extend(ctx, ix.segs[i:through], sizes[i:through])
		if err != nil {
			return nil, fmt.Errorf("audit: the index: %w", err)
		}
		for j := i; j < through; j++ {
			if ix.segs[j].N == old[j-i] {
				continue
			}
			if err := ix.origins(j, old[j-i]); err != nil {
				return nil, err
			}
			if x := ix.segs[j]; x.N-old[j-i] >= saveRows || j+1 < len(names) {
				x.save()
			}
		}
		if progress != nil && all > 0 {
			progress(done, all)
		}
	}
	ix.forget(names)
	return ix, nil
}

// extend adds the new records of some segments, and returns how many rows each had.
func extend(ctx context.Context, segs []*indexed, sizes []int64) ([]int, error) {
	old, errs := make([]int, len(segs)), make([]error, len(segs))
	var work sync.WaitGroup
	for i, x := range segs {
		old[i] = x.N
		if sizes[i] == x.End {
			continue
		}
		work.Go(func() {
			if x.load() != nil {
				*x, old[i] = *newIndexed(x.dir, x.segment()), 0
			}
			x.read = false
			errs[i] = x.add(ctx, sizes[i])
		})
	}
	work.Wait()
	return old, errors.Join(errs...)
}

// origins finds the decisions of the calls of new rows, in their own segment or one before.
func (ix *index) origins(segment, from int) error {
	x := ix.segs[segment]
	latest, open := map[uint64]uint64{}, map[uint64][]int{}
	decision, calls := slices.Index(x.words, KindDecision), cells{x.cols[cellIDs+idCall], true}
	kinds := cells{x.cols[cells64+textKind], false}
	decides := func(row int) bool { return int(kinds.at(row)) == decision }
	set := func(row int, seq uint64) { binary.LittleEndian.PutUint64(x.cols[cellOrigin][8*row:], seq) }
	for row := from; row < x.N; row++ {
		switch c := calls.at(row); {
		case c == 0:
		case decides(row):
			latest[c] = x.seq(row)
		case latest[c] != 0:
			set(row, latest[c])
		default:
			open[c] = append(open[c], row)
		}
	}
	for i := segment; i >= 0 && len(open) > 0; i-- {
		before, end := ix.segs[i], from
		if i < segment {
			end = before.N
		}
		words, err := before.dictionary()
		if err != nil {
			return err
		}
		if calls, err = before.column(cellIDs + idCall); err != nil {
			return err
		}
		if kinds, err = before.column(cells64 + textKind); err != nil {
			return err
		}
		decision = slices.Index(words, KindDecision)
		for row := end - 1; row >= 0 && len(open) > 0; row-- {
			if !decides(row) {
				continue
			}
			for _, mine := range open[calls.at(row)] {
				set(mine, before.seq(row))
			}
			delete(open, calls.at(row))
		}
	}
	return nil
}

// forget removes the files of segments that are gone.
func (ix *index) forget(names []string) {
	files, _ := os.ReadDir(indexDir(ix.dir))
	for _, f := range files {
		segment, ok := strings.CutSuffix(f.Name(), ".idx")
		if ok && !slices.Contains(names, segment+suffix) {
			_ = os.Remove(filepath.Join(indexDir(ix.dir), f.Name()))
		}
	}
}
