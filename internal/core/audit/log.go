package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"waldo/internal/model/id"
	"waldo/internal/storage/database"
	"waldo/internal/storage/safefile"
)

// Heads stores the head of a log, apart from the log. SetHead stores head.Over(the one before). Implementations:
// *database.Store and headfile.File.
type Heads interface {
	Head(ctx context.Context, log string) (*database.Head, error) // nil: none was ever set
	SetHead(ctx context.Context, log string, h database.Head) error
	ResetHead(ctx context.Context, log string, h database.Head) error
}

// Name is the name under which the head of the log is stored.
const Name = "audit"

// Errors of a log that refuses a record.
var (
	// ErrTampered says that the log is not what its head says it was.
	ErrTampered = errors.New("audit: the log was changed from outside")
	// ErrLocked says that another process holds the log.
	ErrLocked = errors.New("audit: the log is locked")
	// ErrClosed says that the log was closed.
	ErrClosed = errors.New("audit: the log is closed")
)

// Options configures a log. Heads is required; every other zero means the value named.
type Options struct {
	Heads        Heads
	Second       Heads            // a second head stored elsewhere; can be nil
	Now          func() time.Time // time.Now
	SegmentBytes int64            // 64 MiB: a segment this long is followed by another
	SegmentAge   time.Duration    // no limit: a segment this old is followed by another, too
	SyncDelay    time.Duration    // 5 ms: how long a record without a waiting caller can be unsynced
	HeadDelay    time.Duration    // 500 ms: how long the head may be behind
	LockWait     time.Duration    // 15 s: how long to wait for other processes
	wrap         func(file) file  // tests put failing segments in
}

func (o Options) filled() Options {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&o.SyncDelay, 5*time.Millisecond)
	set(&o.HeadDelay, 500*time.Millisecond)
	set(&o.LockWait, 15*time.Second)
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.wrap == nil {
		o.wrap = func(f file) file { return f }
	}
	return o
}

// place is a position in a log: its first and last record, and the byte after it.
type place struct {
	first     uint64 // 0: it could not be read
	firstHash string
	seq       uint64
	hash      string
	at        string
	in        string // the segment that the last record is in
	start     int64  // of the last record's line
	segment   string // the segment that is written; after a full one, not yet the one above
	end       int64
}

func (p place) head(now time.Time) database.Head {
	return database.Head{
		Seq: p.seq, Hash: p.hash, Segment: p.in, Start: p.start, At: database.Stamp(now),
		Beginning: database.Beginning{First: p.first, FirstHash: p.firstHash},
	}
}

// Log is one log, open for appending. Any number of processes may have it open.
type Log struct {
	dir      string
	o        Options
	lockFile *os.File
	recovery Recovery

	queue chan *pending
	wake  chan struct{} // tells the syncer that there is something to sync
	ended sync.WaitGroup

	closing sync.RWMutex // held for reading while a record is put into the queue
	closed  bool

	mu      sync.Mutex // guards what follows
	file    file
	known   file        // of which about says which it is
	about   fs.FileInfo // its size is of long ago
	at      place
	last    time.Time // when the folder had changed last, as followed found no next segment
	dated   string    // the segment of which began says when it was begun
	began   time.Time
	synced  place
	waiters []waiter // for the next sync
	lines   []byte   // for the next batch to be written into
	told    bool     // the syncer knows that there is something to sync
	failed  error    // the latch: no record is taken until repair succeeds
	badSync bool     // the failure was a sync: writes since the last good one may be lost
	badHead bool     // the failure was to move the head
	lost    int      // records refused since failed was set
	torn    Recovery // a torn tail of another process, to be recorded

	trying  sync.Mutex // guards what follows
	tried   time.Time  // by Ready; zero: never
	unready error
}

// pending is a record on its way.
type pending struct {
	kind   string
	body   []byte
	sync   bool
	pass   bool // the heads must pass it, too
	result chan result
}

type waiter struct {
	p *pending
	r result
}

type result struct {
	rec Record
	err error
}

// Recovery says what Open found beyond the head.
type Recovery struct {
	Past      uint64 `json:"past"`                // chained records that the head did not know yet
	TornBytes int64  `json:"torn_bytes"`          // bytes at the end that are no chained record
	SetAside  string `json:"set_aside"`           // the file that those bytes were moved to
	Beginning uint64 `json:"beginning,omitempty"` // the first record, where no head said which that must be
}

