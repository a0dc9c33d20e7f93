package audit

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/storage/database"
	"waldo/internal/testing/storetest"
)

// put records that a first approver signed a configuration.
func (a *approvals) put(by approval.Signer, root approval.Approver, file, digest string, at time.Time) approval.Configuration {
	a.t.Helper()
	c := approval.Configuration{File: file, Digest: digest, Accepted: digest}
	if err := c.Sign(by, root, at); err != nil {
		a.t.Fatal(err)
	}
	a.record(c)
	return c
}

func (a *approvals) record(c approval.Configuration) {
	a.t.Helper()
	if err := a.rec.Configuration(ctx, "os:1", c, ""); err != nil {
		a.t.Fatal(err)
	}
}

// newest returns the digest that the log has as signed last, or the code of the refusal.
func (a *approvals) newest(file string, pins ...string) (digest string) {
	a.t.Helper()
	err := (&Witness{Dir: a.dir}).Look(ctx, func(l *approval.Ledger) {
		root, needed, err := l.Judge(pins)
		var no *approval.Refused
		switch {
		case !needed:
			digest = "unneeded"
		case errors.As(err, &no):
			digest = no.Reason.Code
		default:
			digest = l.NewestOf(root, file).Digest
		}
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return digest
}

// TestSignedConfigurations: the newest that the first approver signed counts, and no record of another writer changes
// that. Verify names each.
func TestSignedConfigurations(t *testing.T) {
	now := time.Now()
	for _, row := range []struct {
		why, want, code string
		write           func(a *approvals, old approval.Configuration)
	}{
		{"nothing", "new", "", func(*approvals, approval.Configuration) {}},
		{"signed once more", "other", "", func(a *approvals, _ approval.Configuration) {
			a.put(a.ann, a.root(), "/w.yaml", "other", now.Add(time.Hour))
		}},
		{"another file", "new", "", func(a *approvals, _ approval.Configuration) {
			a.put(a.ann, a.root(), "/x.yaml", "other", now.Add(time.Hour))
		}},
		{"an older one repeated", "new", "configuration.old", func(a *approvals, old approval.Configuration) { a.record(old) }},
		{"the digest changed", "new", "configuration.signature", func(a *approvals, old approval.Configuration) {
			old.Accepted, old.At = "evil", database.Stamp(now.Add(time.Hour))
			a.record(old)
		}},
		{"the path changed", "new", "configuration.signature", func(a *approvals, old approval.Configuration) {
			old.File = "/x.yaml"
			a.record(old)
		}},
		{"without a signature", "new", "configuration.signature", func(a *approvals, old approval.Configuration) {
			old.At, old.Signature = database.Stamp(now.Add(time.Hour)), ""
			a.record(old)
		}},
		{"an approver who is not the first", "new", "configuration.key", func(a *approvals, _ approval.Configuration) {
			bob := a.enrol("bob", a.ann)
			all, err := a.desk.Approvers(ctx)
			if err != nil {
				a.t.Fatal(err)
			}
			a.put(bob, all[1], "/w.yaml", "evil", now.Add(time.Hour))
		}},
		{"an unknown key", "new", "configuration.key", func(a *approvals, _ approval.Configuration) {
			eve, private := stranger(a.t)
			a.put(private, eve, "/w.yaml", "evil", now.Add(time.Hour))
		}},
		{"a second first approver", "new", "configuration.root", func(a *approvals, _ approval.Configuration) {
			eve, private := stranger(a.t)
			if err := a.rec.Approver(ctx, "os:1", selfSigned(a.t, eve, private)); err != nil {
				a.t.Fatal(err)
			}
			a.put(private, eve, "/w.yaml", "evil", now.Add(time.Hour))
		}},
		{"after the first approver was revoked", "approver.revoked", "configuration.revoked",
			func(a *approvals, _ approval.Configuration) {
				root := a.root()
				if err := a.desk.Revoke(ctx, "ann", a.ann); err != nil {
					a.t.Fatal(err)
				}
				a.put(a.ann, root, "/w.yaml", "evil", now.Add(time.Hour))
			}},
	} {
		t.Run(row.why, func(t *testing.T) {
			a := newApprovals(t)
			pin := a.root().Fingerprint()
			old := a.put(a.ann, a.root(), "/w.yaml", "old", now.Add(time.Second))
			a.put(a.ann, a.root(), "/w.yaml", "new", now.Add(2*time.Second))
			row.write(a, old)
			if got := a.newest("/w.yaml"); got != row.want {
				t.Errorf("in force %q, want %q", got, row.want)
			}
			closeLog(t, a.log)
			a.log = nil
			rep := a.verify(pin)
			if rep.OK != (row.code == "") || !strings.Contains(findings(rep), row.code) {
				t.Errorf("verify: %v, %s", rep.OK, findings(rep))
			}
		})
	}
}

// TestConfigurationsOfTheFirstEnrolment: they count until a newer one is signed, and only with that signature.
func TestConfigurationsOfTheFirstEnrolment(t *testing.T) {
	a := newApprovals(t)
	if got := a.newest("/w.yaml"); got != "" {
		t.Errorf("control: %q", got)
	}
	if got := a.newest("/w.yaml", "sha256:0"); got != "approver.root" {
		t.Errorf("another pin: %q", got)
	}
	store, err := storetest.Open(t, filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	b := &approvals{t: t, store: store, dir: store.Path("log")}
	b.restart()
	if got := b.newest("/w.yaml"); got != "unneeded" {
		t.Errorf("before the first enrolment: %q", got)
	}
	if got := b.newest("/w.yaml", "sha256:0"); got != "approver.unknown" {
		t.Errorf("a pin, and a log without its key: %q", got)
	}
	pub, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	b.ann = approval.NewSigner("ann", private)
	many := make([]approval.Configuration, 101)
	if _, err := b.desk.EnrollKey(ctx, "ann", nil, pub, b.ann, many...); err == nil {
		t.Error("more than one record holds are shortened")
	}
	signs := approval.Configuration{File: "/w.yaml", Digest: "first", Accepted: "first"}
	if _, err := b.desk.EnrollKey(ctx, "ann", nil, pub, b.ann, signs); err != nil {
		t.Fatal(err)
	}
	if got := b.newest("/w.yaml"); got != "first" {
		t.Errorf("enrolled: %q", got)
	}
	all, err := b.desk.Approvers(ctx) // the rows and the log agree
	if err != nil || len(all) != 1 || len(all[0].Trusted) != 1 {
		t.Fatal(all, err)
	}
	forged := all[0]
	forged.Trusted = []approval.Configuration{{File: "/w.yaml", Digest: "evil", Accepted: "evil"}}
	if err := b.rec.Approver(ctx, "os:1", approval.Enrolment{Action: "enrol", Approver: "ann", Key: forged.Fingerprint(),
		Public: forged.Key, By: "ann", At: database.Stamp(time.Now().Add(time.Hour)), Trusted: forged.Trusted,
		Signature: "AAAA"}); err != nil {
		t.Fatal(err)
	}
	if got := b.newest("/w.yaml"); got != "first" {
		t.Errorf("a forged enrolment: %q", got)
	}
	b.put(b.ann, all[0], "/w.yaml", "second", time.Now().Add(time.Second))
	if err := b.rec.Approver(ctx, "os:1", selfSigned(t, all[0], b.ann)); err != nil {
		t.Fatal(err)
	}
	if got := b.newest("/w.yaml"); got != "second" {
		t.Errorf("the enrolment repeated: %q", got)
	}
	b.put(b.ann, all[0], "/w.yaml", "", time.Now().Add(2*time.Second))
	if got := b.newest("/w.yaml"); got != "" {
		t.Errorf("forgotten: %q", got)
	}
}

// TestPrunedConfigurations: the removal of records carries the newest signed configuration of each path, under the
// first approver's signature. One that carries less does not bring an older one back.
func TestPrunedConfigurations(t *testing.T) {
	for _, row := range []struct {
		why, want string
		change    func(a *approvals, p *Pruned)
	}{
		{"signed", "new", func(a *approvals, p *Pruned) { _ = a.sign(&p.Checkpoint) }},
		{"unsigned", "prune.unsigned", func(*approvals, *Pruned) {}},
		{"the newest left out", "prune.unsigned", func(a *approvals, p *Pruned) {
			_ = a.sign(&p.Checkpoint)
			p.Configurations = nil
		}},
	} {
		t.Run(row.why, func(t *testing.T) {
			a := newApprovals(t)
			now := time.Now()
			old := a.put(a.ann, a.root(), "/w.yaml", "old", now.Add(time.Second))
			a.put(a.ann, a.root(), "/w.yaml", "new", now.Add(2*time.Second))
			a.forge(func(p *Pruned) { row.change(a, p) })
			if got := a.newest("/w.yaml"); got != row.want {
				t.Errorf("in force %q, want %q", got, row.want)
			}
			a.record(old)
			if got := a.newest("/w.yaml"); got != row.want {
				t.Errorf("with the old record behind it %q, want %q", got, row.want)
			}
		})
	}
}

// TestAsideConfigurations: after the log was set aside nothing is signed, until a first approver enrols anew.
func TestAsideConfigurations(t *testing.T) {
	b := newLab(t, true)
	b.open()
	b.put(b.ann, b.root(), "/w.yaml", "old", time.Now().Add(time.Second))
	b.shut()
	b.aside()
	b.open()
	defer b.shut()
	if got := b.newest("/w.yaml"); got != "approver.unknown" {
		t.Errorf("after the log was set aside: %q", got)
	}
	b.enrol("ann", nil)
	if got := b.newest("/w.yaml"); got != "" {
		t.Errorf("after a new enrolment: %q", got)
	}
}

func stranger(t *testing.T) (approval.Approver, approval.Signer) {
	t.Helper()
	pub, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	eve, err := (&approval.Service{}).NewApprover("eve", nil, hex.EncodeToString(pub), "eve")
	if err != nil {
		t.Fatal(err)
	}
	return eve, approval.NewSigner("eve", private)
}

func selfSigned(t *testing.T, a approval.Approver, by approval.Signer) approval.Enrolment {
	t.Helper()
	sig, err := by.Sign(a.Message())
	if err != nil {
		t.Fatal(err)
	}
	return approval.Enrolment{Action: "enrol", Approver: a.Name, Key: a.Fingerprint(), Public: a.Key, Roles: a.Roles,
		By: a.By, At: a.At, Trusted: a.Trusted, Signature: base64.StdEncoding.EncodeToString(sig)}
}

// TestRetentionIsSigned: in a log that names approvers, only a signed configuration says that a removal was wanted.
func TestRetentionIsSigned(t *testing.T) {
	const month = 30 * 24 * time.Hour
	a := newApprovals(t)
	a.put(a.ann, a.root(), "/w.yaml", "new", time.Now().Add(time.Second))
	a.forge(func(p *Pruned) {
		p.Newest = database.Stamp(time.Now().Add(-2 * month))
		if err := a.sign(&p.Checkpoint); err != nil {
			t.Fatal(err)
		}
	})
	closeLog(t, a.log)
	a.log = nil
	for _, row := range []struct {
		why     string
		keeps   []Retention
		unasked bool
	}{
		{"control: signed", []Retention{{"/w.yaml", "new", month}}, false},
		{"signed, and others are not", []Retention{{"/x.yaml", "x", 0}, {"/w.yaml", "new", month}}, false},
		{"changed since", []Retention{{"/w.yaml", "evil", month}}, true},
		{"another file", []Retention{{"/x.yaml", "new", month}}, true},
		{"nothing is trusted of it", []Retention{{"/x.yaml", "", month}}, true},
		{"the signed one keeps every record", []Retention{{"/w.yaml", "new", 0}, {"/x.yaml", "x", month}}, true},
	} {
		rep, err := Verify(ctx, a.dir, nil, time.Now(), Expect{Keeps: row.keeps})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(findings(rep), "prune.unasked"); got != row.unasked {
			t.Errorf("%s: %s", row.why, findings(rep))
		}
	}
}
