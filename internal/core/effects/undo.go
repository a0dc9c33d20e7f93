package effects

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
)

// Errors of Undo.
var (
	ErrNoUndo = errors.New("waldo knows nothing that undoes this call: its contract has no rollback, or it did not succeed")
	ErrUndone = errors.New("the call was undone, is being undone, or its undo has an unknown outcome")
)

// Undo makes the call that undoes another, as the caller of as, with its own decision and approval. It is made
// once: a call that did nothing frees it again.
func (b *Book) Undo(ctx context.Context, callID string, as call.Call) (r call.Result, err error) {
	c := as
	c.ID, c.Parent = id.New(id.Call), callID
	e, err := b.Get(ctx, callID)
	if err != nil {
		return r, err
	}
	if e.Undo == nil || e.result != nil && hidden(e.Undo.Args, e.result.Masked) { // of an earlier waldo
		return r, ErrNoUndo
	}
	if why := b.Log.Bound(ctx, callID, e.digest(), b.foreign(e)); why != nil {
		return r, fmt.Errorf("%s: %s", why.Code, why.Text)
	}
	done, err := b.Log.Undone(ctx, e.decision(), e.Undo.By)
	if err != nil {
		return r, err
	}
	err = b.change(ctx, callID, func(_ *sql.Tx, now *Entry) (bool, error) {
		lost := now.undoes != "" && b.Gone(now.undoes) // a waldo that was killed before its decision
		switch {
		case done != "":
			return true, fmt.Errorf("%w, by %s", ErrUndone, done)
		case now.Undone != "" && !lost:
			return true, fmt.Errorf("%w, by %s", ErrUndone, now.Undone)
		case now.digest() != e.digest():
			return true, ErrForged
		}
		c.Capability, c.Args, now.Undone, now.undoes = e.Undo.By, e.Undo.Args, c.ID, b.Process
		return true, nil
	})
	if err == nil && c.Capability == "" {
		err = ErrAbsent
	}
	if err != nil {
		return r, err
	}
	if why := b.Calls.Prepare(ctx, &c); why != nil {
		return r, errors.Join(fmt.Errorf("%s: %s", why.Code, why.Text), b.free(ctx, callID))
	}
	r, err = b.Calls.Call(ctx, c)
	if err == nil && r.Status != facts.OK && r.Facts.SideEffect == facts.None {
		err = b.free(ctx, callID)
	}
	return r, err
}

// free lets a call be undone again.
func (b *Book) free(ctx context.Context, callID string) error {
	return b.change(context.WithoutCancel(ctx), callID, func(_ *sql.Tx, e *Entry) (bool, error) {
		e.Undone = ""
		return true, nil
	})
}
