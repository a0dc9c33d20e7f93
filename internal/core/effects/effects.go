// Package effects remembers calls that can have acted: results under idempotency keys, outcomes that are not known
// yet, and what would undo a call. It settles unknown outcomes by a read, and holds rates over all processes of a
// state directory.
package effects

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/detect/pattern"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/storage/database"
)

// State is what is known of a call.
type State string

// The states. A call that was never sent has no row.
const (
	Begun       State = "begun"        // it acts now, or its process was killed
	Ended       State = "ended"        // its outcome is known
	Unknown     State = "unknown"      // it can have acted
	Happened    State = "happened"     // settled: it acted, and its answer is lost
	NotHappened State = "not_happened" // settled: it did not act
)

// Bounds of what one principal can have stored. A longer result is remembered without its content.
const (
	MaxCalls  = 10_000
	MaxResult = 256 << 10
	MaxBytes  = 256 << 20
)

// Keep is how long a call without a key is remembered.
const Keep = 30 * 24 * time.Hour

// Entry is one remembered call.
type Entry struct {
	ID         string          `json:"call_id"`
	DecisionID string          `json:"decision_id"`
	Capability call.Capability `json:"capability"`
	Principal  call.Principal  `json:"principal"`
	State      State           `json:"state"`
	At         time.Time       `json:"at"`
	Mode       contract.Mode   `json:"mode"`
	Args       call.Args       `json:"-"` // as asked
	ArgsDigest string          `json:"args_digest"`
	Delegation string          `json:"delegation,omitempty"` // that it was made under
	File       string          `json:"file,omitempty"`       // the configuration that decided it
	Undo       *call.Undo      `json:"-"`
	Undone     string          `json:"undone,omitempty"` // the call that undid it, or tries to

	name    string // of its key; empty: it has none, or another call has it now
	key     string // the name that the call began with
	process string // that makes the call, until its outcome is in the log
	result  *stored
	until   time.Time
	tokens  bool   // the tool got values in the place of tokens in the arguments
	meant   string // digest of the arguments with these values; empty: they hold no tokens
	undoes  string // the process that makes the call Undone

	unmarked bool // its row has not the mark that rows of its store have
}

// Book is the memory of one state directory. Every field but Most and Rates is needed.
type Book struct {
	Store   *database.Store
	Process string                 // the mark of this process; empty: a call that needs memory is refused
	Gone    func(name string) bool // whether a process has ended
	Now     func() time.Time       // the clock
	Log     Recorder
	Calls   Caller // for the reads that settle
	Most    int    // remembered calls of one principal; 0: MaxCalls
	Rates   *Rates // that calls with a key count in; nil: those with a limit are refused
	// Contract returns the contract in force for a capability.
	Contract func(call.Capability) contract.Contract

	ended sync.Map     // digests of rows as this process stored them, by calls whose outcome it records next
	later atomic.Int64 // what is done in the background
	more  atomic.Bool  // something is left to the next waldo: more than maxLater waited
}

// Standing is what the log has of a call.
type Standing struct {
	Allowed bool         // as it is given; a dry run and a denial are not
	Foreign bool         // another host decided it, in a database that several share
	Ended   bool         // its outcome is recorded
	Known   bool         // the last outcome or settlement says whether it acted
	Settled call.Settled // the last word of a settlement, happened or not_happened; empty: there is none
}

// Recorder is the part of the audit log that the book needs.
type Recorder interface {
	Outcome(ctx context.Context, d policy.Decision, r call.Result) (call.Logged, error)
	Settled(ctx context.Context, s Settlement) error
	// Bound returns the reason against acting by what the store says of a call: the log does not have its digest.
	Bound(ctx context.Context, callID, digest string, shared bool) *call.Reason
	// Keyed returns the newest call with a key that can have acted, as long as the key counts; empty: there is none.
	Keyed(ctx context.Context, name string, now time.Time) (callID string, err error)
	// Standing returns what the log has of a call.
	Standing(ctx context.Context, d policy.Decision, shared bool) Standing
	// Undone returns the call that has undone that of a decision, or can have; empty: there is none.
	Undone(ctx context.Context, of policy.Decision, by call.Capability) (string, error)
}

// Caller makes a call through the pipeline.
type Caller interface {
	// Prepare gives a call the definition of its tool. It returns a reason if the arguments do not fit.
	Prepare(ctx context.Context, c *call.Call) *call.Reason
	Call(ctx context.Context, c call.Call) (call.Result, error)
}