// Open opens the log in a folder, and creates a missing folder with mode 0700. It reads the records after the last
// head, accepts chained ones, and sets a torn tail aside. It returns ErrTampered if records that the head covers are
// missing; SetAside recovers from that.
func Open(ctx context.Context, dir string, o Options) (*Log, error) {
	if o.Heads == nil {
		return nil, errors.New("audit: a log needs a place to keep its head")
	}
	l := &Log{dir: dir, o: o.filled(), queue: make(chan *pending, 1024), wake: make(chan struct{}, 1)}
	if err := l.openLock(); err != nil {
		return nil, err
	}
	if err := l.start(ctx); err != nil {
		_ = l.lockFile.Close()
		if l.file != nil {
			_ = l.file.Close()
		}
		return nil, err
	}
	l.ended.Add(2)
	go l.writer()
	go l.syncer()
	return l, nil
}

func (l *Log) openLock() error {
	if err := os.Mkdir(l.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("audit: %w", err)
	}
	info, err := os.Lstat(l.dir)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("audit: %s is not a folder", l.dir)
	}
	l.lockFile, err = os.OpenFile(filepath.Join(l.dir, "lock"), os.O_CREATE|os.O_RDWR|safefile.NoFollow, 0o600)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// Recovery says what Open found beyond the head.
func (l *Log) Recovery() Recovery { return l.recovery }

// Append adds a record whose body is one JSON object, and returns it when it is written; with
// sync, when it is on the disk. An error means that the record must be taken as not recorded. A
// record of more than MaxBody, or of no strict JSON, is recorded by its size and digest. After a
// failure no record is taken until the log was repaired, which each Append tries first.
func (l *Log) Append(ctx context.Context, kind string, body []byte, sync bool) (Record, error) {
	if !isKind([]byte(kind)) {
		return Record{}, fmt.Errorf("audit: unknown kind of record %q", kind)
	}
	return l.append(ctx, pending{kind: kind, body: bounded(body), sync: sync})
}

// append is Append of a body that is as it is written.
func (l *Log) append(ctx context.Context, p pending) (Record, error) {
	p.result = make(chan result, 1)
	if err := l.enqueue(ctx, &p); err != nil {
		return Record{}, err
	}
	select {
	case r := <-p.result:
		return r.rec, r.err
	case <-ctx.Done():
		return Record{}, fmt.Errorf("audit: gave up waiting for the disk: %w", ctx.Err())
	}
}

func (l *Log) enqueue(ctx context.Context, p *pending) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	l.closing.RLock()
	defer l.closing.RUnlock()
	if l.closed {
		return ErrClosed
	}
	if len(l.queue) == 0 && l.mu.TryLock() { // the queue is empty: write here, without a wake-up
		defer l.mu.Unlock()
		l.write([]*pending{p})
		return nil
	}
	select {
	case l.queue <- p:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("audit: %w", ctx.Err())
	}
}

// Close writes what is queued, syncs it, moves the head to it and closes the log.
func (l *Log) Close() error {
	l.closing.Lock()
	if l.closed {
		l.closing.Unlock()
		return nil
	}
	l.closed = true
	close(l.queue)
	l.closing.Unlock()
	l.ended.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.failed, l.file.Close(), l.lockFile.Close())
}

const (
	batchRecords = 256
	batchBytes   = 4 << 20
	maxLines     = 64 << 10 // bytes of buffer retained for the next batch
)

// writer writes what is queued, in batches, until the queue is closed.
func (l *Log) writer() {
	defer l.ended.Done()
	defer close(l.wake)
	for p := range l.queue {
		batch, size := []*pending{p}, len(p.body)
	more:
		for len(batch) < batchRecords && size < batchBytes {
			select {
			case p, ok := <-l.queue:
				if !ok {
					break more
				}
				batch, size = append(batch, p), size+len(p.body)
			default:
				break more
			}
		}
		l.mu.Lock()
		l.write(batch)
		l.mu.Unlock()
	}
}

