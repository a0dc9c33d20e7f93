package evidence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"

	"waldo/internal/core/audit"
)

// Receipt proves that a record is in the log: a C2SP tlog-proof whose extra data is the record's line.
func (t *Tree) Receipt(at *Checkpoint, r audit.Record) ([]byte, error) {
	if r.Seq < at.First || r.Seq >= at.First+uint64(at.N) {
		return nil, fmt.Errorf("record %d is not in the checkpoint, which has the records from %d to %d", r.Seq, at.First,
			at.First+uint64(at.N)-1)
	}
	if _, err := audit.Arguments(r); err != nil {
		return nil, err
	}
	i := int64(r.Seq - at.First)
	proof, err := tlog.ProveRecord(at.N, i, t.hashes(at))
	if err != nil {
		return nil, fmt.Errorf("the tiles do not fit the checkpoint: %w", err)
	}
	leaf, err := Leaf(r.Hash)
	if err != nil {
		return nil, err
	}
	if err := tlog.CheckRecord(proof, at.N, at.Hash, i, leaf); err != nil {
		return nil, fmt.Errorf("%w: record %d is another than the tree has", ErrForked, r.Seq)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return torchwood.FormatProofWithExtraData(i, line, proof, at.Signed), nil
}

// Verified is what a receipt proves.
type Verified struct {
	Record json.RawMessage `json:"record"`
	Origin string          `json:"origin"`
	Size   int64           `json:"size"`
	// Redacted: the record's arguments are, and so not compared with their digest.
	Redacted bool `json:"args_redacted,omitempty"`
	// Findings are about the approvers' signatures in the record.
	Findings []audit.Finding `json:"findings,omitempty"`

	parsed   audit.Record
	cosigned int // signatures of witnesses of the policy
}

// VerifyReceipt checks a receipt against a policy. It reads nothing else.
func VerifyReceipt(receipt, policy []byte) (v Verified, err error) {
	rules, err := torchwood.ParsePolicy(policy)
	if err != nil {
		return v, fmt.Errorf("the policy: %w", err)
	}
	line, err := torchwood.ProofExtraData(receipt)
	if err != nil {
		return v, err
	}
	r, err := audit.Parse(line)
	if err != nil {
		return v, fmt.Errorf("the record of the receipt: %w", err)
	}
	if v.Redacted, err = audit.Arguments(r); err != nil {
		return v, err
	}
	leaf, err := Leaf(r.Hash)
	if err != nil {
		return v, err
	}
	_, signed, ok := bytes.Cut(receipt, []byte("\n\n"))
	if !ok {
		return v, errors.New("the receipt has no checkpoint")
	}
	_, text, _ := bytes.Cut(receipt, []byte("\nindex "))
	text, _, _ = bytes.Cut(text, []byte("\n"))
	i, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || strconv.FormatInt(i, 10) != string(text) {
		return v, errors.New("the index of the receipt is not a decimal number")
	}
	c, n, err := verified(signed, rules)
	if err != nil {
		return v, err
	}
	if first, err := firstOf(c.Origin); err != nil || i < 0 || first+uint64(i) != r.Seq {
		return v, fmt.Errorf("the receipt is of place %d of the log, and the record has the number %d", i, r.Seq)
	}
	if err := torchwood.VerifyProof(rules, leaf, receipt); err != nil {
		return v, err
	}
	v.Record, v.Origin, v.Size, v.parsed, v.cosigned = line, c.Origin, c.N, r, len(n.Sigs)-1
	return v, nil
}
