package programs

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"waldo/internal/storage/database"
	"waldo/internal/storage/safefile"
)

// Programs of replicas are rows: what a program is, for lists, and all of it, sealed with the key of the store. The
// bucket of the first row decides who goes on with the program.
const (
	waiting = "programs"
	gone    = "programs.taken"
	sealed  = "programs.sealed"
)

// label is what lists show of a program, as its first row has it.
func label(p Program) string {
	p.Image, p.Start = nil, nil
	b, _ := json.Marshal(p) // texts and a time always encode
	return string(b)
}

// saveRow stores a program for every replica.
func (s Store) saveRow(p Program, name string) error {
	key, err := s.Rows.Key(sealed)
	if err != nil {
		return err
	}
	b, err := seal(key, p, name)
	if err != nil {
		return err
	}
	return s.Rows.Update(context.Background(), func(tx *sql.Tx) error {
		var n int
		if err := tx.QueryRow(`SELECT COUNT(*) FROM kv WHERE bucket = $1`, waiting).Scan(&n); err != nil {
			return err
		}
		if n >= Most {
			return fmt.Errorf("programs: %d are suspended, which is the most", Most)
		}
		_, err := tx.Exec(`INSERT INTO kv (bucket, name, value, at) VALUES ($1, $2, $3, $4), ($5, $2, $6, $4)`,
			waiting, name, label(p), database.Stamp(p.At), sealed, base64.StdEncoding.EncodeToString(b))
		return err
	})
}

// lookRow returns the program of a row, and whether it was taken. Only what is sealed is evidence: a first row that
// differs could hide the program from those who remove it.
func (s Store) lookRow(name string) (p Program, went bool, err error) {
	if s.Rows == nil || !s.Rows.Shared() || !s.Rows.Marks() {
		return p, false, ErrAbsent
	}
	var bucket, said, text string
	err = s.Rows.View(context.Background(), func(tx *sql.Tx) error {
		return tx.QueryRow(`SELECT a.bucket, a.value, b.value FROM kv a JOIN kv b ON b.bucket = $1 AND b.name = a.name
			WHERE a.bucket IN ($2, $3) AND a.name = $4`, sealed, waiting, gone, name).Scan(&bucket, &said, &text)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return p, false, ErrAbsent
	}
	if err != nil {
		return p, false, err
	}
	key, err := s.Rows.Key(sealed)
	if err != nil {
		return p, false, err
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		p, err = unseal(key, b, name)
	}
	if err == nil && label(p) != said {
		err = errors.New("its row was changed")
	}
	if err != nil {
		return Program{}, false, errors.Join(ErrDamaged, err)
	}
	return p, bucket == gone, nil
}

// takeRow takes a program that one of the replicas suspended. Of several takers the database lets one go on. What this
// state directory has taken stays noted in it, so that a row which is put back has no effect here.
func (s Store) takeRow(name, principal string) (Program, error) {
	p, went, err := s.lookRow(name)
	switch {
	case err != nil:
		return Program{}, err
	case p.Principal != principal || time.Since(p.At) > Retention:
		return Program{}, ErrAbsent
	case went:
		return Program{}, ErrRunning
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return Program{}, err
	}
	note := filepath.Join(s.Dir, name+taken)
	if err := safefile.Create(note, nil, 0o600); errors.Is(err, os.ErrExist) {
		return Program{}, ErrRunning
	} else if err != nil {
		return Program{}, err
	}
	mine, err := s.move(name, waiting, gone)
	if err == nil && !mine {
		return Program{}, errors.Join(ErrRunning, os.Remove(note))
	}
	return p, err // after an error the note stays: the row may be taken
}

// noted reports whether a program that this state directory has taken is one of rows: its note is an empty file.
func (s Store) noted(name string) bool {
	info, err := os.Stat(filepath.Join(s.Dir, name+taken))
	return err == nil && info.Size() == 0
}

// move moves the first row of a program, and reports whether it was there.
func (s Store) move(name, from, to string) (was bool, err error) {
	err = s.Rows.Update(context.Background(), func(tx *sql.Tx) error {
		r, err := tx.Exec(`UPDATE kv SET bucket = $1 WHERE bucket = $2 AND name = $3`, to, from, name)
		if err != nil {
			return err
		}
		n, err := r.RowsAffected()
		was = n == 1
		return err
	})
	return was, err
}

// drop removes the rows of programs, and returns how many there were.
func (s Store) drop(names ...string) (n int, err error) {
	err = s.Rows.Update(context.Background(), func(tx *sql.Tx) error {
		n = 0
		for _, name := range names {
			if _, err := tx.Exec(`DELETE FROM kv WHERE bucket = $1 AND name = $2`, sealed, name); err != nil {
				return err
			}
			r, err := tx.Exec(`DELETE FROM kv WHERE bucket IN ($1, $2) AND name = $3`, waiting, gone, name)
			if err != nil {
				return err
			}
			k, err := r.RowsAffected()
			if n += int(k); err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}

// listRows returns the programs of all replicas, as their rows have them.
func (s Store) listRows() (all []Listed, err error) {
	if s.Rows == nil || !s.Rows.Shared() {
		return nil, nil
	}
	err = s.Rows.View(context.Background(), func(tx *sql.Tx) error {
		all = nil
		rows, err := tx.Query(`SELECT a.name, a.bucket, a.value, octet_length(b.value) FROM kv a
			JOIN kv b ON b.bucket = $1 AND b.name = a.name WHERE a.bucket IN ($2, $3)`, sealed, waiting, gone)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var l Listed
			var bucket, said string
			if err := rows.Scan(&l.ID, &bucket, &said, &l.Bytes); err != nil {
				return err
			}
			if l.Taken = bucket == gone; json.Unmarshal([]byte(said), &l.Program) == nil {
				all = append(all, l)
			}
		}
		return rows.Err()
	})
	return all, err
}

// removeRows removes the rows of programs that match, and returns how many.
func (s Store) removeRows(match func(Program) bool) (int, error) {
	all, err := s.listRows()
	all = slices.DeleteFunc(all, func(l Listed) bool { return !match(l.Program) })
	if err != nil || len(all) == 0 {
		return 0, err
	}
	var names []string
	for _, l := range all {
		names = append(names, l.ID)
	}
	return s.drop(names...)
}

// sweepRows removes rows from before a time.
func (s Store) sweepRows(before time.Time) error {
	if s.Rows == nil || !s.Rows.Shared() {
		return nil
	}
	return s.Rows.Update(context.Background(), func(tx *sql.Tx) error {
		_, err := tx.Exec(`DELETE FROM kv WHERE bucket IN ($1, $2, $3) AND at < $4`, waiting, gone, sealed,
			database.Stamp(before))
		return err
	})
}
