package database

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"waldo/internal/storage/safefile"
)

// seenFile holds the newest head that this state directory has stored in a shared database.
const seenFile = "waldo.seen"

// nothingSeen is the content of seenFile when a state directory is bound, and when a restored database is accepted.
const nothingSeen = `{"":{}}` + "\n"

// errUnseen is the error of a state directory without a whole seenFile.
var errUnseen = errors.New("it holds what the database held last: without it nobody can say whether the database went " +
	"back in time. Restore it from a backup; or accept the database as it is with: waldo store migrate --restored")

// ErrBack is the error of a database that is older than what this state directory has stored in it.
var ErrBack = errors.New("the database went back in time: it was restored from a copy, or a server that lacked the last " +
	"writes took over. Calls, keys and approvals since then are missing in it. To go on with it: waldo store migrate --restored")

// seen returns the newest head that was stored in a shared database, by log.
func (s *Store) seen() (all map[string]Head, err error) {
	if !s.Shared() {
		return nil, nil
	}
	b, err := safefile.Read(s.Path(seenFile))
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil || len(all) == 0 {
		return nil, fmt.Errorf("store: %s: %w (%v)", s.Path(seenFile), errUnseen, err)
	}
	return all, nil
}

// see remembers a head that is stored now. Of several processes the newest head stays.
func (s *Store) see(log string, h Head, reset bool) error {
	f, err := os.OpenFile(s.Path(seenFile+".lock"), os.O_CREATE|os.O_RDWR|safefile.NoFollow, 0o600)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer func() { _ = f.Close() }() // which ends the lock
	if err := safefile.Lock(f, false); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	all, err := s.seen()
	if err != nil || !reset && all[log].Seq >= h.Seq {
		return err
	}
	all[log] = Head{Seq: h.Seq, Hash: h.Hash}
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return safefile.Replace(s.Path(seenFile), append(b, '\n'), 0o600)
}

// back returns ErrBack if a stored head is older than one that was seen before it was read. nil: there is none.
func back(seen, stored *Head) error {
	switch {
	case seen.Seq == 0:
		return nil
	case stored == nil:
		return fmt.Errorf("%w (it holds no record of this log, and held %d)", ErrBack, seen.Seq)
	case stored.Seq < seen.Seq || stored.Seq == seen.Seq && stored.Hash != seen.Hash:
		return fmt.Errorf("%w (it holds %d records of this log, and held %d)", ErrBack, stored.Seq, seen.Seq)
	}
	return nil
}

// Restored accepts a database that went back in time: what was seen of it before no longer counts.
func Restored(dir string) error {
	dir, err := CheckDir(dir)
	if err != nil {
		return err
	}
	return safefile.Replace(filepath.Join(dir, seenFile), []byte(nothingSeen), 0o600)
}