// Earlier returns the recorded result of the call with the same key, or the reason against this one. If it returns
// neither, no call had the key. It waits for a call under way. args are the arguments as the tool would get them.
func (b *Book) Earlier(ctx context.Context, d policy.Decision, args call.Args) (*call.Result, *call.Reason, error) {
	key, why := keyOf(d)
	if why != nil || key == "" {
		return nil, why, nil
	}
	name := nameOf(d.Call, key)
	return b.claim(ctx, d, name, meant(d, name, args), false)
}

// Begun returns the name of the key of a call, and whether a call with that key has begun, so that this one will not
// act.
func (b *Book) Begun(ctx context.Context, d policy.Decision) (name string, begun bool, err error) {
	key, why := keyOf(d)
	if why != nil || key == "" {
		return "", false, nil
	}
	name = nameOf(d.Call, key)
	err = b.Store.View(ctx, func(tx *sql.Tx) error {
		old, err := named(b.Store, tx, name)
		begun = old != nil && old.holds(b.Now()) && old.State != NotHappened && !b.repeats(d, old)
		return err
	})
	return name, begun, err
}

// Begin notes that a call acts from now on, and returns its arguments with its key. Another call with the key can have
// come first: then it returns what Earlier returns.
func (b *Book) Begin(ctx context.Context, d policy.Decision, args call.Args) (
	call.Args, *call.Result, *call.Reason, error,
) {
	key, why := keyOf(d)
	if why != nil {
		return args, nil, why, nil
	}
	if b.Process == "" {
		return args, nil, &call.Reason{Code: "effects.unavailable",
			Text: "waldo cannot mark this process as running in its state directory, so it could not find out whether the call ended"}, nil
	}
	name := ""
	if key != "" {
		name = nameOf(d.Call, key)
	}
	r, why, err := b.claim(ctx, d, name, meant(d, name, args), true)
	if errors.Is(err, errFull) {
		return args, nil, call.Reason{Code: "effects.full", Text: fmt.Sprintf("this principal has %d remembered calls, or %d MiB "+
			"of them; each ends with its window", MaxCalls, MaxBytes>>20)}.In(time.Hour), nil
	}
	if limit := new(against); errors.As(err, limit) {
		why, err = limit.Reason, nil
	}
	if errors.Is(err, database.ErrUnknown) { // the call does not act, so its row must not say that it does
		b.until(func() error {
			return b.change(context.WithoutCancel(ctx), d.Call.ID, func(_ *sql.Tx, e *Entry) (bool, error) {
				return e.State != Begun || e.process != b.Process, nil
			})
		})
	}
	if r != nil || why != nil || err != nil {
		return args, r, why, err
	}
	args, err = carry(d, key, args)
	return args, nil, nil, err
}

// carry puts the key into the argument that the contract names, where the caller left it out. Keys of two principals
// never meet at the tool: the argument is a digest of both.
func carry(d policy.Decision, key string, args call.Args) (call.Args, error) {
	name := d.Contract.Idempotency.Argument
	members, _ := args.Value().Members()
	if _, has := members[name]; name == "" || has {
		return args, nil
	}
	if key == "" {
		key = d.Call.ID
	}
	all := map[string]any{name: uuid(nameOf(d.Call, key))}
	for n, v := range members {
		all[n] = v
	}
	return call.ArgsOf(all)
}

// uuid returns a digest as a UUID of version 8 (RFC 9562 section 5.8), which many tools ask for.
func uuid(digest string) string {
	return digest[:8] + "-" + digest[8:12] + "-8" + digest[13:16] + "-8" + digest[17:20] + "-" + digest[20:32]
}

// keyOf returns the key of a call: the caller's, or the argument that the contract names. Empty: it has none.
func keyOf(d policy.Decision) (string, *call.Reason) {
	key := d.Call.Key
	if key == call.TwoKeys {
		return "", &call.Reason{Code: "idempotency.two_keys",
			Text: "the request gives two keys that differ, in headers or in _meta"}
	}
	members, _ := d.Call.Args.Value().Members()
	if v, has := members[d.Contract.Idempotency.Argument]; has && d.Contract.Idempotency.Argument != "" {
		text, ok := v.Text()
		if !ok {
			text = string(v.Raw())
		}
		if text == "" {
			text = call.KeyOf("")
		}
		if key != "" && key != text {
			return "", &call.Reason{Code: "idempotency.two_keys",
				Text: "the call has a key, and another one in its argument " + d.Contract.Idempotency.Argument}
		}
		key = text
	}
	if key != "" && !Sound(key) {
		return "", &call.Reason{Code: "idempotency.malformed", Text: "a key is 1 to 255 printable ASCII characters"}
	}
	return key, nil
}

