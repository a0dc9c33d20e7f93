package effects

import (
	"cmp"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/database"
)

// stored is the result of a call as it was shown to the agent. Its texts are UTF-8: a row holds no others, and digest
// is the same before and after.
type stored struct {
	Status     facts.Status     `json:"status"`
	IsError    bool             `json:"is_error"`
	Trust      uint8            `json:"trust"`
	Content    []block          `json:"content"`
	Structured json.RawMessage  `json:"structured,omitempty"`
	Masked     int              `json:"masked,omitempty"`
	SideEffect facts.SideEffect `json:"side_effect"`
	LeftOut    int              `json:"left_out,omitempty"` // bytes of content that were too long
}

type block struct {
	Type string          `json:"type"`
	Text string          `json:"text,omitempty"`
	Raw  json.RawMessage `json:"raw,omitempty"`
}

func store(r call.Result) *stored {
	s := &stored{Status: r.Status, IsError: r.IsError, Trust: uint8(r.Trust), Masked: r.Facts.Masked,
		SideEffect: r.Facts.SideEffect}
	if n := r.Size(); n > MaxResult {
		s.LeftOut = int(n)
		return s
	}
	for _, c := range r.Content {
		k := block{Type: c.Type, Text: strings.ToValidUTF8(c.Text, "\ufffd")}
		if !c.Raw.IsZero() {
			k.Raw = c.Raw.Raw()
		}
		s.Content = append(s.Content, k)
	}
	if !r.Structured.IsZero() {
		s.Structured = r.Structured.Raw()
	}
	return s
}

// stateOf returns what a result means for its call. Empty: it was never sent, so that its key is free again.
func stateOf(r call.Result, answered bool) State {
	switch {
	case r.Status == facts.OK || answered:
		return Ended
	case r.Facts.SideEffect == facts.None:
		return ""
	case r.Facts.SideEffect == facts.Confirmed:
		return Ended
	}
	return Unknown
}

// replay returns the recorded result as the answer to a new call.
func (e *Entry) replay(d policy.Decision) *call.Result {
	f := facts.New()
	f.CallID, f.DecisionID, f.SideEffect = d.Call.ID, d.ID, facts.None // of this call
	r := &call.Result{CallID: d.Call.ID, DecisionID: d.ID, Replayed: e.ID, Status: facts.OK, Undo: e.Undo, Why: []call.Reason{{
		Code: "idempotency.replayed", Text: "this is the recorded result of " + e.ID}}}
	s := e.result
	if e.State == Happened || s == nil {
		r.Trust, r.Settled = call.Trusted, call.Happened
		text := "waldo: the call " + e.ID + " with this key took effect; its answer was lost."
		if d.Contract.Rollback.By != "" {
			text += " So what would undo it is not known."
		}
		r.Content = []call.Content{call.Text(text)}
	} else {
		r.Status, r.IsError, r.Trust, f.Masked = s.Status, s.IsError, call.Trust(s.Trust), s.Masked
		for _, k := range s.Content {
			c := call.Content{Type: k.Type, Text: k.Text}
			c.Raw, _ = strictjson.Parse(k.Raw) // of the database; a part that cannot be read is empty
			r.Content = append(r.Content, c)
		}
		r.Structured, _ = strictjson.Parse(s.Structured)
		if s.LeftOut > 0 {
			r.Content = []call.Content{call.Text(fmt.Sprintf("waldo: the call %s with this key ended as %s. Its result of %d bytes "+
				"was too long to be remembered.", e.ID, s.Status, s.LeftOut))}
		}
	}
	if e.Undone != "" {
		r.Undo = nil
		by := ""
		if id.Is(id.Call, e.Undone) { // the row alone says who: no other text reaches the model
			by = ", by " + e.Undone
		}
		r.Content = append(r.Content, call.Text("waldo: the call "+e.ID+" was undone since"+by+"."))
	}
	f.Status = r.Status
	r.Facts = f
	return r
}

// body is the part of a row that is read as a whole.
type body struct {
	DecisionID string          `json:"decision_id"`
	Key        string          `json:"key,omitempty"` // the name that the call began with
	Mode       contract.Mode   `json:"mode"`
	Args       json.RawMessage `json:"args"`
	ArgsDigest string          `json:"args_digest"`
	Delegation string          `json:"delegation,omitempty"`
	File       string          `json:"file,omitempty"`
	Undo       *undo           `json:"undo,omitempty"`
	Undone     string          `json:"undone,omitempty"`
	Result     *stored         `json:"result,omitempty"`
	Tokens     bool            `json:"tokens,omitempty"`
	Meant      string          `json:"meant,omitempty"`
	Undoes     string          `json:"undoes,omitempty"`
}

