package approval

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"waldo/internal/core/approval/passkey"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
)

// Witness reads the log: who can answer, and which approvals were used. The database holds the same facts, but an
// attacker with write access can roll a row back.
type Witness interface {
	// Look brings the ledger to the end of the log and hands it to fn. It returns an error where any
	// part of the log does not parse or chain, so that a hidden record is never taken for none.
	Look(ctx context.Context, fn func(*Ledger)) error
}

// Ledger is the state of approvals as the log records it, read record by record. It trusts signatures only: an
// unsigned record enrols no approver and restores no right. The zero Ledger is empty.
type Ledger struct {
	// Since is when the log began after another was set aside; zero: none was. An answer from before
	// cannot be shown to be unused. So it is after records were removed.
	Since time.Time
	// Began is the same, of a log that was set aside alone: no enrolment from before counts.
	Began time.Time

	void       []string   // fingerprints of keys of the log that was set aside; none of them counts again
	firsts     []Approver // signed by themselves, in the order of the log
	holders    map[string]holder
	questions  map[string]*asked        // by approval
	wrong      map[string]error         // decision to the fault of the answer recorded for it
	configured map[string]Configuration // by fingerprint of the first approver and path: the newest
	ended      map[string]string        // name and root to when the right of that name was last ended
	enrolments []Enrolment              // those that hold, in the order of the log
	changes    int                      // grows with each enrolment, revocation and configuration that holds
	cut        bool                     // the log does not begin with its first record
	signer     string                   // fingerprint of the first approver who signed the removal
}

// holder is an approver whose enrolment holds, by the fingerprint of the key.
type holder struct {
	Approver
	root    string // fingerprint of the first approver who signed
	revoked bool
}

// Recorded is an answer as the log has it.
type Recorded struct {
	DecisionID string
	ApprovalID string
	ArgsDigest string
	Yes        bool
	By         string // approver:NAME, or session:ID for an agent host's answer
	Key        string // fingerprint
	Signed     json.RawMessage
	Signature  string
	Also       []Said // further yeses
	At, Reason string // as signed, the reason perhaps cut; empty: the record has none
}

// Enrolled takes in a record of who can answer. It returns what is wrong with it, as a *Refused; a
// record that is wrong changes nothing.
func (l *Ledger) Enrolled(e Enrolment) error {
	at, err := time.Parse(time.RFC3339, e.At)
	old := !l.Began.IsZero() && (err != nil || !at.After(l.Began))
	// the right was possibly ended in the log that was set aside
	if e.Failed == "" && e.Action != "revoke" && (old || slices.Contains(l.void, fingerprint(e.Public))) {
		return refused("approver.old", "the enrolment of %s, or its key, is from before the log was set aside",
			Escape(e.Approver))
	}
	err = l.enrolled(e)
	same := func(o Enrolment) bool { return o.Signature == e.Signature }
	if err == nil && e.Failed == "" && !slices.ContainsFunc(l.enrolments, same) {
		l.enrolments, l.changes = append(l.enrolments, e), l.changes+1
	}
	return err
}

// Aside records that the log began at a time, after one that named the keys of void was set aside. Every approver
// enrols anew, with a new key.
func (l *Ledger) Aside(at time.Time, void []string) {
	l.Since, l.Began, l.void = at, at, slices.Clone(void)
}

// Void returns the fingerprints of the keys of the log that was set aside.
func (l *Ledger) Void() []string { return slices.Clone(l.void) }

// Named reports whether this log, or the one that was set aside before it, ever named an approver.
func (l *Ledger) Named() bool { return len(l.firsts)+len(l.void) > 0 }

// Stands reports whether the key with a fingerprint is enrolled and was not revoked.
func (l *Ledger) Stands(fingerprint string) bool {
	h, ok := l.holders[fingerprint]
	return ok && !h.revoked
}

// enrolled is Enrolled of a record of any time.
func (l *Ledger) enrolled(e Enrolment) error {
	if e.Failed != "" {
		return nil // the change is in the record before; nothing unsigned takes it back
	}
	sig, _ := base64.StdEncoding.DecodeString(e.Signature) // one that cannot be read does not hold
	if e.Action == "revoke" {
		return l.revoked(e, sig)
	}
	a := Approver{Name: e.Approver, Key: e.Public, Roles: append([]string{}, e.Roles...), By: e.By, At: e.At,
		Trusted: e.Trusted}
	message := append([]byte(forApprover), canonical(a)...)
	fp := a.Fingerprint()
	if a.By == a.Name {
		if e.Key != fp || !a.signed(message, sig) {
			return refused("approver.signature", "the enrolment of %s does not bear its own signature", Escape(a.Name))
		}
		l.firsts = append(l.firsts, a)
		l.hold(holder{Approver: a, root: fp})
		l.trusted(a)
		return nil
	}
	for _, f := range l.firsts {
		if f.Name == a.By && e.Key == fp && f.signed(message, sig) {
			l.hold(holder{Approver: a, root: f.Fingerprint()})
			return nil
		}
	}
	return refused("approver.signature", "the enrolment of %s is not signed by a first approver", Escape(a.Name))
}

