// Package database keeps waldo's durable state: a folder of its own and one SQL database in it. One
// goroutine writes and commits in groups. It knows rows, never what they mean.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"modernc.org/sqlite" // registers the driver "sqlite", too
)

// Store is one state directory. The database is opened by the first call that needs it.
type Store struct {
	dir    string
	place  place
	once   sync.Once
	err    error
	db     *sql.DB
	writes chan write
	done   chan struct{}
	marks  atomic.Pointer[marker] // nil: rows have no marks

	mu     sync.RWMutex
	closed bool
}

// write is one function to run in the next group, and where its result goes.
type write struct {
	fn     func(*sql.Tx) error
	result chan error
}

// groupMax is how many writes share one commit.
const groupMax = 128

// ErrClosed: the store was closed.
var ErrClosed = errors.New("store: closed")

// Open checks the state directory, creating it with mode 0700 where it is missing. It refuses one
// that is a link, that belongs to someone else or that others can write, and one below a folder
// in which others could replace it. The database is not opened yet.
func Open(dir string) (*Store, error) {
	dir, err := CheckDir(dir)
	if err != nil {
		return nil, err
	}
	p, err := readPlace(dir)
	if err != nil {
		return nil, err
	}
	return &Store{dir: dir, place: p, writes: make(chan write), done: make(chan struct{})}, nil
}

// Dir returns the state directory as an absolute path.
func (s *Store) Dir() string { return s.dir }

// Path returns the path of a name in the state directory.
func (s *Store) Path(name ...string) string {
	return filepath.Join(append([]string{s.dir}, name...)...)
}

// Close waits for the writes that were begun and closes the database. It may be called twice.
func (s *Store) Close() error {
	s.once.Do(func() { s.err = ErrClosed })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.db == nil {
		return nil
	}
	close(s.writes)
	<-s.done
	return s.db.Close()
}

// View runs fn on a snapshot of the database and discards its writes.
func (s *Store) View(ctx context.Context, fn func(*sql.Tx) error) error {
	if err := s.open(); err != nil {
		return err
	}
	tx, err := s.snapshot(ctx)
	if err != nil {
		return s.told(fmt.Errorf("store: %w", err))
	}
	defer func() { _ = tx.Rollback() }()
	return s.told(fn(tx))
}

// Update runs fn in a transaction and returns when it is on the disk. Writes that arrive together
// share one commit; fn stands behind a savepoint, so one that fails takes nothing else with it.
// fn must not call the store.
func (s *Store) Update(ctx context.Context, fn func(*sql.Tx) error) error {
	if err := s.open(); err != nil {
		return err
	}
	w := write{fn: fn, result: make(chan error, 1)}
	if err := s.enqueue(ctx, w); err != nil {
		return err
	}
	return s.told(<-w.result) // bounded by the busy timeout: a begun write is never given up half-way
}

// The codes of SQLite that waldo knows: the low byte says which kind.
const (
	sqliteIO   = 10
	sqliteBusy = 5
	sqliteFull = 13
)

// told says of an error of the database that the disk is full, where it is: SQLite says a number. It adds ErrAway.
func (s *Store) told(err error) error {
	var e *sqlite.Error
	if full(err) || errors.As(err, &e) && (e.Code()&0xff == sqliteFull || e.Code()&0xff == sqliteIO && noRoom(s.dir)) {
		return fmt.Errorf("%w: %w", err, syscall.ENOSPC)
	}
	if s.Shared() && away(err) {
		return fmt.Errorf("%w: %w", ErrAway, plain(err))
	}
	return plain(err)
}

func (s *Store) enqueue(ctx context.Context, w write) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return ErrClosed
	}
	select {
	case s.writes <- w:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// open opens and migrates the database, once.
func (s *Store) open() error {
	s.once.Do(func() {
		s.err = s.told(s.openDB())
		if s.err == nil {
			go s.writer()
		}
	})
	return s.err
}

func (s *Store) openDB() error {
	if s.Shared() {
		return s.openShared()
	}
	file := s.Path(sqliteFile)
	if err := checkFile(file); err != nil {
		return err
	}
	q := url.Values{
		"_txlock": {"immediate"}, "_pragma": {"busy_timeout(10000)", "journal_mode(WAL)",
			"synchronous(FULL)", "foreign_keys(1)"},
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?"+q.Encode())
	if err != nil {
		return fmt.Errorf("store: %s: %w", file, err)
	}
	db.SetMaxIdleConns(2)
	err = migrate(db, file)
	// of several processes that make a database, SQLite lets those that come second wait for nothing
	for until := time.Now().Add(10 * time.Second); busy(err) && time.Now().Before(until); err = migrate(db, file) {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		_ = db.Close()
		return fmt.Errorf("store: %s: %w", file, err)
	}
	s.db = db
	return nil
}

func busy(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == sqliteBusy
}

// openShared opens the PostgreSQL database. waldo store migrate alone changes its tables: others write them, too.
func (s *Store) openShared() error {
	c, err := s.Connection()
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	db := pool(c)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := upToDate(ctx, db); err != nil {
		return errors.Join(fmt.Errorf("store: %s: %w", s.place.URL, plain(err)), db.Close())
	}
	s.db = db
	return nil
}

// checkFile makes the database file with mode 0600, so that SQLite never chooses one, and refuses
// a link or anything but a file.
func checkFile(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		return f.Close()
	}
	if !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("store: %w", err)
	}
	info, err := os.Lstat(file)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("store: %s is not a regular file; move it away", file)
	}
	return nil
}

// writer runs the writes in groups until the store is closed.
func (s *Store) writer() {
	defer close(s.done)
	for w := range s.writes {
		group := []write{w}
		for len(group) < groupMax {
			select {
			case w, ok := <-s.writes:
				if ok {
					group = append(group, w)
					continue
				}
			default:
			}
			break
		}
		s.commit(group)
	}
}

// commit runs a group in one transaction and tells each its result.
func (s *Store) commit(group []write) {
	results := make([]error, len(group))
	err := s.transact(func(tx *sql.Tx) error {
		for i, w := range group {
			var err error
			if results[i], err = savepoint(tx, w.fn); err != nil {
				return err
			}
		}
		return nil
	})
	for i, w := range group {
		w.result <- errors.Join(results[i], err)
	}
}

func (s *Store) transact(fn func(*sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tx, err := s.begin(ctx)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := fn(tx); err != nil {
		return errors.Join(fmt.Errorf("store: %w", err), tx.Rollback())
	}
	if err := s.end(tx); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// savepoint runs fn so that its failure, or panic, undoes only what fn did. own is the error of
// fn; err says that the transaction itself is broken.
func savepoint(tx *sql.Tx, fn func(*sql.Tx) error) (own, err error) {
	if _, err := tx.Exec("SAVEPOINT one"); err != nil {
		return nil, err
	}
	if own = guarded(tx, fn); own != nil {
		if _, err := tx.Exec("ROLLBACK TO SAVEPOINT one"); err != nil {
			return own, err
		}
	}
	if _, err = tx.Exec("RELEASE SAVEPOINT one"); err == nil || own != nil {
		return own, err
	}
	// PostgreSQL refuses it after a statement whose error fn passed over
	own = fmt.Errorf("store: a statement of the write failed: %w", err)
	_, err = tx.Exec("ROLLBACK TO SAVEPOINT one; RELEASE SAVEPOINT one")
	return own, err
}

func guarded(tx *sql.Tx, fn func(*sql.Tx) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("store: a write panicked: %v", r)
		}
	}()
	return fn(tx)
}
