// Package approval puts a question to a human and takes the answer. An answer is bound to one decision and its exact
// arguments, expires, is used once, and survives a restart.
package approval

import (
	"encoding/json"
	"time"

	"waldo/internal/model/call"
)

// Answer is a human's yes or no to one question. The zero Answer says no to nothing in particular.
type Answer struct {
	ApprovalID string
	DecisionID string // the decision that it was consumed for
	ArgsDigest string
	Capability call.Capability
	Yes        bool
	Refusal    string // the code of waldo's own refusal, as in approval.expired; empty: a human answered
	By         call.Principal
	Reason     string
	At         time.Time
	Struck     []int // numbers of the held calls that a yes does not cover

	Key       string          // fingerprint of the approver's key; empty: no approver answered
	Signed    json.RawMessage // the signed message, as canonical JSON
	Signature string          // base64
	Also      []Said          // the yeses of other approvers, where the contract needs several
	From      string          // the state directory of the replica that took it; empty: this one
}

// Said is one more approver's signed yes to the same question.
type Said struct {
	By        string          `json:"by"` // approver:NAME
	Key       string          `json:"key"`
	Signed    json.RawMessage `json:"signed"`
	Signature string          `json:"signature"`
}