func (l *Ledger) hold(h holder) {
	if l.holders == nil {
		l.holders = map[string]holder{}
	}
	if _, again := l.holders[h.Fingerprint()]; !again { // a record that is repeated restores no right
		h.revoked = h.At < l.ended[h.Name+" "+h.root] // both are signed, and one form of time
		l.holders[h.Fingerprint()] = h
	}
}

func (l *Ledger) revoked(e Enrolment, sig []byte) error {
	for _, f := range l.firsts {
		if f.Name != e.By || !f.signed(revocation(e.Approver, e.At), sig) {
			continue
		}
		if l.ended == nil {
			l.ended = map[string]string{}
		}
		ended := e.Approver + " " + f.Fingerprint()
		l.ended[ended] = max(l.ended[ended], e.At)
		for fp, h := range l.holders {
			if h.Name == e.Approver && h.root == f.Fingerprint() {
				h.revoked = true
				l.holders[fp] = h
			}
		}
		return nil
	}
	return refused("approver.signature", "the revocation of %s is not signed by a first approver", Escape(e.Approver))
}

// Answered takes in the use of an answer by a decision. It returns what is wrong with it, as a *Refused.
func (l *Ledger) Answered(a Recorded) error {
	host := strings.HasPrefix(a.By, "session:") // no key signs a host's answer
	var bad error
	if !host {
		bad = l.checkAll(a)
	}
	q := l.of(a.ApprovalID)
	switch {
	case !a.Yes && bad == nil && !host:
		bad = l.Given(a)
	case !a.Yes:
	case q.used != "":
		bad = refused("approval.twice", "approval %s was used before, for decision %s", Escape(a.ApprovalID), Escape(q.used))
	default:
		if bad == nil && !host && !l.given(a) {
			bad = refused("answer.unrecorded", "decision %s used a yes to approval %s that was not recorded when it was given",
				Escape(a.DecisionID), Escape(a.ApprovalID))
		}
		if q.no != nil || q.declined {
			bad = refused("approval.withdrawn", "approval %s was taken back before it was used", Escape(a.ApprovalID))
		}
		q.use(a.DecisionID)
	}
	if bad != nil {
		l.fault(a.DecisionID, bad)
	}
	return bad
}

func (l *Ledger) fault(decisionID string, bad error) {
	if l.wrong == nil {
		l.wrong = map[string]error{}
	}
	l.wrong[decisionID] = bad
}

// Holds holds an answer against its signature and the keys of the log, and takes nothing in. With used, a quorum must
// be there with it.
func (l *Ledger) Holds(a Recorded, used bool) error {
	if used {
		return l.checkAll(a)
	}
	return l.check(a)
}

// said reports whether a record repeats what was signed; empty: it does not say.
func said(recorded, signed string) bool { return recorded == "" || recorded == signed }

// checkAll holds an answer and its further yeses against their signatures, and counts the approvers.
func (l *Ledger) checkAll(a Recorded) error {
	if err := l.check(a); err != nil {
		return err
	}
	var first signedAnswer
	_ = json.Unmarshal(a.Signed, &first) // check has read it
	names, keys := map[string]bool{first.By: true}, map[string]bool{a.Key: true}
	for _, more := range a.Also {
		one := a
		one.By, one.Key, one.Signed, one.Signature = more.By, more.Key, more.Signed, more.Signature
		one.At, one.Reason = "", ""
		if err := l.check(one); err != nil {
			return err
		}
		var s signedAnswer
		_ = json.Unmarshal(more.Signed, &s)
		if s.Shown != first.Shown || s.Need != first.Need || s.Calls != first.Calls {
			return refused("answer.quorum", "the answers to %s are to different questions", Escape(a.ApprovalID))
		}
		names[s.By], keys[more.Key] = true, true
	}
	if a.Yes && min(len(names), len(keys)) < first.Need {
		return refused("answer.quorum", "the yes to %s needs %d approvers and bears the signatures of %d",
			Escape(a.ApprovalID), first.Need, min(len(names), len(keys)))
	}
	return nil
}

// check holds an answer against its signature and the key that made it.
func (l *Ledger) check(a Recorded) error {
	var s signedAnswer
	sig := signature(a.Signature)
	strict := json.NewDecoder(bytes.NewReader(a.Signed))
	strict.DisallowUnknownFields() // a member that the signature leaves out
	if strict.Decode(&s) != nil || len(sig) == 0 {
		return refused("answer.unsigned", "the answer to %s bears no signature", Escape(a.ApprovalID))
	}
	h, ok := l.holders[a.Key]
	switch {
	case !ok || h.Name != s.By:
		return refused("answer.key", "the answer to %s is signed with a key that no enrolment names", Escape(a.ApprovalID))
	case h.revoked:
		return refused("answer.revoked", "the answer to %s is signed with a key that was revoked before",
			Escape(a.ApprovalID))
	case s.ApprovalID != a.ApprovalID || s.Yes != a.Yes || s.ArgsDigest != a.ArgsDigest || s.Key != a.Key ||
		"approver:"+s.By != a.By || !said(a.At, s.At) || !said(a.Reason, facts.Short(s.Reason)) ||
		!h.signed(s.message(), sig):
		return refused("answer.signature", "the answer to %s is not what its signature stands for", Escape(a.ApprovalID))
	}
	return nil
}

