package delegation

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/storage/database"
)

// Shared is a log of delegations and the rows in which waldos of one database exchange them. A row is taken into the log
// before it counts, and only with the mark of a waldo that has the key of the store.
type Shared struct {
	Log
	Store *database.Store // nil, or without marks: this log is alone
}

// The rows of a delegation in the bucket: its record under its id, and these after a space.
const (
	bucket    = "delegations"
	rowEnded  = "revoked" // the record of its end
	rowCalled = "calls"   // how many calls it has had at all replicas
)

func (s Shared) alone() bool { return s.Store == nil || !s.Store.Shared() || !s.Store.Marks() }

// rows are what the database has of one delegation.
type rows struct {
	created, ended *Record
	called         int
	counted        bool
}

// read returns the rows of a delegation. A creation without its mark counts as absent; other rows must have theirs.
func (s Shared) read(tx *sql.Tx, id string) (r rows, err error) {
	all, err := tx.Query(`SELECT name, value FROM kv WHERE bucket = $1 AND name IN ($2, $3, $4)`, bucket,
		id, id+" "+rowEnded, id+" "+rowCalled)
	if err != nil {
		return r, err
	}
	defer func() { _ = all.Close() }()
	for all.Next() {
		var name, marked string
		if err := all.Scan(&name, &marked); err != nil {
			return r, err
		}
		text, err := s.Store.Unmark(marked, bucket, name)
		_, kind, _ := strings.Cut(name, " ")
		switch {
		case kind == "" && errors.Is(err, database.ErrForged):
			continue
		case err != nil:
		case kind == rowCalled:
			r.counted = true
			r.called, err = strconv.Atoi(text)
		case kind == rowEnded:
			err = json.Unmarshal([]byte(text), &r.ended)
		default:
			err = json.Unmarshal([]byte(text), &r.created)
		}
		if err != nil {
			return r, fmt.Errorf("delegation: the row %s: %w", name, err)
		}
	}
	return r, all.Err()
}

// write writes a row with its mark. It stays until a delegation is made after its expiry.
func (s Shared) write(tx *sql.Tx, name, text string, expires time.Time) error {
	marked, err := s.Store.Mark(text, bucket, name)
	if err == nil {
		_, err = tx.Exec(`INSERT INTO kv (bucket, name, value, at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (bucket, name) DO UPDATE SET value = excluded.value, at = excluded.at`,
			bucket, name, marked, database.Stamp(expires))
	}
	return err
}

// tell writes what the log has of a delegation, and the rows have not.
func (s Shared) tell(ctx context.Context, e entry, there rows) error {
	if there.created != nil && (e.end == nil || there.ended != nil) {
		return nil
	}
	return s.Store.Update(ctx, func(tx *sql.Tx) error {
		for name, r := range map[string]*Record{e.ID: &e.made, e.ID + " " + rowEnded: e.end} {
			if r == nil {
				continue
			}
			if r.From == "" {
				own := *r
				own.From, r = s.Store.Place(), &own
			}
			text, err := json.Marshal(r)
			if err == nil {
				err = s.write(tx, name, string(text), e.Expires)
			}
			if err != nil {
				return err
			}
		}
		_, err := tx.Exec(`DELETE FROM kv WHERE bucket = $1 AND at < $2`, bucket, database.Stamp(e.Created))
		return err
	})
}

// Exchange takes what other replicas recorded of a delegation and of those above it into the log, and gives them what
// the log has.
func (s Shared) Exchange(ctx context.Context, leaf string) error {
	if s.alone() {
		return nil
	}
	above := map[string]string{}
	err := s.Delegations(ctx, func(l *Ledger) {
		for e := l.links[leaf]; e != nil; e = l.links[e.Parent] {
			above[e.ID] = e.Parent
		}
	})
	var ids []string
	var there []rows
	if err == nil {
		err = s.Store.View(ctx, func(tx *sql.Tx) error {
			for one := leaf; one != "" && len(ids) <= maxDepth; {
				r, err := s.read(tx, one)
				if err != nil {
					return err
				}
				ids, there, one = append(ids, one), append(there, r), above[one]
				if r.created != nil {
					one = r.created.Parent
				}
			}
			return nil
		})
	}
	for i, one := range slices.Backward(ids) { // a parent comes first
		if err == nil {
			err = s.meet(ctx, one, there[i])
		}
	}
	return err
}

// meet brings the log and the rows of one delegation together.
func (s Shared) meet(ctx context.Context, one string, there rows) error {
	var have *entry
	var fault error
	err := s.Delegations(ctx, func(l *Ledger) {
		if e := l.links[one]; e != nil {
			have = new(*e)
		} else if there.created != nil {
			have, fault = l.sound(0, *there.created)
		}
	})
	if err = errors.Join(err, fault); have == nil || err != nil {
		return err
	}
	if have.Seq == 0 {
		if have.ID != one || have.made.From == s.Store.Place() { // this log had it once, and has lost it
			return nil
		}
		if err := s.Log.Delegate(ctx, have.made); err != nil {
			return err
		}
	}
	if end := there.ended; end != nil && have.end == nil {
		if end.ID != one || end.Action != Revoked {
			return database.ErrForged
		}
		if err := s.Log.Delegate(ctx, *end); err != nil {
			return err
		}
		have.end = end
	}
	return s.tell(ctx, *have, there)
}

// Delegate appends a record, and gives it to the other replicas.
func (s Shared) Delegate(ctx context.Context, r Record) error {
	err := s.Log.Delegate(ctx, r)
	if err == nil {
		err = s.Exchange(ctx, r.ID)
	}
	return err
}

// spend counts a call against each delegation of its chain at all replicas, once. It returns why the call cannot be
// carried out: one was revoked, or has no calls left.
func (s Shared) spend(ctx context.Context, c *Chain) (why *call.Reason, err error) {
	if s.alone() {
		return nil, nil
	}
	err = s.Store.Update(ctx, func(tx *sql.Tx) error {
		why = nil // a transaction can be repeated
		called := make([]int, len(c.Links))
		for i, l := range c.Links {
			there, err := s.read(tx, l.ID)
			if called[i] = there.called; !there.counted {
				called[i] = l.Used
			}
			switch {
			case err != nil:
				return err
			case there.ended != nil:
				why = &call.Reason{Code: CodeRevoked, Text: l.ID + " was revoked"}
				return nil
			case !c.counted && called[i] >= l.Calls:
				why = overspent(l)
				return nil
			}
		}
		for i, l := range c.Links {
			if c.counted {
				break
			}
			if err := s.write(tx, l.ID+" "+rowCalled, strconv.Itoa(called[i]+1), l.Expires); err != nil {
				return err
			}
		}
		return nil
	})
	c.counted = c.counted || err == nil && why == nil
	return why, err
}
