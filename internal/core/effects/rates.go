package effects

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/storage/database"
)

// Rates holds rate_limit and concurrency of contracts, for each capability and principal, over all processes of a
// state directory. A call under delegations counts for each principal whose authority it has.
type Rates struct {
	Store   *database.Store
	Process string
	Gone    func(name string) bool
	Now     func() time.Time
}

// Take counts one call. It returns the reason against the call, or a function to say that the call is over. Zero sets
// no limit: the contract's reader writes zero for an unset limit alone. Half a rate allows nothing. A call with a key
// counts when it begins or asks a human: a replay does neither.
func (m *Rates) Take(d policy.Decision) (release func(), why *call.Reason) {
	if !limited(d) {
		return func() {}, nil
	}
	one, name := id.New("u_"), ""
	key, why := keyOf(d)
	if why != nil { // such a call never acts
		return nil, why
	}
	if key != "" {
		one, name = d.Call.ID, nameOf(d.Call, key)
	}
	if name == "" || d.Effect == policy.Ask {
		err := m.Store.Update(context.Background(), func(tx *sql.Tx) error {
			if name != "" {
				if old, err := named(m.Store, tx, name); err != nil || old != nil && old.holds(m.Now()) {
					return err
				}
			}
			return m.count(tx, d, one)
		})
		if why := new(against); errors.As(err, why) {
			return nil, why.Reason
		}
		if errors.Is(err, database.ErrAway) {
			away := call.StoreAway()
			return nil, &away
		}
		if err != nil {
			return nil, uncounted(d)
		}
	}
	return func() {
		_ = m.Store.Update(context.Background(), func(tx *sql.Tx) error { // a process that ends frees its calls, too
			for i := range 1 + len(d.Authority) {
				if _, err := tx.Exec(`UPDATE uses SET live = 0 WHERE id = $1`, fmt.Sprintf("%s.%d", one, i)); err != nil {
					return err
				}
			}
			return nil
		})
	}, nil
}

func limited(d policy.Decision) bool {
	return d.Contract.RateLimit != (contract.Rate{}) || d.Contract.Concurrency != 0
}

// against is the reason against a call, as the error that undoes its transaction.
type against struct{ *call.Reason }

func (a against) Error() string { return a.Code }

func uncounted(d policy.Decision) *call.Reason {
	return reason(d, "rate.unavailable", "rate_limit", "the calls of this capability could not be counted")
}

// count counts a call under a name for each principal, or returns the reason against it.
func (m *Rates) count(tx *sql.Tx, d policy.Decision, one string) error {
	for i, who := range append([]call.Principal{d.Call.Principal}, d.Authority...) {
		u := use{id: fmt.Sprintf("%s.%d", one, i), scope: string(d.Call.Capability) + " " + string(who), at: m.Now()}
		if d.Effect == policy.Ask {
			u.name = string(d.Call.Session) + " " + d.Call.Args.Digest()
		}
		why, err := m.take(tx, d, u)
		if err != nil {
			return err
		}
		if why != nil {
			if i > 0 {
				why.Text += ", of " + string(who) + " as well, whose authority it is"
			}
			return against{why}
		}
	}
	return nil
}

// begin counts a call with a key, unless it counts already: it asked a human, or tries again.
func (m *Rates) begin(tx *sql.Tx, d policy.Decision) error {
	if !limited(d) {
		return nil
	}
	if m == nil {
		return against{uncounted(d)}
	}
	var n int
	err := tx.QueryRow(`SELECT COUNT(*) FROM uses WHERE id = $1`, d.Call.ID+".0").Scan(&n)
	if err != nil || n > 0 {
		return err
	}
	return m.count(tx, d, d.Call.ID)
}

// use is one counted call of one principal. The name is set for calls that wait for a human.
type use struct {
	id, scope, name string
	at              time.Time
}

func (m *Rates) take(tx *sql.Tx, d policy.Decision, u use) (*call.Reason, error) {
	rate, most := d.Contract.RateLimit, d.Contract.Concurrency
	since := database.Stamp(u.at.Add(-max(rate.Per, 0)))
	if _, err := tx.Exec(`DELETE FROM uses WHERE scope = $1 AND live = 0 AND at <= $2`, u.scope, since); err != nil {
		return nil, err
	}
	live, err := m.live(tx, u.scope, most)
	if err != nil {
		return nil, err
	}
	if most != 0 && live >= most {
		return reason(d, "concurrency.exceeded", "concurrency",
			fmt.Sprintf("%d calls are under way, which is the most allowed", live)).In(time.Second), nil
	}
	if rate != (contract.Rate{}) {
		var n int
		var oldest sql.NullString
		err := tx.QueryRow(`SELECT COUNT(*), MIN(at) FROM uses WHERE scope = $1 AND at > $2`, u.scope, since).Scan(&n, &oldest)
		if err != nil {
			return nil, err
		}
		again, err := counted(tx, d, u, since)
		if err != nil {
			return nil, err
		}
		if again {
			u.at = u.at.Add(-rate.Per) // counts as under way alone
		} else if rate.Per <= 0 || n >= rate.Calls {
			wait := rate.Per
			if first, err := time.Parse(time.RFC3339, oldest.String); err == nil {
				wait = first.Add(rate.Per).Sub(u.at)
			}
			return reason(d, "rate.exceeded", "rate_limit",
				fmt.Sprintf("at most %d calls in %s", rate.Calls, rate.Per)).In(wait), nil
		}
	}
	_, err = tx.Exec(`INSERT INTO uses (id, scope, name, process, live, at) VALUES ($1, $2, $3, $4, 1, $5)`, u.id, u.scope,
		u.name, m.Process, database.Stamp(u.at))
	return nil, err
}

// counted reports whether the call quotes an approval and was counted in this window when it asked for it.
func counted(tx *sql.Tx, d policy.Decision, u use, since string) (bool, error) {
	if u.name == "" || d.Call.ApprovalID == "" {
		return false, nil
	}
	var n int
	err := tx.QueryRow(`SELECT COUNT(*) FROM uses WHERE scope = $1 AND name = $2 AND at > $3`, u.scope, u.name, since).Scan(&n)
	return n > 0, err
}

// live counts the calls under way. Where the limit is reached it frees those of processes that have ended.
func (m *Rates) live(tx *sql.Tx, scope string, most int) (n int, err error) {
	count := func() error {
		return tx.QueryRow(`SELECT COUNT(*) FROM uses WHERE scope = $1 AND live = 1`, scope).Scan(&n)
	}
	if err := count(); err != nil || most == 0 || n < most {
		return n, err
	}
	rows, err := tx.Query(`SELECT DISTINCT process FROM uses WHERE scope = $1 AND live = 1`, scope)
	if err != nil {
		return n, err
	}
	var processes []string
	for rows.Next() {
		var p string
		if err := rows.Scan(&p); err != nil {
			_ = rows.Close()
			return n, err
		}
		processes = append(processes, p)
	}
	if err := rows.Close(); err != nil {
		return n, err
	}
	for _, p := range processes {
		if p != m.Process && m.Gone(p) {
			if _, err := tx.Exec(`UPDATE uses SET live = 0 WHERE scope = $1 AND process = $2`, scope, p); err != nil {
				return n, err
			}
		}
	}
	return n, count()
}

// reason quotes the contract's line for the key that refuses the call.
func reason(d policy.Decision, code, key, text string) *call.Reason {
	at := d.Contract.Keys[key]
	if at == (contract.Position{}) {
		at = d.Contract.At
	}
	return &call.Reason{Code: code, Text: text, File: at.File, Line: at.Line, Column: at.Column}
}