type undo struct {
	By   call.Capability `json:"by"`
	Args json.RawMessage `json:"args"`
}

// body returns the entry as its row holds it.
func (e *Entry) body() body {
	b := body{DecisionID: e.DecisionID, Key: e.key, Mode: e.Mode, Args: e.Args.Raw(), ArgsDigest: e.ArgsDigest,
		Delegation: e.Delegation, File: e.File,
		Undone: e.Undone, Result: e.result, Tokens: e.tokens, Meant: e.meant, Undoes: e.undoes}
	if e.Undo != nil {
		b.Undo = &undo{e.Undo.By, e.Undo.Args.Raw()}
	}
	return b
}

// digest binds what waldo acts by to the log: all of the entry but who undid it, and which process has it.
func (e *Entry) digest() string {
	b := e.body()
	b.Key, b.Undone, b.Undoes = cmp.Or(e.name, e.key), "", ""
	text, err := json.Marshal([]any{e.ID, e.Principal, e.Capability, e.State, database.Stamp(e.At), database.Stamp(e.until), b})
	if err != nil {
		return "" // no log has it
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// named returns the name of the key, and until when it counts, as the log has them; empty: the call has none.
func (e *Entry) named() string {
	name := cmp.Or(e.name, e.key)
	if name == "" {
		return ""
	}
	return name[:32] + " " + database.Stamp(e.until)
}

const table = "calls" // in marks

// put stores an entry. One that was read without a right mark gets none.
func (b *Book) put(tx *sql.Tx, e *Entry) error {
	text, err := json.Marshal(e.body())
	if err != nil {
		return err
	}
	row := string(text)
	if !e.unmarked {
		if row, err = b.Store.Mark(row, table, e.digest()); err != nil {
			return err
		}
	}
	_, err = tx.Exec(`INSERT INTO calls (id, name, principal, capability, state, process, size, at, until, body)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, process = excluded.process, state = excluded.state, size = excluded.size,
		body = excluded.body`,
		e.ID, e.name, string(e.Principal), string(e.Capability), string(e.State), e.process, len(text), database.Stamp(e.At),
		database.Stamp(e.until), row)
	return err
}

const columns = `SELECT id, name, principal, capability, state, process, at, until, body FROM calls `

type row interface{ Scan(to ...any) error }

func scan(s *database.Store, r row) (*Entry, error) {
	var e Entry
	var at, until, text string
	err := r.Scan(&e.ID, &e.name, &e.Principal, &e.Capability, &e.State, &e.process, &at, &until, &text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	var own body
	if err == nil {
		err = json.Unmarshal([]byte(database.Unmarked(text)), &own)
	}
	if err == nil {
		e.Args, err = call.ParseArgs(own.Args)
	}
	if err == nil {
		e.At, err = time.Parse(time.RFC3339, at)
	}
	if err == nil {
		e.until, err = time.Parse(time.RFC3339, until)
	}
	if err == nil && own.Undo != nil {
		e.Undo = &call.Undo{By: own.Undo.By}
		e.Undo.Args, err = call.ParseArgs(own.Undo.Args)
	}
	if err != nil {
		return nil, fmt.Errorf("effects: call %s: %w", e.ID, err)
	}
	e.DecisionID, e.Mode, e.ArgsDigest, e.Undone, e.result = own.DecisionID, own.Mode, own.ArgsDigest, own.Undone, own.Result
	e.Delegation, e.File, e.tokens, e.meant, e.undoes, e.key = own.Delegation, own.File, own.Tokens, own.Meant,
		own.Undoes, own.Key
	if s.Shared() {
		_, err = s.Unmark(text, table, e.digest())
		if e.unmarked = errors.Is(err, database.ErrForged); e.unmarked {
			err = nil
		}
	}
	return &e, err
}

// foreign reports whether another host can have written a row: hosts share the database, and its mark is right.
func (b *Book) foreign(e *Entry) bool { return b.Store.Shared() && !e.unmarked }

func named(s *database.Store, tx *sql.Tx, name string) (*Entry, error) {
	return scan(s, tx.QueryRow(columns+`WHERE name = $1`, name))
}

func (b *Book) byID(tx *sql.Tx, id string) (*Entry, error) {
	return scan(b.Store, tx.QueryRow(columns+`WHERE id = $1`, id))
}

// list returns the calls that a condition selects, oldest first.
func (b *Book) list(tx *sql.Tx, where string, args ...any) (all []*Entry, err error) {
	rows, err := tx.Query(columns+where+` ORDER BY at`, args...)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		e, err := scan(b.Store, rows)
		if err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		all = append(all, e)
	}
	return all, errors.Join(rows.Err(), rows.Close())
}
