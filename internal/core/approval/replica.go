package approval

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/database"
)

// Replicas are waldos with their rows in one database whose configuration or environment names the same first approver.
// They share questions. Before a replica decides, it takes the signed statements of the others into its own log. It
// checks each against its signature and that first approver: a row only carries a statement.

// The buckets of statements. The fingerprint of the first approver follows.
const (
	rightsBucket  = "rights of "  // enrolments, revocations and configurations, by the digest of the signature
	answersBucket = "answers of " // by approval, key and word
)

// carried is one signed statement in the database.
type carried struct {
	From   string         `json:"from"` // the state directory that recorded it first
	Right  *Enrolment     `json:"right,omitempty"`
	Trust  *Configuration `json:"trust,omitempty"`
	Answer *Said          `json:"answer,omitempty"`
}

// name is the same for each copy of a right.
func (s carried) name() string {
	text := ""
	if s.Right != nil {
		text = s.Right.Signature
	} else if s.Trust != nil {
		text = s.Trust.Signature
	}
	return strictjson.Digest(signature(text))
}

// root returns the fingerprint of the first approver whose replicas share questions; empty: this waldo is alone.
func (k *Service) root() string {
	if !k.Store.Shared() {
		return ""
	}
	return cmp.Or(k.pins()...)
}

// Replicated reports whether this waldo shares questions with others.
func (k *Service) Replicated() bool { return k.root() != "" }

// place names whose questions the rows of this waldo are: those of the replicas, or of this state directory.
func (k *Service) place() string { return cmp.Or(k.root(), k.Store.Place()) }

// stated returns the statements of a bucket whose names begin with a prefix.
func (k *Service) stated(ctx context.Context, bucket, prefix string) (out []carried, err error) {
	err = k.Store.View(ctx, func(tx *sql.Tx) error {
		all, err := texts(tx, `SELECT value FROM kv WHERE bucket = $1 AND name >= $2 AND name < $3`, bucket, prefix, prefix+"~")
		for _, text := range all {
			var s carried
			if len(text) <= maxPassed && json.Unmarshal([]byte(text), &s) == nil {
				out = append(out, s)
			}
		}
		return err
	})
	return out, err
}

