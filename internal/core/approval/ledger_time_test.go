package approval

import (
	"crypto/ed25519"
	"encoding/base64"
	"testing"
	"time"
)

// signedBy is an enrolment of an approver with a key, signed by another.
func signedBy(name string, key ed25519.PrivateKey, by string, byKey ed25519.PrivateKey, at string) Enrolment {
	a := Approver{Name: name, Key: hexKey(key), Roles: []string{}, By: by, At: at}
	sig := ed25519.Sign(byKey, append([]byte(forApprover), canonical(a)...))
	return Enrolment{
		Action: "enrol", Approver: name, Key: a.Fingerprint(), Public: a.Key, By: by, At: at,
		Signature: base64.StdEncoding.EncodeToString(sig),
	}
}

// TestEnrolmentsInTime: a replayed enrolment grants no right in a ledger that knows its revocation but not the
// enrolment. After a log was set aside, earlier enrolments do not count, except a first approver's. The controls are
// enrolments signed afterwards.
func TestEnrolmentsInTime(t *testing.T) {
	_, ann, _ := ed25519.GenerateKey(nil)
	_, bob, _ := ed25519.GenerateKey(nil)
	const first, early, middle, late = "2026-01-01T00:00:00.000Z", "2026-02-01T00:00:00.000Z", "2026-03-01T00:00:00.000Z",
		"2026-04-01T00:00:00.000Z"
	ledger := func() *Ledger {
		l := &Ledger{}
		if err := l.Enrolled(signedBy("ann", ann, "ann", ann, first)); err != nil {
			t.Fatal("control: ", err)
		}
		return l
	}
	revoked := Enrolment{Action: "revoke", Approver: "bob", By: "ann", At: middle,
		Signature: base64.StdEncoding.EncodeToString(ed25519.Sign(ann, revocation("bob", middle)))}
	for at, want := range map[string]bool{early: true, late: false} {
		l, e := ledger(), signedBy("bob", bob, "ann", ann, at)
		for _, r := range []Enrolment{revoked, e} {
			if err := l.Enrolled(r); err != nil {
				t.Fatal(at, err)
			}
		}
		if h, ok := l.holders[e.Key]; !ok || h.revoked != want {
			t.Errorf("signed %s, revoked %s: known %v, revoked %v", at, middle, ok, h.revoked)
		}
	}
	began, err := time.Parse(time.RFC3339, middle)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{early: "approver.old", late: ""} {
		l := &Ledger{}
		l.Aside(began, nil)
		if err := l.Enrolled(signedBy("ann", ann, "ann", ann, first)); code(err) != "approver.old" {
			t.Fatal("a first approver from before: ", err)
		}
		if err := l.Enrolled(signedBy("ann", ann, "ann", ann, late)); err != nil {
			t.Fatal("control: ", err)
		}
		again := &Ledger{}
		again.Aside(began, []string{l.Firsts()[0].Fingerprint()})
		if err := again.Enrolled(signedBy("ann", ann, "ann", ann, late)); code(err) != "approver.old" {
			t.Fatal("a key of the log that was set aside: ", err)
		}
		if err := l.Enrolled(signedBy("bob", bob, "ann", ann, at)); want == "" && err != nil ||
			want != "" && code(err) != want {
			t.Errorf("signed %s, set aside %s: %v", at, middle, err)
		}
	}
}
