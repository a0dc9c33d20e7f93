package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"waldo/internal/core/approval"
	"waldo/internal/detect/pattern"
)

// maxVoid limits the keys that a log which is set aside can hand on as void: they stand in one record.
const maxVoid = 5000

// traces is what a log that does not verify shows of approvers. It errs towards a right that ended.
type traces struct {
	ledger approval.Ledger
	named  bool     // an approver is named, or was perhaps
	doubt  bool     // a damaged record was perhaps a revocation
	void   []string // fingerprints of every key
	ended  []string // names whose right was ended
}

var (
	fingerprints = pattern.Lazy(`sha256:[0-9a-f]{64}`)
	otherKinds   = pattern.Lazy(`"kind":"(genesis|pruned|trust|decision|outcome|verdict|answer|settled|recovered|reload|stop|console|change|egress|webhook)"`)
	approverKeys = pattern.Lazy(`"kind":"approver"|"public_key"|"signed_at"|"void"`)
)

// readTraces reads every line of a log. Damage after the last record of the newest head hides no revocation: the heads
// pass one before it is told.
func readTraces(ctx context.Context, dir string, anchors []Anchor) (*traces, error) {
	t, passed := &traces{}, uint64(0)
	for _, a := range anchors {
		if a.Head != nil {
			passed = max(passed, a.Head.Seq)
		}
	}
	names, sizes, err := extent(dir)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	last := uint64(0)
	for i, name := range names {
		f, err := openSegment(dir, name, os.O_RDONLY)
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		err = lines(f, 0, sizes[i], func(ln line) error {
			r, err := viewRecord(ln.text)
			if err == nil && ln.whole {
				last = r.Seq
				t.record(r)
			} else if passed == 0 || last < passed {
				t.damaged(ln.text)
			}
			return ctx.Err()
		})
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
	}
	return t, nil
}

// record takes in a record whose hash fits, wherever it stands.
func (t *traces) record(r Record) {
	switch r.Kind {
	case kindGenesis:
		if b := asideOf(r); b != nil {
			t.void = append(t.void, b.Checkpoint.Void...)
			t.named = t.named || len(b.Checkpoint.Void) > 0
		}
	case KindPruned:
		p, _ := prunedRecord(r)
		for _, e := range p.Approvers {
			t.enrolment(e)
		}
		t.void = append(t.void, p.Void...)
		t.named = t.named || len(p.Void) > 0
	case KindApprover:
		var e Enrolled
		if json.Unmarshal(r.Body, &e) != nil {
			t.damaged(r.Body)
			return
		}
		t.enrolment(e.Enrolment)
	}
}

func (t *traces) enrolment(e approval.Enrolment) {
	t.named = true
	t.void = append(t.void, fingerprints().FindAllString(e.Key, -1)...)
	if e.Action == "revoke" {
		t.ended = append(t.ended, e.Approver)
	} else if e.Failed == "" && t.ledger.Enrolled(e) != nil {
		t.doubt = true // it was perhaps written over a revocation
	}
}

// damaged takes in a line that is no record. It is no revocation where it names another kind and has no part of one.
func (t *traces) damaged(text []byte) {
	mine := approverKeys().Match(text)
	if !mine && otherKinds().Match(text) {
		return
	}
	t.doubt, t.named = true, t.named || mine || bytes.Contains(text, []byte("approver"))
	for _, fp := range fingerprints().FindAllString(string(text), -1) {
		if mine && !slices.Contains(t.void, fp) {
			t.void = append(t.void, fp)
		}
	}
}