// Sound reports whether a text can be a key: 1 to 255 printable ASCII characters.
func Sound(key string) bool {
	for _, c := range []byte(key) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return len(key) > 0 && len(key) <= 255
}

// nameOf binds a key to its principal and capability.
func nameOf(c call.Call, key string) string {
	b, _ := json.Marshal([]string{string(c.Principal), string(c.Capability), key}) // texts always encode
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// meant returns the digest of arguments in which values stand for tokens; empty: there are none. One token is another
// value in another session, so the text of the arguments does not say what they mean. What a person strikes out of a
// statement is no token.
func meant(d policy.Decision, name string, args call.Args) string {
	if args.Digest() == d.Call.Args.Digest() || d.Contract.Transport == contract.Held {
		return ""
	}
	sum := sha256.Sum256([]byte(name + args.Digest()))
	return hex.EncodeToString(sum[:])
}

const (
	poll     = 50 * time.Millisecond
	patience = 30 * time.Second // for another call with the key, where the contract has no timeout
)

// claim looks the key up, waits for a call under way, and with take begins the call.
func (b *Book) claim(ctx context.Context, d policy.Decision, name, meant string, take bool) (
	*call.Result, *call.Reason, error,
) {
	wait := d.Contract.Timeout
	if wait <= 0 {
		wait = patience
	}
	if by := call.AnswerBy(ctx); !by.IsZero() {
		wait = min(wait, time.Until(by))
	}
	busy := ""
	for until, tried := time.Now().Add(wait), ""; ; {
		if why, err := b.forgotten(ctx, d.Call.ID, name); why != nil || err != nil {
			return nil, why, err
		}
		old, err := b.look(ctx, d, name, meant, tried, take)
		if err != nil && busy != "" && ctx.Err() != nil {
			return nil, inProgress(busy), nil
		}
		if err != nil || old == nil {
			return nil, nil, err
		}
		if !old.same(d.Call, meant) {
			return nil, &call.Reason{Code: "idempotency.conflict", Text: "the key belongs to the call " + old.ID +
				", which has other arguments, other values behind its tokens, or another delegation"}, nil
		}
		r, why, again := b.judge(ctx, d, old, tried == old.digest())
		switch {
		case r != nil || why != nil:
			return r, why, nil
		case again: // settled just now, or proven
			tried = old.digest()
			continue
		case !time.Now().Before(until):
			return nil, inProgress(old.ID), nil
		}
		busy = old.ID
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return nil, inProgress(busy), nil
		}
	}
}

func inProgress(callID string) *call.Reason {
	return call.Reason{Code: "idempotency.in_progress", Text: "the call " + callID + " with this key is still under way"}.
		In(time.Second)
}

// forgotten returns the reason against a call with a key of which the log has a call that can have acted, and the store
// has not: its row was removed, or an older one is in its place. A call that another one with its key came after is
// none, if it is not known to have acted.
func (b *Book) forgotten(ctx context.Context, own, name string) (why *call.Reason, err error) {
	if name == "" {
		return nil, nil
	}
	newest, err := b.Log.Keyed(ctx, name, b.Now())
	if err != nil {
		return &call.Reason{Code: "row.unproven", Cause: err.Error(), Text: "the log cannot be read to its end, so whether a " +
			"call had this key is not known; an operator finds why with: waldo log verify"}, nil
	}
	if newest == "" || newest == own {
		return nil, nil
	}
	var held, e *Entry
	err = b.Store.View(ctx, func(tx *sql.Tx) error {
		var herr error
		held, herr = named(b.Store, tx, name)
		e, err = b.byID(tx, newest)
		return errors.Join(herr, err)
	})
	switch {
	case err != nil || held != nil && held.ID == newest:
		return nil, err
	case e != nil && e.State != Ended && e.State != Happened && b.Log.Bound(ctx, e.ID, e.digest(), false) == nil:
		return nil, nil
	}
	return &call.Reason{Code: "row.gone", Text: "the log has the call " + newest + " with this key, and the database has " +
		"forgotten it; it is not made again until its window ends"}, nil
}

