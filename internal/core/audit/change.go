package audit

import (
	"context"
	"encoding/json"
	"fmt"
)

// KindChange is the kind of the record of an operator's change of what waldo trusts, knows or lets in.
const KindChange = "change"

// Change is its body. The record is on the disk before the change is made.
type Change struct {
	Action   string `json:"action"`           // trust, lock.accept, lock.remove, secret.set, …, approval.passed
	Object   string `json:"object"`           // a file or a name
	Digest   string `json:"digest,omitempty"` // of what it becomes, or of a question's arguments; never of a secret
	User     string `json:"principal"`
	Terminal bool   `json:"terminal"` // whether standard input was one
}

// Change records a change; it is on the disk when this returns.
func (l *Log) Change(ctx context.Context, c Change) error {
	c.Action, c.Object, c.User = short(c.Action), short(c.Object), short(c.User)
	b, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	_, err = l.Append(ctx, KindChange, b, true)
	return err
}
