// Package inbox is the durable queue of webhooks: accepted ones until their target has them, outgoing ones until
// their receiver has them. It also remembers which ones were accepted, so that a replay has no effect.
package inbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"waldo/internal/model/id"
	"waldo/internal/storage/database"
)

// The targets of a delivery.
const (
	Agent = "agent" // waldo agent takes it
	Tool  = "tool"  // one capability, called through the pipeline
	Out   = "out"   // a receiver elsewhere
)

// The states of a delivery. One that is done has no row.
const (
	Queued  = "queued"
	Claimed = "claimed"
	Dead    = "dead" // it waits for the operator: retry or drop
)

// Limits of one hook's deliveries that are not done, dead ones included.
const (
	MaxWaiting = 1000
	MaxBytes   = 256 << 20 // of bodies
)

// Kind is the kind of record about deliveries.
const Kind = "webhook"

// Operator changes deliveries for the operator, and records each change before it is made.
type Operator interface {
	Retry(ctx context.Context, id string, by string) (*Delivery, error)
	Drop(ctx context.Context, id string, by string) (*Delivery, error)
}

// Deliveries hands over webhooks, each to one process at a time.
type Deliveries interface {
	// Claim takes the delivery that is due longest for a target; nil: nothing is due. A claim whose process has ended goes
	// to the next one that asks. Its Work is then the one that the ended process began.
	Claim(ctx context.Context, target string) (*Delivery, error)
	// Begin notes, before the work begins, the id that it has elsewhere: a call, a run of an agent.
	Begin(ctx context.Context, d *Delivery, work string) error
	// Done ends a delivery: its target has it.
	Done(ctx context.Context, d *Delivery) error
	// Fail ends a claim without success. The delivery is due again later, or dead.
	Fail(ctx context.Context, d *Delivery, why Failure) error
}

// Failure is why a claim ended without success.
type Failure struct {
	Reason string        // for the operator, at most maxReason bytes
	Final  bool          // another try would not help
	Free   bool          // it counts as no try: a human has not answered yet
	After  time.Duration // until the next try; 0: Backoff
	Max    int           // tries before the delivery is dead; 0: MaxTries
}

// Dead reports whether a delivery that was claimed waits for the operator after a failure.
func (f Failure) Dead(d *Delivery) bool {
	most := f.Max
	if most <= 0 {
		most = MaxTries
	}
	return f.Final || f.tries(d) >= most
}

// tries are those of a delivery that count.
func (f Failure) tries(d *Delivery) int {
	if f.Free {
		return d.Tries - 1
	}
	return d.Tries
}

// Text is the reason as it is stored.
func (f Failure) Text() string { return f.Reason[:min(len(f.Reason), maxReason)] }

// MaxTries is the usual number of tries. The last one is one to two and a half hours after the first.
const MaxTries = 8

const maxReason = 500

// Delivery is one webhook.
type Delivery struct {
	ID     string    // "h_…"
	Hook   string    // its name in waldo.yaml; of an outgoing one, the host of its receiver
	Target string    // Agent, Tool or Out
	State  string    // Queued, Claimed or Dead
	Due    time.Time // of the next try
	Tries  int       // claims so far, this one included
	Work   string    // the id that Begin noted; empty: the work has not begun
	Reason string    // of the last failure
	Size   int       // bytes of the body
	About
	Body []byte // as it came, byte for byte; nil in lists

	Foreign bool // another host can have written it: hosts share the database, and its mark is right

	claim int64
}

// About has the further facts of a delivery.
type About struct {
	At          time.Time `json:"at"`                // received, or sent for the first time
	Name        string    `json:"name,omitempty"`    // the sender's id of it, at most 256 bytes
	Event       string    `json:"event,omitempty"`   // the sender's name for it; not signed with every scheme
	ContentType string    `json:"type,omitempty"`    // as the sender wrote it
	URL         string    `json:"url,omitempty"`     // of the receiver
	Key         string    `json:"key,omitempty"`     // the name of the secret that signs, never the secret
	Private     bool      `json:"private,omitempty"` // the receiver can have an address that is not public
	By          string    `json:"by,omitempty"`      // the principal who sends it
}

