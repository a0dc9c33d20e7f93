package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"waldo/internal/app/control"
	"waldo/internal/app/fault"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/core/audit/headfile"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/storage/database"
	"waldo/internal/storage/presence"
	"waldo/internal/storage/sandboxes"
)

// Storage is an open state directory. A command that needs no more of waldo opens it alone.
type Storage struct {
	Store   *database.Store
	Log     *audit.Log        // nil: OpenLog was not called
	present *presence.Process // that this process runs; nil: no mark
	closers closers
}

// OpenStorage opens the database of a state directory that StateDir has checked.
func OpenStorage(state string) (*Storage, error) {
	s, err := database.Open(state)
	if err != nil {
		return nil, err
	}
	return &Storage{Store: s, closers: []func() error{s.Close}}, nil
}

// OpenRecorded opens the database and the log.
func OpenRecorded(ctx context.Context, state string, keep time.Duration) (*Storage, error) {
	s, err := OpenStorage(state)
	if err != nil {
		return nil, err
	}
	if err := s.OpenLog(ctx, keep); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// OpenAtWork opens the database and the log, and marks this process as running: others leave alone what it claims.
func OpenAtWork(ctx context.Context, state string, keep time.Duration) (*Storage, error) {
	s, err := OpenRecorded(ctx, state, keep)
	if err != nil {
		return nil, err
	}
	p, err := presence.New(s.Store)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.present, s.closers = p, append(s.closers, p.Close)
	return s, nil
}

// Close closes what was opened, the last first.
func (s *Storage) Close() error { return s.closers.close() }

// closers close what was opened.
type closers []func() error

// close calls them once, the last first.
func (l *closers) close() error {
	var errs []error
	for _, c := range slices.Backward(*l) {
		errs = append(errs, c())
	}
	*l = nil
	return errors.Join(errs...)
}

// LogOptions returns where the log stores its head: in waldo.db, and in the file that $WALDO_LOG_HEAD names. A file
// on another machine exposes an attacker who can rewrite both the log and the database.
func LogOptions(s *database.Store) audit.Options {
	o := audit.Options{Heads: s}
	if path := os.Getenv("WALDO_LOG_HEAD"); path != "" {
		o.Second = &headfile.File{Path: path, Lock: s.Path("log", "head.lock")}
	}
	return o
}

// segmentsFor returns the retention that sets the age of segments. Where closed ones are copied, one is closed each day.
func segmentsFor(c *contract.Config) time.Duration {
	const day = 24 * time.Hour
	if c.Blobs.URL != "" && (c.Log.Keep == 0 || c.Log.Keep > 10*day) {
		return 10 * day
	}
	return c.Log.Keep
}

// OpenLog opens the log. A retention time shortens the segments, because only whole segments can be removed.
func (s *Storage) OpenLog(ctx context.Context, keep time.Duration) (err error) {
	o := LogOptions(s.Store)
	o.SegmentAge = keep / 10
	if s.Log, err = audit.Open(ctx, s.Store.Path("log"), o); errors.Is(err, audit.ErrTampered) {
		return &fault.Error{Err: err, Tip: "look with waldo log verify; to go on with a new log: waldo log set-aside"}
	} else if err != nil {
		return err
	}
	s.closers = append(s.closers, s.Log.Close)
	return nil
}

// MarkWith has rows of a database that hosts share marked with the key of a configuration.
func (s *Storage) MarkWith(cfg *contract.Config, get func(secret.Ref) (secret.Value, error)) {
	ref := cfg.StoreKey
	if ref == "" && cfg.Workers != nil {
		ref = cfg.Workers.Key
	}
	if ref == "" || !s.Store.Shared() {
		s.Store.MarkWith(nil)
		return
	}
	s.Store.MarkWith(func() ([]byte, error) {
		v, err := get(ref)
		if err == nil && len(v.Reveal()) < minKey {
			err = fmt.Errorf("store.key must be %d bytes or more: waldo worker --new-key FILE makes one", minKey)
		}
		return []byte(strings.TrimSpace(v.Reveal())), err
	})
}

const minKey = 32

// Process returns the mark of this process while it runs; empty: it has none.
func (s *Storage) Process() string {
	if s.present == nil {
		return ""
	}
	return s.present.Name
}

// NamedSandboxes returns the named sandboxes, without a look for idle ones.
func (s *Storage) NamedSandboxes() *sandboxes.Manager { return sandboxes.New(s.Store, time.Now) }

// approvals returns the approval service of a configuration. It records if the log is open.
func (s *Storage) approvals(cfg *contract.Config) *approval.Service {
	dir := s.Store.Dir()
	k := &approval.Service{Store: s.Store, Calls: approval.Fixed(cfg.Approval),
		Root: os.Getenv(RootVariable), Gone: presence.Gone(s.Store), Witness: &audit.Witness{Dir: audit.Dir(dir)}}
	if s.Log != nil {
		k.Records = desk(s.Log)
	}
	return k
}

// Principals returns those of this user, of the tokens of a configuration and of the log, sorted. cfg can be nil. A log
// that cannot be read is left out.
func (s *Storage) Principals(ctx context.Context, cfg *contract.Config) []string {
	out := []string{string(Principal())}
	if cfg != nil {
		for name := range cfg.Gateway.Tokens {
			out = append(out, control.Token+name)
		}
	}
	callers, _ := audit.Principals(ctx, s.Store.Path("log"))
	out = append(out, callers...)
	slices.Sort(out)
	return slices.Compact(out)
}

// ForgetCLI ends the shared `waldo call` session of a stopped user. It also deletes entries of sessions that ended
// too long ago to matter.
func (s *Storage) ForgetCLI(ctx context.Context, name string) error {
	shared, err := s.Store.List(ctx, cliBucket)
	if err != nil {
		return err
	}
	for who, row := range shared {
		if n, _, _ := strings.Cut(row, " "); name == control.Everybody || name == who || name == n {
			if err := s.Store.Delete(ctx, cliBucket, who); err != nil {
				return err
			}
		}
	}
	return control.ForgetStops(ctx, s.Store, time.Now().Add(-Retention))
}