// tellOthers writes a statement of this log for the other replicas. It stays until Sweep removes rows of before until.
func (k *Service) tellOthers(ctx context.Context, bucket, name, until string, s carried) error {
	s.From = cmp.Or(s.From, k.Store.Place())
	return k.Store.Update(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec(`INSERT INTO kv (bucket, name, value, at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
			bucket, name, string(canonical(s)), until)
		return err
	})
}

// rights returns who can answer and which configurations are signed, as this log has it.
func (l *Ledger) rights() map[string]carried {
	out := map[string]carried{}
	for _, e := range l.enrolments {
		s := carried{From: e.From, Right: &e}
		out[s.name()] = s
	}
	for _, c := range l.Signatures() {
		s := carried{Trust: &c}
		out[s.name()] = s
	}
	return out
}

// fork returns a ledger that takes rights and leaves this one as it is.
func (l *Ledger) fork() *Ledger {
	f := *l
	f.holders, f.configured, f.ended = maps.Clone(l.holders), maps.Clone(l.configured), maps.Clone(l.ended)
	f.firsts, f.enrolments = slices.Clone(l.firsts), slices.Clone(l.enrolments)
	f.questions, f.wrong = nil, nil
	return &f
}

// Exchange takes the rights that other replicas recorded into this log, and gives them those of this log.
func (k *Service) Exchange(ctx context.Context) error {
	root := k.root()
	if root == "" || k.Records == nil {
		return nil
	}
	k.exchanging.Lock()
	defer k.exchanging.Unlock()
	var l *Ledger
	if err := k.Witness.Look(ctx, func(now *Ledger) { l = now.fork() }); err != nil {
		return err
	}
	var rows int
	err := k.Store.View(ctx, func(tx *sql.Tx) error {
		return tx.QueryRow(`SELECT COUNT(*) FROM kv WHERE bucket = $1`, rightsBucket+root).Scan(&rows)
	})
	if mark := fmt.Sprint(root, rows, l.changes); err != nil || mark == k.exchanged {
		return err
	}
	there, err := k.stated(ctx, rightsBucket+root, "")
	if err != nil {
		return err
	}
	have, theirs := l.rights(), map[string]bool{}
	slices.SortFunc(there, bySequence)
	for _, s := range there {
		name := s.name()
		theirs[name] = true
		if _, had := have[name]; !had && l.admits(s, root) {
			err = errors.Join(err, k.take(ctx, s))
		}
	}
	for name, s := range have {
		if !theirs[name] {
			rows++
			err = errors.Join(err, k.tellOthers(ctx, rightsBucket+root, name, database.Stamp(k.now()), s))
		}
	}
	if err == nil {
		k.exchanged = fmt.Sprint(root, rows, l.changes)
	}
	return err
}

// take writes a right of another replica to the log.
func (k *Service) take(ctx context.Context, s carried) error {
	if s.Trust != nil {
		return k.Records.Configured(ctx, *s.Trust, s.From)
	}
	e := *s.Right
	e.From = s.From
	return k.Records.Enrolled(ctx, e)
}

// admits takes a right into the ledger, and reports whether it holds and comes from the first approver root.
func (l *Ledger) admits(s carried, root string) bool {
	switch e := s.Right; {
	case s.Trust != nil:
		return s.Trust.Key == root && l.Configured(*s.Trust) == nil
	case e == nil || e.Failed != "" || e.By == e.Approver && e.Action != "revoke" && fingerprint(e.Public) != root:
		return false
	default:
		return l.Enrolled(*e) == nil && l.holders[root].Name == e.By
	}
}

// bySequence puts the first approver before those it enrolled, then revocations, then configurations as they were
// signed.
func bySequence(a, b carried) int {
	rank := func(s carried) (int, string) {
		switch {
		case s.Right == nil && s.Trust == nil:
			return 4, ""
		case s.Right == nil:
			return 3, s.Trust.At
		case s.Right.Action == "revoke":
			return 2, s.Right.At
		case s.Right.By != s.Right.Approver:
			return 1, s.Right.At
		}
		return 0, s.Right.At
	}
	m, at := rank(a)
	n, bt := rank(b)
	return cmp.Or(cmp.Compare(m, n), cmp.Compare(at, bt))
}

// exchangeAnswers takes the answers to a question that other replicas recorded into this log, and gives them those of
// this log. It reports whether this log has more than before.
func (k *Service) exchangeAnswers(ctx context.Context, e evidence, approvalID string) (more bool, err error) {
	root := k.root()
	if root == "" || k.Records == nil || e.used != "" {
		return false, nil
	}
	k.exchanging.Lock()
	defer k.exchanging.Unlock()
	there, err := k.stated(ctx, answersBucket+root, approvalID+" ")
	if err != nil {
		return false, err
	}
	theirs := map[string]bool{}
	for _, s := range there {
		v, ok := k.verdictOf(s, approvalID)
		if !ok {
			continue
		}
		theirs[v.name()] = true
		same := func(o verdict) bool { return o.said.By == v.said.By || o.said.Key == v.said.Key }
		if !v.said.Yes && e.no != nil || v.said.Yes && slices.ContainsFunc(e.yes, same) {
			continue
		}
		if took, terr := k.takeAnswer(ctx, e, v, s.From); took || terr != nil {
			more, err = more || took, errors.Join(err, terr)
		}
	}
	own := slices.Clone(e.yes)
	if e.no != nil {
		own = append(own, *e.no)
	}
	for _, v := range own {
		if said := v.record(); !theirs[v.name()] {
			err = errors.Join(err, k.tellOthers(ctx, answersBucket+root, v.name(), v.said.Expires, carried{Answer: &said}))
		}
	}
	return more, err
}

// name is the same for each answer with one word by one key.
func (v verdict) name() string {
	return fmt.Sprint(v.said.ApprovalID, " ", v.said.Key, " ", v.said.Yes)
}

// verdictOf reads a statement about a question. Nothing of it is believed yet.
func (k *Service) verdictOf(s carried, approvalID string) (v verdict, ok bool) {
	if s.Answer == nil || json.Unmarshal(s.Answer.Signed, &v.said) != nil || v.said.ApprovalID != approvalID {
		return v, false
	}
	v.signature = base64.StdEncoding.EncodeToString(signature(s.Answer.Signature))
	return v, true
}

// takeAnswer writes an answer of another replica to the log, if it holds for the question as it is asked.
func (k *Service) takeAnswer(ctx context.Context, e evidence, v verdict, from string) (took bool, err error) {
	r, err := k.load(ctx, v.said.ApprovalID)
	if no := (*Refused)(nil); errors.As(err, &no) {
		r, err = row{state: Void}, nil // a no needs no row
	}
	if err != nil {
		return false, err
	}
	by, herr := e.holder(v.said.By, v.said.Key)
	if herr != nil || !by.signed(v.said.message(), signature(v.signature)) || !k.has(by, r.q.Role) {
		return false, nil
	}
	if v.said.Yes && (r.state == Void || k.counts(e, v, r) != nil) {
		return false, nil
	}
	a := v.answer(Question{ID: v.said.ApprovalID, ArgsDigest: v.said.ArgsDigest, Capability: r.q.Capability},
		r.q.DecisionID, nil)
	a.From = from
	return true, k.recorded(ctx, *a)
}