// Digest binds all that a delivery is to the log: not its state, tries and work.
func (d *Delivery) Digest() string {
	text, err := json.Marshal([]any{d.ID, d.Hook, d.Target, d.About, sha256.Sum256(d.Body)})
	if err != nil {
		return "" // no log has it
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// Queue satisfies Deliveries over a database.
type Queue struct {
	Store  *database.Store
	Holder string                   // the name of this process; empty: it can claim nothing
	Gone   func(holder string) bool // whether a process has ended
	Now    func() time.Time         // nil: time.Now
	Bytes  int64                    // of the bodies of one hook; 0: MaxBytes
}

var _ Deliveries = (*Queue)(nil)

// The errors of a queue.
var (
	ErrLost = errors.New("the delivery is claimed by another waldo, or was dropped")
	ErrNone = errors.New("no such delivery")
	ErrHeld = errors.New("a running waldo works on the delivery")
)

func (q *Queue) now() time.Time {
	if q.Now != nil {
		return q.Now()
	}
	return time.Now()
}

// Seen identifies a webhook, so that it is accepted once.
type Seen struct {
	Name   string    // unique within the hook
	Signed time.Time // the signed time; zero: the scheme has none
	Until  time.Time // when it can be forgotten; zero: never
}

// Verdict is the result of Accept.
type Verdict int

// The zero Verdict accepts nothing.
const (
	Refused  Verdict = iota
	Stored           // it is in the queue
	Repeated         // accepted earlier; the sender signed it again, later
	Replayed         // accepted earlier, with this signature or a later one
	Full             // too many deliveries of the hook wait
)

// New gives a delivery its id, and reports whether Accept would store it: no webhook with its name was accepted, and the
// queue has room.
func (q *Queue) New(ctx context.Context, d *Delivery, name string) (is bool, err error) {
	d.ID = id.New(id.Delivery)
	err = q.Store.View(ctx, func(tx *sql.Tx) error {
		var seen int
		if err := tx.QueryRow(`SELECT COUNT(*) FROM seen_webhooks WHERE hook = $1 AND name = $2 AND until >= $3`, d.Hook, name,
			database.Stamp(q.now())).Scan(&seen); err != nil {
			return err
		}
		full, err := q.full(tx, d)
		is = seen == 0 && !full
		return err
	})
	return is, err
}

// Accept stores a delivery and remembers it, in one transaction. It is on the disk when Accept returns Stored.
func (q *Queue) Accept(ctx context.Context, d *Delivery, s Seen) (v Verdict, err error) {
	at := database.Stamp(q.now())
	signed, until := int64(0), "9999"
	if !s.Signed.IsZero() {
		signed = s.Signed.Unix()
	}
	if !s.Until.IsZero() {
		until = database.Stamp(s.Until)
	}
	err = q.Store.Update(ctx, func(tx *sql.Tx) error {
		if _, err := tx.Exec(`DELETE FROM seen_webhooks WHERE until < $1`, at); err != nil {
			return err
		}
		var last int64
		switch err := tx.QueryRow(`SELECT signed FROM seen_webhooks WHERE hook = $1 AND name = $2`, d.Hook, s.Name).
			Scan(&last); {
		case err == nil && signed > last:
			v = Repeated
			_, err := tx.Exec(`UPDATE seen_webhooks SET signed = $1, until = $2 WHERE hook = $3 AND name = $4`,
				signed, until, d.Hook, s.Name)
			return err
		case err == nil:
			v = Replayed
			return nil
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		if full, err := q.full(tx, d); full || err != nil {
			v = Full
			return err
		}
		if _, err := tx.Exec(`INSERT INTO seen_webhooks (hook, name, signed, until) VALUES ($1, $2, $3, $4)`,
			d.Hook, s.Name, signed, until); err != nil {
			return err
		}
		v = Stored
		return q.insert(tx, d, false)
	})
	if err != nil {
		return Refused, fmt.Errorf("webhooks: %w", err)
	}
	return v, nil
}

// Add stores a delivery that needs no memory of it: an outgoing one. It is claimed by this process.
func (q *Queue) Add(ctx context.Context, d *Delivery) error {
	return q.Store.Update(ctx, func(tx *sql.Tx) error {
		full, err := q.full(tx, d)
		if full {
			err = NoRoom(d)
		}
		if err == nil {
			err = q.insert(tx, d, q.Holder != "")
		}
		return err
	})
}

// NoRoom is the error for an outgoing delivery that the queue has no room for.
func NoRoom(d *Delivery) error {
	return fmt.Errorf("%d deliveries for %s wait already: waldo hook list shows them", MaxWaiting, d.Hook)
}

func (q *Queue) full(tx *sql.Tx, d *Delivery) (bool, error) {
	var n, bytes int64
	err := tx.QueryRow(`SELECT COUNT(*), COALESCE(SUM(size), 0) FROM deliveries WHERE hook = $1`, d.Hook).Scan(&n, &bytes)
	return err == nil && (n >= MaxWaiting || bytes+int64(len(d.Body)) > cmp.Or(q.Bytes, MaxBytes)), err
}

// insert stores a delivery that is due now, under a fresh id where it has none, claimed by this process or not.
func (q *Queue) insert(tx *sql.Tx, d *Delivery, claimed bool) error {
	if d.ID == "" {
		d.ID = id.New(id.Delivery)
	}
	d.State, d.Size, d.Due = Queued, len(d.Body), q.now()
	holder := ""
	if claimed {
		d.State, d.Tries, d.claim, holder = Claimed, 1, 1, q.Holder
	}
	text, err := json.Marshal(d.About)
	if err != nil {
		return err
	}
	about, err := q.Store.Mark(string(text), table, d.Digest())
	if err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO deliveries (id, hook, target, state, due, tries, claim, holder, work, reason, size,
		about, body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '', '', $9, $10, $11)`,
		d.ID, d.Hook, d.Target, d.State, database.Stamp(d.Due), d.Tries, d.claim, holder, d.Size, about,
		base64.StdEncoding.EncodeToString(d.Body))
	return err
}

// Claim satisfies Deliveries.
func (q *Queue) Claim(ctx context.Context, target string) (*Delivery, error) {
	if q.Holder == "" {
		return nil, errors.New("webhooks: this system does not show which waldo is at work, so none takes a delivery")
	}
	for range 8 { // another process can be faster
		d, holder, err := q.candidate(ctx, target)
		if d == nil || err != nil {
			return nil, err
		}
		if taken, err := q.take(ctx, d, holder); taken || err != nil {
			return d, err
		}
	}
	return nil, nil
}

// take claims a delivery as it was read, of a holder; false: another process was faster.
func (q *Queue) take(ctx context.Context, d *Delivery, holder string) (taken bool, err error) {
	err = q.Store.Update(ctx, func(tx *sql.Tx) error {
		r, err := tx.Exec(`UPDATE deliveries SET state = $1, holder = $2, claim = claim + 1, tries = tries + 1
			WHERE id = $3 AND claim = $4 AND state = $5 AND holder = $6`,
			Claimed, q.Holder, d.ID, d.claim, d.State, holder)
		taken = err == nil && changed(r)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("webhooks: %w", err)
	}
	d.State, d.Tries = Claimed, d.Tries+1
	d.claim++
	return taken, nil
}

// candidate returns a delivery that can be claimed now: one of a process that has ended, or one that is due.
func (q *Queue) candidate(ctx context.Context, target string) (*Delivery, string, error) {
	holders, err := q.holders(ctx, target)
	if err != nil {
		return nil, "", err
	}
	for _, h := range holders {
		if h == q.Holder || !q.Gone(h) {
			continue
		}
		d, err := q.first(ctx, `target = $1 AND state = $2 AND holder = $3`, target, Claimed, h)
		if d != nil || err != nil {
			return d, h, err
		}
	}
	d, err := q.first(ctx, `target = $1 AND state = $2 AND holder = '' AND due <= $3`, target, Queued,
		database.Stamp(q.now()))
	return d, "", err
}

func (q *Queue) holders(ctx context.Context, target string) (all []string, err error) {
	err = q.Store.View(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query(`SELECT DISTINCT holder FROM deliveries WHERE target = $1 AND state = $2`, target, Claimed)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var h string
			if err := rows.Scan(&h); err != nil {
				return err
			}
			all = append(all, h)
		}
		return rows.Err()
	})
	return all, err
}

// Begin satisfies Deliveries.
func (q *Queue) Begin(ctx context.Context, d *Delivery, work string) error {
	err := q.held(ctx, d, `UPDATE deliveries SET work = $1 WHERE id = $2 AND claim = $3 AND state = $4`, work)
	if err == nil {
		d.Work = work
	}
	return err
}

// Done satisfies Deliveries.
func (q *Queue) Done(ctx context.Context, d *Delivery) error {
	return q.held(ctx, d, `DELETE FROM deliveries WHERE $1 = '' AND id = $2 AND claim = $3 AND state = $4`, "")
}

// Fail satisfies Deliveries.
func (q *Queue) Fail(ctx context.Context, d *Delivery, why Failure) error {
	tries := why.tries(d)
	state := Queued
	if why.Dead(d) {
		state = Dead
	}
	if why.After <= 0 {
		why.After = Backoff(tries)
	}
	why.Reason = why.Text()
	due := q.now().Add(why.After)
	err := q.Store.Update(ctx, func(tx *sql.Tx) error {
		r, err := tx.Exec(`UPDATE deliveries SET state = $1, due = $2, tries = $3, reason = $4, holder = ''
			WHERE id = $5 AND claim = $6 AND state = $7`, state, database.Stamp(due), tries, why.Reason, d.ID, d.claim, Claimed)
		if err == nil && !changed(r) {
			err = ErrLost
		}
		return err
	})
	if err == nil {
		d.State, d.Tries, d.Due, d.Reason = state, tries, due, why.Reason
	}
	return err
}

// held changes the row of a claimed delivery; ErrLost: it is not this process's any more.
func (q *Queue) held(ctx context.Context, d *Delivery, query, first string) error {
	return q.Store.Update(ctx, func(tx *sql.Tx) error {
		r, err := tx.Exec(query, first, d.ID, d.claim, Claimed)
		if err == nil && !changed(r) {
			err = ErrLost
		}
		return err
	})
}

func changed(r sql.Result) bool {
	n, err := r.RowsAffected()
	return err == nil && n == 1
}

// Backoff is the time until the next try: 5 s after the first, four times as long after each, at most an hour. Up to
// half of it, by chance, is left out.
func Backoff(tries int) time.Duration {
	full := min(5*time.Second<<(2*min(max(tries-1, 0), 6)), time.Hour)
	return full/2 + rand.N(full/2)
}
