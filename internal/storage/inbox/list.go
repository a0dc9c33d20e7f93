package inbox

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"waldo/internal/storage/database"
)

const columns = `id, hook, target, state, due, tries, claim, work, reason, size, about`

const table = "deliveries" // in marks

// scan reads a row of columns, and of the body where body is not nil.
func (q *Queue) scan(row func(to ...any) error, body *string) (*Delivery, error) {
	d, due, about := &Delivery{}, "", ""
	to := []any{&d.ID, &d.Hook, &d.Target, &d.State, &due, &d.Tries, &d.claim, &d.Work, &d.Reason, &d.Size, &about}
	if body != nil {
		to = append(to, body)
	}
	err := row(to...)
	if err == nil {
		d.Due, err = time.Parse(time.RFC3339, due)
	}
	if err == nil {
		err = json.Unmarshal([]byte(database.Unmarked(about)), &d.About)
	}
	if err == nil && body != nil {
		d.Body, err = base64.StdEncoding.DecodeString(*body)
	}
	if err == nil && body != nil && q.Store.Shared() {
		_, err = q.Store.Unmark(about, table, d.Digest())
		if d.Foreign = err == nil; errors.Is(err, database.ErrForged) {
			err = nil
		}
	}
	return d, err
}

// first returns the delivery that is due longest of those that a condition names; nil: none.
func (q *Queue) first(ctx context.Context, where string, args ...any) (d *Delivery, err error) {
	err = q.Store.View(ctx, func(tx *sql.Tx) error {
		var body string
		d, err = q.scan(tx.QueryRow(`SELECT `+columns+`, body FROM deliveries WHERE `+where+` ORDER BY due, id LIMIT 1`,
			args...).Scan, &body)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("webhooks: %w", err)
	}
	return d, nil
}

// List returns the deliveries that are not done, oldest first, without their bodies.
func (q *Queue) List(ctx context.Context) (all []*Delivery, err error) {
	err = q.Store.View(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query(`SELECT ` + columns + ` FROM deliveries ORDER BY id`)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			d, err := q.scan(rows.Scan, nil)
			if err != nil {
				return err
			}
			all = append(all, d)
		}
		return rows.Err()
	})
	return all, err
}

// Get returns a delivery with its body, or ErrNone.
func (q *Queue) Get(ctx context.Context, id string) (*Delivery, error) {
	d, err := q.first(ctx, `id = $1`, id)
	if err == nil && d == nil {
		err = ErrNone
	}
	return d, err
}

// Retry makes a dead or queued delivery due now, with all its tries. Its earlier work is forgotten: the operator has
// decided that it may be done again.
func (q *Queue) Retry(ctx context.Context, id string) error {
	return q.byHand(ctx, id, func(tx *sql.Tx) error {
		_, err := tx.Exec(`UPDATE deliveries SET state = $1, due = $2, tries = 0, work = '', holder = '' WHERE id = $3`,
			Queued, database.Stamp(q.now()), id)
		return err
	})
}

// Drop removes a delivery that no running waldo works on. A replay of it is still refused.
func (q *Queue) Drop(ctx context.Context, id string) error {
	return q.byHand(ctx, id, func(tx *sql.Tx) error {
		_, err := tx.Exec(`DELETE FROM deliveries WHERE id = $1`, id)
		return err
	})
}

// byHand changes a delivery for the operator, unless a running waldo works on it.
func (q *Queue) byHand(ctx context.Context, id string, change func(tx *sql.Tx) error) error {
	return q.Store.Update(ctx, func(tx *sql.Tx) error {
		var state, holder string
		err := tx.QueryRow(`SELECT state, holder FROM deliveries WHERE id = $1`, id).Scan(&state, &holder)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return ErrNone
		case err != nil:
			return err
		case state == Claimed && !q.Gone(holder):
			return ErrHeld
		}
		return change(tx)
	})
}

// Take claims one delivery to a target, if it is queued and due; nil: it is not.
func (q *Queue) Take(ctx context.Context, id, target string) (*Delivery, error) {
	d, err := q.first(ctx, `id = $1 AND target = $2 AND state = $3 AND due <= $4`, id, target, Queued,
		database.Stamp(q.now()))
	if d == nil || err != nil {
		return nil, err
	}
	taken, err := q.take(ctx, d, "")
	if !taken {
		d = nil
	}
	return d, err
}

// Seize claims the queued deliveries to a target that meant names, also those that are not due, and returns them
// without
// their bodies.
func (q *Queue) Seize(ctx context.Context, target string, meant func(*Delivery) bool) (all []*Delivery, err error) {
	queued, err := q.List(ctx)
	for _, d := range queued {
		if d.Target != target || d.State != Queued || !meant(d) {
			continue
		}
		taken, terr := q.take(ctx, d, "")
		if err = errors.Join(err, terr); taken {
			all = append(all, d)
		}
	}
	return all, err
}
