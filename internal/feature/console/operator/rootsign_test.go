package operator

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"waldo/internal/core/approval/enrolment"

	"waldo/internal/core/approval"
	"waldo/internal/testing/passkeytest"
)

// TestRootSignsRequests: a first approver with a passkey signs a revocation and a removal from the log in the console.
// The secret of the terminal, the code of the request and the key are all needed.
func TestRootSignsRequests(t *testing.T) {
	d := open(t)
	ann := d.approver("ann", nil)
	bob := d.approver("bob", signer{"ann", ann})
	b := &browser{d: d}
	sign := func(secret string, key *passkeytest.Authenticator) (c ceremony, status int, code string) {
		if status, code = b.do("POST", "/api/v1/enrolment-root", map[string]string{"secret": secret}, &c); status != 200 {
			return c, status, code
		}
		status, code = b.do("POST", "/api/v1/enrolment-root/"+c.Draft+"/sign",
			map[string]any{"assertion": json.RawMessage(key.Get(c.Options.Challenge))}, nil)
		return c, status, code
	}
	secrets := make(chan string, 1)
	by := enrolment.BrowserSigner{Ctx: d.ctx, Root: "ann", What: "the end of the right of bob", Store: d.store,
		Tell: func(secret string) { secrets <- secret }}
	ended := make(chan error, 1)
	go func() { ended <- d.k.Revoke(d.ctx, "bob", by) }()
	secret := <-secrets
	if _, status, code := sign("guess", ann); status != 403 || code != "enrol.secret" {
		t.Errorf("a guess: %d %s", status, code)
	}
	mine := passkeytest.New("http://"+host, "localhost")
	mine.ID = ann.ID
	for why, key := range map[string]*passkeytest.Authenticator{"bob's key": bob, "a virtual authenticator": mine} {
		if _, status, code := sign(secret, key); status != 400 || code != "enrol.signature" {
			t.Errorf("%s: %d %s", why, status, code)
		}
	}
	row, _, err := d.store.Get(d.ctx, enrolment.Requests, enrolment.Digest(secret))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.store.Put(d.ctx, enrolment.Requests, enrolment.Digest(secret), strings.Replace(row, "right of bob", "right of eve", 1)); err != nil {
		t.Fatal(err)
	}
	if _, status, code := sign(secret, ann); status != 403 || code != "enrol.secret" {
		t.Errorf("a request that was changed: %d %s", status, code)
	}
	if err := d.store.Put(d.ctx, enrolment.Requests, enrolment.Digest(secret), row); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("revoked without a signature: %v", err)
	default:
	}
	c, status, code := sign(secret, ann)
	if status != 200 || c.Name != by.What {
		t.Fatalf("%d %s, shown %q", status, code, c.Name)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, status, code := sign(secret, ann); status != 403 || code != "enrol.secret" {
		t.Errorf("the secret a second time: %d %s", status, code)
	}
	all, err := d.k.Approvers(d.ctx)
	if err != nil || len(all) != 1 || all[0].Name != "ann" {
		t.Errorf("bob can still answer: %+v %v", all, err)
	}
	if r := d.verify(); !r.OK {
		t.Errorf("the log: %+v", r)
	}

	// A removal from the log, and a signature that an agent wrote in the place of the approver's.
	p := approval.Checkpoint{Through: 3, Hash: "sha256:h"}
	go func() { ended <- p.Sign(by, all[0], time.Now()) }()
	if _, status, code := sign(<-secrets, ann); status != 200 {
		t.Fatalf("%d %s", status, code)
	}
	if err := <-ended; err != nil {
		t.Errorf("a removal: %v", err)
	}
	go func() { ended <- p.Sign(by, all[0], time.Now()) }()
	if err := d.store.Put(d.ctx, enrolment.Signatures, enrolment.Digest(<-secrets), `{}`); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "approver.signature") {
		t.Errorf("a signature of the agent's: %v", err)
	}
}
