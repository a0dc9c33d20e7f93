package approval

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"waldo/internal/storage/database"
)

const forCheckpoint = "waldo log checkpoint v1\n"

// Checkpoint replaces the removed beginning of a log. Any process that can write the log can write one, so approvals
// require the first approver's signature on it. The removed records could show that an approval was used or a right
// revoked.
type Checkpoint struct {
	Through        uint64          `json:"through"`                  // the last record that was removed
	Hash           string          `json:"hash"`                     // its hash, which the first record that stays names
	Approvers      []Enrolment     `json:"approvers,omitempty"`      // who could answer, and whose right ended, in their order
	Configurations []Configuration `json:"configurations,omitempty"` // the newest of each path, signed
	Began          time.Time       `json:"began,omitzero"`           // when the log began after another was set aside
	Void           []string        `json:"void,omitempty"`           // fingerprints of the keys of that other log
	Aside          string          `json:"aside,omitempty"`          // why the whole log is set aside; empty: the rest stays
	Key            string          `json:"key,omitempty"`            // fingerprint of the first approver, who signs
	At             string          `json:"signed_at,omitempty"`
	Signature      string          `json:"signature,omitempty"` // base64, over the rest
}

func (c Checkpoint) message() []byte {
	c.Signature = ""
	return append([]byte(forCheckpoint), canonical(c)...)
}

// Sign puts the signature of a first approver under the checkpoint. Every yes from before is void then.
func (c *Checkpoint) Sign(by Signer, root Approver, at time.Time) error {
	c.Key, c.At = root.Fingerprint(), database.Stamp(at)
	sig, err := by.Sign(c.message())
	if err != nil {
		return fmt.Errorf("approval: signing: %w", err)
	}
	c.Signature = base64.StdEncoding.EncodeToString(sig)
	if !c.SignedBy(root) {
		return refused("approver.signature", "the key does not fit the first approver, %s", Escape(root.Name))
	}
	return nil
}

// Signed reports whether a first approver signed the checkpoint. Which one counts, a pin says: see Whole.
func (c Checkpoint) Signed() bool {
	var l Ledger
	l.Restore(c)
	return l.signer != ""
}

// Restore starts a ledger from a checkpoint.
func (l *Ledger) Restore(c Checkpoint) {
	l.Aside(c.Began, c.Void)
	for _, e := range c.Approvers {
		_ = l.Enrolled(e) // an invalid enrolment grants no right
	}
	for _, one := range c.Configurations {
		_ = l.Configured(one) // an invalid one counts for nothing
	}
	l.cut = true
	l.Since, _ = time.Parse(time.RFC3339, c.At)
	for _, f := range l.firsts {
		if c.Aside == "" && c.SignedBy(f) {
			l.signer = c.Key
		}
	}
}

// SignedBy reports whether the checkpoint bears the signature of a first approver.
func (c Checkpoint) SignedBy(root Approver) bool {
	sig, err := base64.StdEncoding.DecodeString(c.Signature)
	return err == nil && c.Signature != "" && root.Fingerprint() == c.Key && root.signed(c.message(), sig)
}

// Where the state directory keeps the fingerprint of the first approver.
const (
	RootBucket = "approval"
	RootName   = "root"
)

// FirstRows returns the first approvers that the database names, revoked or not. Their own signatures hold, and no
// more is known of them.
func (k *Service) FirstRows(ctx context.Context) (out []Approver, err error) {
	err = k.Store.View(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query(`SELECT record, signature FROM approvers WHERE place = $1`, k.Store.Place())
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var record, signature string
			var a Approver
			if err := rows.Scan(&record, &signature); err != nil {
				return err
			}
			sig, bad := base64.StdEncoding.DecodeString(signature)
			if json.Unmarshal([]byte(record), &a) == nil && bad == nil && a.By == a.Name && a.signed(a.Message(), sig) {
				out = append(out, a)
			}
		}
		return rows.Err()
	})
	return out, err
}

// Signed reports whether the log is whole or a first approver signed the removal.
func (l *Ledger) Signed() bool { return !l.cut || l.signer != "" }

// Unsigned is the code of the refusal while no first approver has signed the removal of records.
const Unsigned = "prune.unsigned"

// Whole returns nil if the log has its first record, or if the first approver named by a pin signed the removal.
// Without a pin no signature counts, because an attacker has a key as well.
func (l *Ledger) Whole(pins []string) error {
	named := slices.ContainsFunc(pins, func(p string) bool { return p != "" })
	if !l.cut || (l.signer != "" && named && pinned(pins, l.signer)) {
		return nil
	}
	return refused(Unsigned, "records were removed, and the first approver of approval.root has not signed the removal; "+
		"approvals are refused until waldo prune is run at a terminal")
}