// look returns the earlier call with a name; nil: there is none, or it did not act, and its digest is the proven one.
// With take it begins the new call then, in the same transaction.
func (b *Book) look(
	ctx context.Context, d policy.Decision, name, meant, proven string, take bool,
) (old *Entry, err error) {
	in := b.Store.View
	if take {
		in = b.Store.Update
	}
	err = in(ctx, func(tx *sql.Tx) error {
		old = nil
		if name != "" {
			if old, err = named(b.Store, tx, name); err != nil {
				return err
			}
		}
		gone := old != nil && old.State == NotHappened && old.digest() == proven
		if old != nil && old.holds(b.Now()) && !gone && !(b.repeats(d, old) && old.same(d.Call, meant)) {
			return nil
		}
		if !take {
			old = nil
			return nil
		}
		if old != nil {
			if _, err := tx.Exec(`UPDATE calls SET name = '' WHERE id = $1`, old.ID); err != nil {
				return err
			}
			old = nil
		}
		return b.insert(tx, d, name, meant)
	})
	return old, err
}

// holds reports whether a call has its key: its window is not over, or its outcome is not known.
func (e *Entry) holds(now time.Time) bool {
	return now.Before(e.until) || e.State == Begun || e.State == Unknown
}

// repeats reports whether a call with an unknown outcome can be made again: the tool knows its key, and nothing can
// find the outcome out.
func (b *Book) repeats(d policy.Decision, old *Entry) bool {
	open := old.State == Unknown || old.State == Begun && b.Gone(old.process)
	return open && d.Contract.Idempotency.Argument != "" && d.Contract.Settle.By == ""
}

// fileOf returns the configuration file of a contract, one name for each file, as a row can hold it.
func fileOf(k contract.Contract) string {
	at, err := filepath.Abs(k.At.File)
	if err == nil {
		at, err = filepath.EvalSymlinks(at)
	}
	if err != nil || k.BuiltIn || k.At.File == "" {
		at = k.At.File
	}
	return strings.ToValidUTF8(at, "\ufffd")
}

// same reports whether a call has the arguments of the entry, and is made under the same delegation.
func (e *Entry) same(c call.Call, meant string) bool {
	return e.ArgsDigest == c.Args.Digest() && e.meant == meant && e.Delegation == leaf(c)
}

// leaf returns the delegation that a call is made under; empty: none.
func leaf(c call.Call) string {
	if len(c.Chain) == 0 {
		return ""
	}
	return c.Chain[len(c.Chain)-1]
}

// chain returns delegations that end with one; empty: there are none.
func chain(leaf string) []string {
	if leaf == "" {
		return nil
	}
	return []string{leaf}
}

var errFull = errors.New("effects: the principal has as many remembered calls as it can have")

// insert notes a call that begins.
func (b *Book) insert(tx *sql.Tx, d policy.Decision, name, meant string) error {
	full, err := b.full(tx, d.Call.Principal, 1)
	if err == nil && full {
		if err = b.sweep(tx); err == nil {
			full, err = b.full(tx, d.Call.Principal, 1)
		}
	}
	if err != nil {
		return err
	}
	if full {
		return errFull
	}
	window := Keep
	if name != "" {
		if err := b.Rates.begin(tx, d); err != nil {
			return err
		}
		if window = d.Contract.Idempotency.Window; window <= 0 {
			window = contract.DefaultWindow
		}
	}
	e := b.entry(d, Begun, window)
	e.name, e.key, e.process, e.tokens, e.meant = name, name, b.Process, meant != "", meant
	return b.put(tx, e)
}

// entry is the row of a call that begins now.
func (b *Book) entry(d policy.Decision, state State, window time.Duration) *Entry {
	now := b.Now()
	return &Entry{ID: d.Call.ID, DecisionID: d.ID, Capability: d.Call.Capability, Principal: d.Call.Principal, State: state,
		At: now, Mode: d.Mode(), Args: d.Call.Args, ArgsDigest: d.Call.Args.Digest(), Delegation: leaf(d.Call),
		File: fileOf(d.Contract), until: now.Add(window)}
}