// write writes a batch and answers those who wait for no more than that. l.mu is held.
func (l *Log) write(batch []*pending) {
	recs, err := l.locked(func() ([]Record, error) { return l.extend(batch) })
	if err != nil {
		for _, p := range batch {
			p.result <- result{err: err}
		}
		return
	}
	for i, p := range batch {
		if p.sync {
			l.waiters = append(l.waiters, waiter{p, result{rec: recs[i]}})
		} else {
			p.result <- result{rec: recs[i]}
		}
	}
	if l.told && len(l.waiters) == 0 {
		return
	}
	l.told = true
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// locked runs fn while no other process writes.
func (l *Log) locked(fn func() ([]Record, error)) ([]Record, error) {
	if err := lock(l.lockFile, false, l.o.LockWait); err != nil {
		return nil, err
	}
	defer func() { _ = safefile.Unlock(l.lockFile) }()
	return fn()
}

// extend appends a batch to the segment, after what other processes appended.
func (l *Log) extend(batch []*pending) ([]Record, error) {
	if err := l.repair(); err != nil {
		l.lost += len(batch)
		return nil, err
	}
	if err := l.catchUp(); err != nil {
		return nil, l.latch(err, len(batch))
	}
	n := len(batch)
	if l.lost > 0 || l.torn.TornBytes > 0 {
		note, _ := json.Marshal(map[string]any{
			"refused": l.lost, "torn_bytes": l.torn.TornBytes, "set_aside": l.torn.SetAside,
		})
		batch = append([]*pending{{kind: "recovered", body: note}}, batch...)
	}
	recs, err := l.put(batch)
	if err != nil {
		return nil, l.latch(err, n)
	}
	l.lost, l.torn = 0, Recovery{}
	return recs[len(recs)-n:], nil
}

// put writes the batch at the end of the segment, whole or not at all.
func (l *Log) put(batch []*pending) ([]Record, error) {
	at, out, recs := l.at, l.lines[:0], make([]Record, len(batch))
	for i, p := range batch {
		r := Record{
			Seq: at.seq + 1, ID: id.New(id.Record), At: database.Stamp(l.o.Now()), Prev: at.hash, Kind: p.kind, Body: p.body,
		}
		before := len(out)
		out = r.seal(out)
		at.seq, at.hash, at.at, at.in = r.Seq, r.Hash, r.At, at.segment
		at.start, at.end = at.end, at.end+int64(len(out)-before)
		recs[i] = r
	}
	if cap(out) <= maxLines {
		l.lines = out
	}
	if n, err := l.file.WriteAt(out, l.at.end); err != nil || n < len(out) {
		if err == nil {
			err = fmt.Errorf("wrote %d of %d bytes", n, len(out))
		}
		return nil, errors.Join(err, l.file.Truncate(l.at.end))
	}
	l.at = at
	return recs, nil
}

// latch remembers a failure, so that no record is taken before the log was repaired.
func (l *Log) latch(err error, refused int) error {
	l.failed = fmt.Errorf("audit: %w", err)
	l.lost += refused
	return l.failed
}

// repair ends a failure if the log is writable again. It rewrites unsynced bytes, because a failed sync may have
// dropped them from memory as if clean.
func (l *Log) repair() error {
	if l.failed == nil {
		return nil
	}
	if errors.Is(l.failed, ErrTampered) {
		return l.failed // only an operator ends this
	}
	if l.badSync && l.synced.segment == l.at.segment {
		b := make([]byte, l.at.end-l.synced.end)
		if _, err := l.file.ReadAt(b, l.synced.end); err != nil {
			return errors.Join(l.failed, err)
		}
		if _, err := l.file.WriteAt(b, l.synced.end); err != nil {
			return errors.Join(l.failed, err)
		}
	}
	if err := l.file.Sync(); err != nil {
		return errors.Join(l.failed, err)
	}
	if l.badHead {
		if err := l.setHeads(context.Background(), l.synced); err != nil {
			return errors.Join(l.failed, err)
		}
	}
	l.failed, l.badSync, l.badHead = nil, false, false
	return nil
}

// Unsynced returns how many written records are not on the disk yet.
func (l *Log) Unsynced() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at.seq - min(l.synced.seq, l.at.seq)
}

// Failed returns why the log takes no record; nil: it takes them.
func (l *Log) Failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Ready tries whether the log takes a record, at most once a second, and returns why it does not. It writes to another
// file of the folder, and ends a failure that is over without waiting for a record.
func (l *Log) Ready() error {
	l.trying.Lock()
	defer l.trying.Unlock()
	if now := l.o.Now(); l.tried.IsZero() || now.Sub(l.tried).Abs() >= time.Second {
		l.tried, l.unready = now, l.try()
	}
	return l.unready
}

// try writes a file as long as the longest usual batch, and removes it. Then it repairs the log if that had failed.
func (l *Log) try() error {
	f, err := os.OpenFile(filepath.Join(l.dir, "ready"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|safefile.NoFollow, 0o600)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	_, err = f.Write(make([]byte, maxLines))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Remove(f.Name())
	} else {
		_ = os.Remove(f.Name()) // its room is for records
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // another process of the log tries, too
		return fmt.Errorf("audit: %w", err)
	}
	if l.Failed() == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.locked(func() ([]Record, error) { return nil, l.repair() })
	return err
}