// Confirm reports, after an answer was recorded for a decision, whether it is valid and the first use of its
// approval. If two processes use one approval, the order of the log decides.
func (l *Ledger) Confirm(decisionID, approvalID string) error {
	if err := l.wrong[decisionID]; err != nil {
		return err
	}
	if q := l.questions[approvalID]; q == nil || q.used != decisionID {
		return refused("approval.used", "approval %s was used before, says the log", Escape(approvalID))
	}
	return nil
}

// Enrolments returns the enrolments and revocations that hold, each once, in the order of the log.
func (l *Ledger) Enrolments() []Enrolment { return slices.Clone(l.enrolments) }

// Firsts returns the records of the first approvers, which a log that replaces this one must keep.
func (l *Ledger) Firsts() []Approver { return slices.Clone(l.firsts) }

// Root returns the first approver: the one that every pin names or, without a pin, the first in the
// log.
func (l *Ledger) Root(pins []string) (Approver, error) {
	for _, f := range l.firsts {
		if pinned(pins, f.Fingerprint()) {
			return f, nil
		}
	}
	if len(l.firsts) == 0 {
		return Approver{}, refused("approver.unknown", "the log names no first approver")
	}
	return Approver{}, refused("approver.root", "the first approver that the configuration names is not in the log")
}

func pinned(pins []string, fingerprint string) bool {
	return !slices.ContainsFunc(pins, func(p string) bool { return p != "" && p != fingerprint })
}

// Rooted reports whether the key with a fingerprint was enrolled by the first approver.
func (l *Ledger) Rooted(fingerprint string, pins []string) bool {
	root, err := l.Root(pins)
	return err == nil && l.holders[fingerprint].root == root.Fingerprint()
}

// standing is a copy of a ledger's approvers.
type standing struct {
	holders map[string]holder
	root    Approver
	noRoot  error
}

func (k *Service) standing(ctx context.Context) (s *standing, err error) {
	err = k.look(ctx, func(l *Ledger) error {
		s = k.standingOf(l)
		return nil
	})
	return s, err
}

// unproven refuses because the log cannot be believed. The reason names no file: an agent reads it.
func unproven(what string, err error) *Refused {
	r := refused("approval.unproven", "the log does not show %s; an operator finds why with: waldo log verify", what)
	r.cause = err
	return r
}

// names reports whether the log knows a key of that name, revoked or not.
func (s *standing) names(name string) bool {
	for _, h := range s.holders {
		if h.Name == name && s.noRoot == nil && h.root == s.root.Fingerprint() {
			return true
		}
	}
	return false
}

// named returns the approver of a name who can answer.
func (s *standing) named(name string) (a Approver, err error) {
	err = fmt.Errorf("approval: %s is not enrolled", name)
	for key, h := range s.holders {
		if h.Name == name && err != nil {
			a, err = s.holder(name, key)
		}
	}
	return a, err
}

// all returns the names of the approvers, sorted.
func (s *standing) all() (names []string) {
	for _, h := range s.holders {
		names = append(names, h.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// admits returns why the log does not let an approver answer; nil: it does.
func (s *standing) admits(a Approver) error {
	h, err := s.holder(a.Name, a.Fingerprint())
	if err == nil && string(canonical(h)) != string(canonical(a)) {
		err = fmt.Errorf("approval: the log enrols %s otherwise", a.Name)
	}
	return err
}

// holder returns the approver of that name and key who can answer, by the log.
func (s *standing) holder(name, key string) (Approver, error) {
	if s.noRoot != nil {
		return Approver{}, s.noRoot
	}
	h, ok := s.holders[key]
	switch {
	case !ok || h.Name != name || h.root != s.root.Fingerprint():
		return Approver{}, fmt.Errorf("approval: no record of the log enrols %s with this key", name)
	case h.revoked:
		return Approver{}, fmt.Errorf("approval: %s was revoked, says the log", name)
	case s.holders[h.root].revoked:
		return Approver{}, errors.New("approval: the first approver was revoked, says the log")
	}
	return h.Approver, nil
}

// pins returns the fingerprints that the first approver must have, as the configuration and the
// environment give them.
func (k *Service) pins() []string {
	return []string{k.rules().Root, k.Root}
}

// revocation is the message that the first approver signs to revoke another.
func revocation(name, at string) []byte { return []byte(forRevoke + name + "\n" + at) }

func (a Approver) signed(message, sig []byte) bool {
	if c, err := passkey.Parse(a.Key); err == nil {
		return c.Verify(message, sig) == nil
	}
	pub, err := hex.DecodeString(a.Key)
	return err == nil && len(pub) == ed25519.PublicKeySize && ed25519.Verify(pub, message, sig)
}

// Fingerprint returns the digest of the approver's key, to compare with a copy stored elsewhere.
func (a Approver) Fingerprint() string { return fingerprint(a.Key) }

func fingerprint(key string) string { return strictjson.Digest([]byte(key)) }