// Lost remembers a write that is not tracked and whose outcome is unknown, so that it can be listed and settled. Such
// calls take at most a tenth of what their principal can have: the log alone has the rest. Programs of a sandbox are
// left out, as are lists of held calls: the calls that they make have outcomes of their own. It returns the digest for
// the outcome.
func (b *Book) Lost(ctx context.Context, d policy.Decision, r call.Result, answered bool) (row string, err error) {
	if stateOf(r, answered) != Unknown || d.Mode() == contract.Read || d.Contract.Transport == contract.SandboxedExec ||
		d.Contract.Transport == contract.Held {
		return "", nil
	}
	err = b.Store.Update(ctx, func(tx *sql.Tx) error {
		row = ""
		if full, err := b.full(tx, d.Call.Principal, 10); err != nil || full {
			return err
		}
		e := b.entry(d, Unknown, Keep)
		e.tokens = token().Match(d.Call.Args.Raw())
		row = e.digest()
		return b.put(tx, e)
	})
	return row, err
}

// full reports whether a principal has the given part of the calls that can be remembered.
func (b *Book) full(tx *sql.Tx, who call.Principal, part int64) (bool, error) {
	var calls, bytes int64
	err := tx.QueryRow(`SELECT COUNT(*), COALESCE(SUM(size), 0) FROM calls WHERE principal = $1`, string(who)).
		Scan(&calls, &bytes)
	return calls >= int64(cmp.Or(b.Most, MaxCalls))/part || bytes >= MaxBytes/part, err
}

// judge returns what an earlier call with the key means for a new one. Nothing: wait for it.
func (b *Book) judge(ctx context.Context, d policy.Decision, old *Entry, settled bool) (
	r *call.Result, why *call.Reason, again bool,
) {
	switch {
	case old.State == Ended || old.Word() != "":
		return b.known(ctx, d, old)
	case !b.open(old), old.process != "" && old.process != b.Process && !b.Gone(old.process):
		return nil, nil, false
	}
	early := b.Early(old) // before a settlement, which takes its time
	if d.Contract.Settle.By != "" && !settled {
		if _, err := b.Settle(ctx, old.ID, d.Call); err == nil {
			return nil, nil, true
		}
	}
	next := "look, and if it did not, make the call under another key"
	if d.Contract.Settle.By != "" {
		next = "look, or ask the operator for waldo settle " + old.ID
	}
	why = &call.Reason{Code: "idempotency.unknown", Text: "the call " + old.ID + " with this key ended, and whether it " +
		"took effect is not known: " + next}
	if early > 0 {
		why = why.In(early)
	}
	return nil, why, false
}

// known returns what an earlier call with a known outcome means, if the log has that outcome. Nothing: its process is
// about to record it. again: the call did not act, or nobody recorded its outcome.
func (b *Book) known(ctx context.Context, d policy.Decision, old *Entry) (
	r *call.Result, why *call.Reason, again bool,
) {
	gone := old.process != "" && b.Gone(old.process)
	if old.process != "" && !gone && old.ID != d.Call.ID { // else the call tries again
		return nil, nil, false
	}
	why = b.Log.Bound(ctx, old.ID, old.digest(), b.foreign(old))
	switch {
	case why != nil && gone:
		if err := b.recover(ctx, old); err == nil {
			return nil, nil, true
		}
	case why == nil && old.State != NotHappened:
		if !b.foreign(old) { // then the log has who undid it
			by := ""
			if old.Undo != nil {
				by, _ = b.Log.Undone(ctx, old.decision(), old.Undo.By) // of a log that cannot be read: nobody
			}
			old.Undone = by
		}
		return old.replay(d), nil, false
	}
	return nil, why, why == nil
}

