package operator

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"waldo/internal/core/approval/enrolment"
	"waldo/internal/core/approval/passkey"
	"waldo/internal/feature/console/site"
)

// Invited satisfies site.Backend.
func (p *Operator) Invited(ctx context.Context, who site.Who, word string) (site.Ceremony, error) {
	word = strings.ToLower(strings.TrimSpace(word))
	i, ok, err := enrolment.Open(ctx, p.o.Store, word)
	if err != nil {
		return site.Ceremony{}, err
	}
	if !ok {
		return site.Ceremony{}, site.Problemf(http.StatusForbidden, "enrol.secret",
			"no terminal waits with this secret: waldo approve --enroll NAME --passkey prints one")
	}
	rp, err := passkey.RelyingParty(who.Origin)
	if err != nil {
		return site.Ceremony{}, site.Problemf(http.StatusBadRequest, "enrol.origin", "%v", err)
	}
	var b [32]byte
	_, _ = rand.Read(b[:])
	challenge := base64.RawURLEncoding.EncodeToString(b[:])
	user := sha256.Sum256([]byte("waldo user\n" + i.Name))
	algorithms := []map[string]any{}
	for _, alg := range passkey.Algorithms {
		algorithms = append(algorithms, map[string]any{"type": "public-key", "alg": alg})
	}
	options, err := json.Marshal(map[string]any{
		"challenge": challenge, "rp": map[string]string{"id": rp, "name": "waldo"}, "timeout": draftLife.Milliseconds(),
		"attestation": "none",
		"user": map[string]string{
			"id": base64.RawURLEncoding.EncodeToString(user[:16]), "name": i.Name, "displayName": i.Name + " (waldo)",
		},
		"pubKeyCredParams": algorithms, "authenticatorSelection": map[string]any{
			"userVerification": "required", "residentKey": "preferred",
		},
	})
	d := draft{kind: "register", session: who.Session, origin: who.Origin, secret: word, invite: i, challenge: challenge}
	return site.Ceremony{Draft: p.drafts.keep(d), Name: i.Name, Options: options}, err
}

// Register satisfies site.Backend.
func (p *Operator) Register(
	_ context.Context, who site.Who, name string, credential json.RawMessage,
) (site.Ceremony, error) {
	d, err := p.drafts.take(name, "register", who, "")
	if err != nil {
		return site.Ceremony{}, err
	}
	key, err := passkey.Register(bytes.Clone(credential), d.challenge, d.origin)
	if err != nil {
		return site.Ceremony{}, site.Problemf(http.StatusBadRequest, "enrol.credential", "%v", err)
	}
	d.approver, err = p.o.Approvals.NewApprover(d.invite.Name, d.invite.Roles, key.Text(), d.invite.By, d.invite.Trusted...)
	if err != nil {
		return site.Ceremony{}, err
	}
	options, err := requestOptions(d.approver.Message(), key)
	if err != nil {
		return site.Ceremony{}, err
	}
	d.kind, d.key, d.message = "enrol", key, d.approver.Message()
	return site.Ceremony{Draft: p.drafts.keep(d), Name: d.approver.Fingerprint(), Options: options}, nil
}

// Enrol satisfies site.Backend.
func (p *Operator) Enrol(ctx context.Context, who site.Who, name string, assertion json.RawMessage) error {
	d, small, err := p.signed(name, "enrol", who, assertion)
	if err != nil {
		return err
	}
	return enrolment.Answer(ctx, p.o.Store, d.secret, d.approver, small)
}

// signed takes a draft, and checks the passkey's signature under its message.
func (p *Operator) signed(
	name, kind string, who site.Who, assertion json.RawMessage,
) (d draft, small []byte, err error) {
	if d, err = p.drafts.take(name, kind, who, ""); err != nil {
		return d, nil, err
	}
	if small, err = passkey.Compact(bytes.Clone(assertion)); err == nil {
		err = d.key.Verify(d.message, small)
	}
	if err != nil {
		return d, nil, site.Problemf(http.StatusBadRequest, "enrol.signature", "%v", err)
	}
	return d, small, nil
}

// RootBegin satisfies site.Backend. Only what bears the code of the secret is signed, so that no row written from
// outside asks for a signature.
func (p *Operator) RootBegin(ctx context.Context, who site.Who, word string) (site.Ceremony, error) {
	word = strings.ToLower(strings.TrimSpace(word))
	r, ok, err := enrolment.Requested(ctx, p.o.Store, word)
	if err != nil {
		return site.Ceremony{}, err
	}
	if !ok {
		return site.Ceremony{}, site.Problemf(http.StatusForbidden, "enrol.secret",
			"nothing waits for a signature with this secret; for an enrolment make the new passkey first")
	}
	key, found, err := p.passkeyOf(ctx, r.Root)
	if err != nil {
		return site.Ceremony{}, err
	}
	if !found {
		return site.Ceremony{}, site.Problemf(http.StatusConflict, "enrol.root",
			"the first approver, %s, signs at the terminal", r.Root)
	}
	if key.Origin != who.Origin {
		return site.Ceremony{}, site.Problemf(http.StatusForbidden, "approval.origin",
			"the passkey of %s was enrolled at %s, and this page is at %s", r.Root, key.Origin, who.Origin)
	}
	options, err := requestOptions(r.Message, key)
	d := draft{kind: "root", session: who.Session, origin: who.Origin, secret: word, message: r.Message, key: key}
	return site.Ceremony{Draft: p.drafts.keep(d), Name: r.What, Options: options}, err
}

// RootSign satisfies site.Backend.
func (p *Operator) RootSign(ctx context.Context, who site.Who, name string, assertion json.RawMessage) error {
	d, small, err := p.signed(name, "root", who, assertion)
	if err != nil {
		return err
	}
	return enrolment.Sign(ctx, p.o.Store, d.secret, small)
}
