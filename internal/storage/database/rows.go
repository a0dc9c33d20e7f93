package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Head is how far a log has come: the last record that is known to be on the disk, and where its
// line starts.
type Head struct {
	Seq     uint64 `json:"seq"`
	Hash    string `json:"hash"` // 64 hexadecimal digits
	Segment string `json:"segment"`
	Start   int64  `json:"start"` // byte in the segment
	At      string `json:"at"`
}

// Head returns the head of the named log, or nil where none was ever set.
func (s *Store) Head(ctx context.Context, log string) (*Head, error) {
	var h Head
	err := s.View(ctx, func(tx *sql.Tx) error {
		return tx.QueryRow(`SELECT seq, hash, segment, start, at FROM heads WHERE log = $1`, log).
			Scan(&h.Seq, &h.Hash, &h.Segment, &h.Start, &h.At)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("store: head of %s: %w", log, err)
	}
	return &h, nil
}

// SetHead moves the head of the named log forward. A head that is not ahead of the stored one is
// ignored, so that of two processes the slower one never moves it back.
func (s *Store) SetHead(ctx context.Context, log string, h Head) error {
	return s.Update(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec(`INSERT INTO heads (log, seq, hash, segment, start, at) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (log) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, segment = excluded.segment,
			start = excluded.start, at = excluded.at WHERE heads.seq < excluded.seq`,
			log, h.Seq, h.Hash, h.Segment, h.Start, h.At)
		return err
	})
}

// ResetHead sets the head of the named log, also to an earlier record. An operator uses it when setting a damaged log
// aside.
func (s *Store) ResetHead(ctx context.Context, log string, h Head) error {
	return s.Update(ctx, func(tx *sql.Tx) error {
		if _, err := tx.Exec(`DELETE FROM heads WHERE log = $1`, log); err != nil {
			return err
		}
		_, err := tx.Exec(`INSERT INTO heads (log, seq, hash, segment, start, at) VALUES ($1, $2, $3, $4, $5, $6)`,
			log, h.Seq, h.Hash, h.Segment, h.Start, h.At)
		return err
	})
}

// Get returns the value of a name in a bucket, and whether there is one.
func (s *Store) Get(ctx context.Context, bucket, name string) (value string, ok bool, err error) {
	err = s.View(ctx, func(tx *sql.Tx) error {
		return tx.QueryRow(`SELECT value FROM kv WHERE bucket = $1 AND name = $2`, bucket, name).Scan(&value)
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
			bucket, name, value, Stamp(time.Now()))
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
		err := tx.QueryRow(`SELECT value FROM kv WHERE bucket = $1 AND name = $2`, bucket, name).Scan(&old)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		value, keep, err := change(old, err == nil)
		if err != nil {
			return err
		}
		if !keep {
			_, err = tx.Exec(`DELETE FROM kv WHERE bucket = $1 AND name = $2`, bucket, name)
			return err
		}
		_, err = tx.Exec(`INSERT INTO kv (bucket, name, value, at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (bucket, name) DO UPDATE SET value = excluded.value, at = excluded.at`,
			bucket, name, value, Stamp(time.Now()))
		return err
	})
}

// Delete removes a name from a bucket. A missing name is not an error.
func (s *Store) Delete(ctx context.Context, bucket, name string) error {
	return s.Update(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec(`DELETE FROM kv WHERE bucket = $1 AND name = $2`, bucket, name)
		return err
	})
}

// List returns every name and value of a bucket.
func (s *Store) List(ctx context.Context, bucket string) (map[string]string, error) {
	out := map[string]string{}
	err := s.View(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query(`SELECT name, value FROM kv WHERE bucket = $1`, bucket)
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