// End stores how a call ended, before that is recorded in the log. It returns the result with what would undo the
// call, and whether its outcome is unknown.
func (b *Book) End(ctx context.Context, d policy.Decision, r call.Result, answered bool) (
	_ call.Result, open bool, err error,
) {
	state := stateOf(r, answered)
	if state == Ended && !r.IsError && d.Contract.Rollback.By != "" {
		args, err := policy.Fill(d.Contract.Rollback.Args, d.Call.Args, b.Now(), &r)
		if err == nil && hidden(args, r.Facts.Masked) {
			err = errors.New("it needs a value that is hidden from the agent")
		}
		if err != nil {
			r.Facts.Warnings = append(r.Facts.Warnings, "what would undo the call is not known: rollback: "+err.Error())
		} else {
			r.Undo = &call.Undo{By: call.Capability(d.Contract.Rollback.By), Args: args}
		}
	}
	err = b.change(ctx, d.Call.ID, func(_ *sql.Tx, e *Entry) (bool, error) {
		if e.State, e.Undo, e.result = state, r.Undo, store(r); state != "" {
			r.Row, r.RowKey = e.digest(), e.named()
			b.ended.Store(e.ID, r.Row)
		}
		return state != "", nil
	})
	return r, state == Unknown, err
}

// The forms of what stands for hidden values.
var (
	token = pattern.Lazy(`\[[A-Z][A-Z0-9_]*_[0-9]+\]`)
	mask  = pattern.Lazy(`\[[A-Z][A-Z0-9_]*\]`)
)

// hidden reports whether something in arguments stands for a hidden value. masked: the values that the result hid.
func hidden(args call.Args, masked int) bool {
	return token().Match(args.Raw()) || masked > 0 && mask().Match(args.Raw())
}

// Recorded notes that the outcome of a call is in the log.
func (b *Book) Recorded(ctx context.Context, callID string) error {
	b.ended.Delete(callID)
	return b.change(ctx, callID, func(_ *sql.Tx, e *Entry) (bool, error) {
		e.process = ""
		return true, nil
	})
}

// Later stores and records how a call ended, as soon as the database and the log can be written: it ended while they
// could not. stored: End did its part. Until then the call is under way for everyone who asks with its key.
func (b *Book) Later(ctx context.Context, d policy.Decision, r call.Result, answered, stored bool) {
	ctx = context.WithoutCancel(ctx)
	b.until(func() (err error) {
		if !stored {
			if r, _, err = b.End(ctx, d, r, answered); err != nil {
				return err
			}
			stored = true
		} else if err := b.Store.Update(ctx, func(*sql.Tx) error { return nil }); err != nil {
			return err
		}
		if s := b.Log.Standing(ctx, d, true); !s.Ended && !s.Foreign { // without a decision here there is no outcome
			if _, err := b.Log.Outcome(ctx, d, r); err != nil {
				return err
			}
		}
		return b.Recorded(ctx, d.Call.ID)
	})
}

// maxLater is how much is tried in the background at a time.
const maxLater = 1000

// until tries something in the background until it succeeds, or the store is closed.
func (b *Book) until(try func() error) {
	if b.later.Load() >= maxLater {
		b.more.Store(true)
		return
	}
	b.later.Add(1)
	go func() {
		for wait := poll; ; wait = min(2*wait, 100*poll) {
			time.Sleep(wait)
			err := try()
			if errors.Is(err, database.ErrClosed) {
				return
			}
			if err == nil {
				b.later.Add(-1)
				return
			}
		}
	}()
}

// Finish waits for what is done in the background, and reports whether all of it is.
func (b *Book) Finish(wait time.Duration) bool {
	for end := time.Now().Add(wait); b.later.Load() > 0 && time.Now().Before(end); {
		time.Sleep(poll)
	}
	return b.later.Load() == 0 && !b.more.Load()
}

// change changes a remembered call in one transaction, or forgets it. A forgotten call stays as it is.
func (b *Book) change(ctx context.Context, callID string, fn func(*sql.Tx, *Entry) (keep bool, err error)) error {
	return b.Store.Update(ctx, func(tx *sql.Tx) error {
		e, err := b.byID(tx, callID)
		if err != nil || e == nil {
			return err
		}
		keep, err := fn(tx, e)
		if err != nil {
			return err
		}
		if !keep {
			_, err = tx.Exec(`DELETE FROM calls WHERE id = $1`, callID)
			return err
		}
		return b.put(tx, e)
	})
}

// Sweep forgets calls whose window is over. Unknown outcomes of calls with a key stay until they are settled.
func (b *Book) Sweep(ctx context.Context) error { return b.Store.Update(ctx, b.sweep) }

func (b *Book) sweep(tx *sql.Tx) error {
	_, err := tx.Exec(`DELETE FROM calls WHERE until < $1 AND state <> $2 AND (state <> $3 OR name = '')`,
		database.Stamp(b.Now()), string(Begun), string(Unknown))
	return err
}
