package database

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Head holds both ends of a log: its first record, and the last one that is known to be on the disk, with the place
// where its line starts.
type Head struct {
	Seq     uint64 `json:"seq"`
	Hash    string `json:"hash"` // 64 hexadecimal digits
	Segment string `json:"segment"`
	Start   int64  `json:"start"` // byte in the segment
	At      string `json:"at"`
	Beginning
}

// Beginning is the other end of a log.
type Beginning struct {
	First     uint64 `json:"first,omitempty"` // 0: the head is of a waldo that did not store it
	FirstHash string `json:"first_hash,omitempty"`
	Before    *Head  `json:"before,omitempty"` // of the log that was set aside before this one began
}

// Over returns the head to store in place of old, and whether it differs. Neither end moves back, so that of two
// processes the slower one changes nothing.
func (h Head) Over(old *Head) (Head, bool) {
	if old == nil {
		return h, true
	}
	out := h
	if old.Seq >= h.Seq {
		out = *old
	}
	out.Beginning = h.Beginning
	if old.First >= h.First {
		out.Beginning = old.Beginning
	}
	out.Before = old.Before
	return out, out.Seq != old.Seq || out.First != old.First
}

// Head returns the head of the named log, or nil where none was ever set.
func (s *Store) Head(ctx context.Context, log string) (h *Head, err error) {
	seen, err := s.seen()
	if err != nil {
		return nil, err
	}
	err = s.View(ctx, func(tx *sql.Tx) error {
		h, err = head(tx, s.Own(log))
		return err
	})
	if err == nil {
		before := seen[log]
		err = back(&before, h)
	}
	if err != nil {
		return nil, fmt.Errorf("store: head of %s: %w", log, err)
	}
	return h, nil
}

func head(tx *sql.Tx, log string) (*Head, error) {
	var h Head
	var begin string
	err := tx.QueryRow(`SELECT seq, hash, segment, start, at, beginning FROM heads WHERE log = $1`, log).
		Scan(&h.Seq, &h.Hash, &h.Segment, &h.Start, &h.At, &begin)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err == nil && begin != "" {
		err = json.Unmarshal([]byte(begin), &h.Beginning)
	}
	return &h, err
}

// SetHead moves the ends of the named log forward.
func (s *Store) SetHead(ctx context.Context, log string, h Head) error {
	seen, err := s.seen()
	if err != nil {
		return err
	}
	err = s.Update(ctx, func(tx *sql.Tx) error {
		old, err := head(tx, s.Own(log))
		if err != nil {
			return err
		}
		before := seen[log]
		if err := back(&before, old); err != nil {
			return err
		}
		h, differs := h.Over(old)
		if !differs {
			return nil
		}
		return putHead(tx, s.Own(log), h)
	})
	if err != nil || !s.Shared() {
		return err
	}
	return s.see(log, h, false)
}

// ResetHead sets the head of the named log, also to an earlier record. An operator uses it when setting a damaged log
// aside.
func (s *Store) ResetHead(ctx context.Context, log string, h Head) error {
	err := s.Update(ctx, func(tx *sql.Tx) error { return putHead(tx, s.Own(log), h) })
	if err != nil || !s.Shared() {
		return err
	}
	return s.see(log, h, true)
}

func putHead(tx *sql.Tx, log string, h Head) error {
	begin, err := json.Marshal(h.Beginning)
	if err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO heads (log, seq, hash, segment, start, at, beginning)
		VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (log) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, segment = excluded.segment,
		start = excluded.start, at = excluded.at, beginning = excluded.beginning`,
		log, h.Seq, h.Hash, h.Segment, h.Start, h.At, string(begin))
	return err
}

// Get returns the value of a name in a bucket, and whether there is one.
func (s *Store) Get(ctx context.Context, bucket, name string) (value string, ok bool, err error) {
	err = s.View(ctx, func(tx *sql.Tx) error {
		return tx.QueryRow(`SELECT value FROM kv WHERE bucket = $1 AND name = $2`, s.Bucket(bucket), name).Scan(&value)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return value, err == nil, err
}

// Put sets the value of a name in a bucket.
func (s *Store) Put(ctx context.Context, bucket, name, value string) error {
	return s.Update(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec(`INSERT INTO kv (bucket, name, value, at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (bucket, name) DO UPDATE SET value = excluded.value, at = excluded.at`,
			s.Bucket(bucket), name, value, Stamp(time.Now()))
		return err
	})
}

// Modify changes the value of a name in a bucket in one transaction. change is given the value, and
// whether there is one, and returns the value to be; false: none. Its error leaves all as it was.
func (s *Store) Modify(
	ctx context.Context, bucket, name string, change func(old string, ok bool) (string, bool, error),
) error {
	return s.Update(ctx, func(tx *sql.Tx) error {
		var old string
		err := tx.QueryRow(`SELECT value FROM kv WHERE bucket = $1 AND name = $2`, s.Bucket(bucket), name).Scan(&old)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		value, keep, err := change(old, err == nil)
		if err != nil {
			return err
		}
		if !keep {
			_, err = tx.Exec(`DELETE FROM kv WHERE bucket = $1 AND name = $2`, s.Bucket(bucket), name)
			return err
		}
		_, err = tx.Exec(`INSERT INTO kv (bucket, name, value, at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (bucket, name) DO UPDATE SET value = excluded.value, at = excluded.at`,
			s.Bucket(bucket), name, value, Stamp(time.Now()))
		return err
	})
}

// Delete removes a name from a bucket. A missing name is not an error.
func (s *Store) Delete(ctx context.Context, bucket, name string) error {
	return s.Update(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec(`DELETE FROM kv WHERE bucket = $1 AND name = $2`, s.Bucket(bucket), name)
		return err
	})
}

// Names returns every name of a bucket. It reads no value.
func (s *Store) Names(ctx context.Context, bucket string) (all []string, err error) {
	err = s.View(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query(`SELECT name FROM kv WHERE bucket = $1`, s.Bucket(bucket))
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				return err
			}
			all = append(all, name)
		}
		return rows.Err()
	})
	return all, err
}

// List returns every name and value of a bucket.
func (s *Store) List(ctx context.Context, bucket string) (map[string]string, error) {
	out := map[string]string{}
	err := s.View(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query(`SELECT name, value FROM kv WHERE bucket = $1`, s.Bucket(bucket))
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var k, v string
			if err := rows.Scan(&k, &v); err != nil {
				return err
			}
			out[k] = v
		}
		return rows.Err()
	})
	return out, err
}
