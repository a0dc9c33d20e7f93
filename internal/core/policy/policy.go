// Package policy decides: deny, ask or allow, with reasons that name the lines of the contract
// they come from. It reads no file, no clock and no network.
package policy

import (
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// Effect is the effect of a decision. The zero value denies.
type Effect uint8

// The effects.
const (
	Deny Effect = iota
	Ask
	Allow
)

// String returns the word used in JSON: deny, ask or allow.
func (e Effect) String() string { return [...]string{"deny", "ask", "allow"}[e%3] }

// MarshalText makes the JSON form the word of String.
func (e Effect) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads the word of String; any other word is Deny.
func (e *Effect) UnmarshalText(b []byte) error {
	*e = map[string]Effect{"ask": Ask, "allow": Allow}[string(b)]
	return nil
}

// Decision is deny, ask or allow for one call, with its reasons. Decision{} denies.
type Decision struct {
	ID        string // "d_…", stamped by the broker
	Effect    Effect
	Reasons   []call.Reason
	Call      call.Call
	Contract  contract.Contract // the line that won; the zero Contract where none did
	Danger    int               // after the rules: 1, 2 or 3
	Policy    string            // digest of the configuration in force
	DryRun    bool
	Writes    bool             // the server annotates the tool as writing, regardless of the contract's mode
	Once      bool             // never retried: a pattern makes the tool a read, without a server annotation
	Narrowest string           // the delegation of Call.Chain that leaves this call the least; empty: it has none
	Authority []call.Principal // whose authority the call has by delegations, beside its own principal's
}

// Mode is the class of the call: the contract's, or a write if the server annotates its tool as writing. The tool's
// resources follow the contract alone: annotations never grant more.
func (d Decision) Mode() contract.Mode {
	if d.Writes {
		return min(d.Contract.Mode, contract.Write) // the stricter
	}
	return d.Contract.Mode
}

// Repeats reports whether a failed call can be retried: it is a read, and Once is not set.
func (d Decision) Repeats() bool { return d.Mode() == contract.Read && !d.Once }

// Tracked reports whether waldo remembers what the call did: it has a key, or its contract names how it is settled or
// undone.
func (d *Decision) Tracked() bool {
	k := &d.Contract
	return d.Call.Key != "" || k.Idempotency != (contract.Idempotency{}) || k.Settle.By != "" || k.Rollback.By != ""
}
