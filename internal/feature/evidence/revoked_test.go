package evidence

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	"waldo/internal/model/contract"
)

// TestRevokedInReceipts: the receipts of an answer come with those of all enrolments and revocations, so that they show
// a key which was revoked before it. The attacker has bob's key and the log, and repeats his yes after his revocation.
func TestRevokedInReceipts(t *testing.T) {
	g, ctx := newGround(t, 1), t.Context()
	d := decided(1, "mail.send", policy.Ask, contract.Write)
	d.Contract.Approval = contract.Approval{When: contract.Always}
	g.recorder(func(r *audit.Recorder, l *audit.Log) {
		desk := &approval.Service{Store: g.store, Witness: &audit.Witness{Dir: g.tree.Dir}, Records: audit.Desk{Recorder: r, User: "os:1000"}}
		signers := map[string]approval.Signer{}
		for _, name := range []string{"ann", "bob"} { // records 3 and 4
			public, private, err := ed25519.GenerateKey(nil)
			signers[name] = approval.NewSigner(name, private)
			if _, eerr := desk.EnrollKey(ctx, name, nil, public, signers["ann"]); errors.Join(err, eerr) != nil {
				t.Fatal(err, eerr)
			}
		}
		_, asked, err := desk.Ask(ctx, d)
		q, _, qerr := desk.Question(ctx, asked)
		if err = errors.Join(err, qerr); err != nil {
			t.Fatal(err)
		}
		err = desk.Answer(ctx, signers["bob"], q, true, "it is right")
		if err = errors.Join(err, desk.Revoke(ctx, "bob", signers["ann"])); err != nil { // records 5 and 6
			t.Fatal(err)
		}
	})
	yes := g.record(5)
	g.recorder(func(_ *audit.Recorder, l *audit.Log) {
		if _, err := l.Append(ctx, yes.Kind, yes.Body, true); err != nil {
			t.Fatal(err)
		}
	})
	dir, policy := t.TempDir(), filepath.Join(t.TempDir(), "policy")
	rules, at := g.vouched()
	if err := os.WriteFile(policy, rules, 0o600); err != nil {
		t.Fatal(err)
	}
	for seq, want := range map[uint64]string{5: "", 7: "problem: answer.revoked: record 7: "} {
		var files []string
		var numbers []uint64
		found, err := withApprovers(ctx, g.tree.Dir, []audit.Record{g.record(seq)})
		for _, r := range found {
			b, rerr := g.tree.Receipt(at, r)
			files, numbers = append(files, filepath.Join(dir, fmt.Sprint(r.Seq))), append(numbers, r.Seq)
			if err = errors.Join(err, rerr, os.WriteFile(files[len(files)-1], b, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		all := []uint64{3, 4, 6, seq}
		if slices.Sort(all); !slices.Equal(numbers, all) || err != nil {
			t.Errorf("receipts of the answer %d: of the records %v: %v", seq, numbers, err)
		}
		var said bytes.Buffer
		err = Evidence{}.Receipt(&said, files, policy, false)
		if (err == nil) != (want == "") || !strings.Contains(said.String(), want) {
			t.Errorf("answer %d: %v: %s", seq, err, said.String())
		}
	}
	if found, err := withApprovers(ctx, g.tree.Dir, []audit.Record{g.record(2)}); len(found) != 1 || err != nil {
		t.Errorf("control, a record without an answer: %d records, %v", len(found), err)
	}
}
