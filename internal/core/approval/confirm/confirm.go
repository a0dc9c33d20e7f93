// Package confirm makes a call in two phases, where its contract asks for that: the first call is previewed, and the
// same call with the token of the preview acts as the contract permits. A token is the agent's own word. It never
// stands for the yes of a human.
package confirm

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/storage/database"
)

// Life is how long a token is good for, and MaxOpen how many a session can have at a time.
const (
	Life    = 10 * time.Minute
	MaxOpen = 100
)

// bucket holds the tokens by their SHA-256, so that a reader of the database cannot use one.
const bucket = "confirms"

// Questions knows the question that a call would put to a human, and whether it was put: approval.Service.
type Questions interface {
	Draw(ctx context.Context, d policy.Decision) (q approval.Question, asked bool, err error)
}

// Confirmer gives and takes tokens. It satisfies broker.Confirmer. Processes share tokens through the store.
type Confirmer struct {
	Store     *database.Store
	Questions Questions
	Now       func() time.Time // nil: time.Now
}

// token is the stored part.
type token struct {
	Binding string       `json:"binding"` // of the question: arguments, session, contract, configuration, preview
	Session call.Session `json:"session"`
	Expires time.Time    `json:"expires"`
	Used    bool         `json:"used"`
}

// Confirm returns nil twice if the call may go on: its contract asks for no preview, the call quotes a good token, or a
// human was asked about the same call after a token. Otherwise it returns a preview with a new token, or why a
// token is refused.
func (k *Confirmer) Confirm(ctx context.Context, d policy.Decision) (*call.Preview, *call.Reason, error) {
	if !d.Contract.Confirm || d.Effect == policy.Deny || d.DryRun {
		return nil, nil, nil
	}
	q, asked, err := k.Questions.Draw(ctx, d)
	if err != nil || asked && d.Effect == policy.Ask {
		return nil, nil, err
	}
	binding := q.Binding()
	if binding == "" {
		return nil, nil, errors.New("confirm: the call has no canonical form")
	}
	if d.Call.Confirm != "" {
		why, err := k.spend(ctx, d.Call, binding)
		return nil, why, err
	}
	return k.preview(ctx, d, q, binding)
}

// spend uses up a token. One of several calls and processes wins.
func (k *Confirmer) spend(ctx context.Context, c call.Call, binding string) (why *call.Reason, err error) {
	err = k.Store.Update(ctx, func(tx *sql.Tx) error {
		var t token
		why = nil
		var text string
		err := tx.QueryRow(`SELECT value FROM kv WHERE bucket = $1 AND name = $2`, bucket, nameOf(c.Confirm)).Scan(&text)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		unread := json.Unmarshal([]byte(text), &t)
		switch {
		case err != nil || unread != nil || t.Session != c.Session:
			why = reason("confirm.unknown", "this session has no preview with that token")
		case t.Used:
			why = reason("confirm.used", "the token was used before; each is good for one call")
		case !k.now().Before(t.Expires):
			why = reason("confirm.expired", "the token was good until "+database.Stamp(t.Expires))
		case t.Binding != binding:
			why = reason("confirm.mismatch", "the token is of the preview of another call: the arguments, the tool, the contract "+
				"or what the call would do differ")
		}
		if why != nil {
			return nil
		}
		t.Used = true
		return put(tx, nameOf(c.Confirm), t)
	})
	return why, err
}

func reason(code, text string) *call.Reason {
	return &call.Reason{Code: code, Text: text + ". Make the call without a token to see a new preview"}
}

// preview stores a new token and shows what the call would do.
func (k *Confirmer) preview(
	ctx context.Context, d policy.Decision, q approval.Question, binding string,
) (p *call.Preview, why *call.Reason, err error) {
	secret := rand.Text()
	t := token{Binding: binding, Session: d.Call.Session, Expires: k.now().Add(Life).Truncate(time.Millisecond)}
	err = k.Store.Update(ctx, func(tx *sql.Tx) error {
		why = nil
		open, err := k.sweep(tx, t.Session)
		if err != nil {
			return err
		}
		if open >= MaxOpen {
			why = reason("confirm.too_many", fmt.Sprintf("%d previews of this session wait for their call", open))
			return nil
		}
		return put(tx, nameOf(secret), t)
	})
	if err != nil || why != nil {
		return nil, why, err
	}
	return &call.Preview{Text: text(d, q, secret), Token: secret}, nil, nil
}

// sweep removes tokens whose time was over long ago, and counts those that a session can still use.
func (k *Confirmer) sweep(tx *sql.Tx, n call.Session) (open int, err error) {
	rows, err := tx.Query(`SELECT name, value FROM kv WHERE bucket = $1`, bucket)
	if err != nil {
		return 0, err
	}
	var old []string
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return 0, errors.Join(err, rows.Close())
		}
		var t token
		switch unread := json.Unmarshal([]byte(text), &t); {
		case unread != nil || k.now().After(t.Expires.Add(Life)):
			old = append(old, name)
		case t.Session == n && !t.Used && k.now().Before(t.Expires):
			open++
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return 0, err
	}
	for _, name := range old {
		if _, err := tx.Exec(`DELETE FROM kv WHERE bucket = $1 AND name = $2`, bucket, name); err != nil {
			return 0, err
		}
	}
	return open, nil
}

func put(tx *sql.Tx, name string, t token) error {
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO kv (bucket, name, value, at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (bucket, name) DO UPDATE SET value = excluded.value`, bucket, name, string(b), database.Stamp(t.Expires))
	return err
}

func nameOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func (k *Confirmer) now() time.Time {
	if k.Now != nil {
		return k.Now()
	}
	return time.Now()
}

// text is the preview for the agent. It has waldo's findings for humans, such as the values of tokens, left out.
func text(d policy.Decision, q approval.Question, secret string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "waldo: this is a preview. Nothing was done yet.\nThe call of %s (%s, danger %d of 3) would run", q.Capability,
		q.Mode, q.Danger)
	if d.Effect == policy.Ask {
		b.WriteString(", after a human has agreed")
	}
	fmt.Fprintf(&b, ".\n")
	b.WriteString(q.Exactly())
	fmt.Fprintf(&b, "To have it done, make the same call again with %s: %q as one more argument, within %d minutes. "+
		"The token is good for this call alone, once.", cmp.Or(d.Call.Confirms, "confirm"), secret, int(Life/time.Minute))
	return b.String()
}
