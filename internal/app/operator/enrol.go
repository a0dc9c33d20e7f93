package operator

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/approval/passkey"
	"waldo/internal/frontend/console"
	"waldo/internal/storage/database"
)

// The buckets of enrolments under way: invitations by the digest of their secret, and enrolments that a browser has
// signed. A row proves nothing: the terminal that made the secret checks the code over it.
const (
	invites    = "passkey-invites"
	enrolments = "passkey-enrolments"
	rootSigned = "passkey-roots" // the first approver's assertion under an enrolment, by the same digest
)

// InviteLife is how long the secret of a terminal is good for.
const InviteLife = 10 * time.Minute

// Invite lets one passkey be enrolled.
type Invite struct {
	Name    string    `json:"name"`
	Roles   []string  `json:"roles"`
	By      string    `json:"by"` // who signs it: the first approver, or Name itself
	Expires time.Time `json:"expires"`
}

// enrolment is a browser's signed answer to the terminal.
type enrolment struct {
	Approver  approval.Approver `json:"approver"`
	Assertion []byte            `json:"assertion"`
	Code      []byte            `json:"code"` // HMAC-SHA256 over both, with the terminal's secret
}

func (e enrolment) code(secret string) []byte {
	h := hmac.New(sha256.New, []byte("waldo passkey enrolment v1\n"+secret))
	_, _ = h.Write(e.Approver.Message())
	_, _ = h.Write(e.Assertion)
	return h.Sum(nil)
}

// NewInvite stores an invitation and returns its secret, for a terminal to show once.
func NewInvite(ctx context.Context, s *database.Store, i Invite) (string, error) {
	i.Expires = time.Now().Add(InviteLife)
	b, err := json.Marshal(i)
	if err != nil {
		return "", err
	}
	word := secret()
	return word, s.Put(ctx, invites, digest(word), string(b))
}

// Enrolled waits until a browser has answered an invitation, and returns what it signed. It takes only an enrolment
// that bears the code of the secret, for the invited name and roles, signed with the new key.
func Enrolled(
	ctx context.Context, s *database.Store, word string, i Invite,
) (a approval.Approver, assertion []byte, err error) {
	at := digest(word)
	for {
		text, ok, err := s.Get(ctx, enrolments, at)
		if err != nil {
			return a, nil, err
		}
		if ok {
			var e enrolment
			if json.Unmarshal([]byte(text), &e) != nil || !hmac.Equal(e.Code, e.code(word)) {
				return a, nil, errors.New("the enrolment does not come from a browser that knows the secret; nothing was changed")
			}
			a = e.Approver
			key, err := passkey.Parse(a.Key)
			if err == nil {
				err = key.Verify(a.Message(), e.Assertion)
			}
			if err == nil && (a.Name != i.Name || a.By != i.By || strings.Join(a.Roles, "\n") != strings.Join(i.Roles, "\n")) {
				err = errors.New("it is for another name, or other roles")
			}
			if err != nil {
				return a, nil, fmt.Errorf("the enrolment is refused: %w", err)
			}
			return a, e.Assertion, nil
		}
		select {
		case <-ctx.Done():
			return a, nil, ctx.Err()
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// ForgetInvite removes an invitation and its answer.
func ForgetInvite(ctx context.Context, s *database.Store, word string) error {
	return errors.Join(s.Delete(ctx, invites, digest(word)), s.Delete(ctx, enrolments, digest(word)),
		s.Delete(ctx, rootSigned, digest(word)))
}

// Invited satisfies console.Backend.
func (p *Operator) Invited(ctx context.Context, who console.Who, word string) (console.Ceremony, error) {
	word = strings.ToLower(strings.TrimSpace(word))
	text, ok, err := p.o.Store.Get(ctx, invites, digest(word))
	if err != nil {
		return console.Ceremony{}, err
	}
	var i Invite
	if !ok || json.Unmarshal([]byte(text), &i) != nil || time.Now().After(i.Expires) {
		return console.Ceremony{}, console.Problemf(http.StatusForbidden, "enrol.secret",
			"no terminal waits with this secret: waldo approve --enroll NAME --passkey prints one")
	}
	rp, err := passkey.RelyingParty(who.Origin)
	if err != nil {
		return console.Ceremony{}, console.Problemf(http.StatusBadRequest, "enrol.origin", "%v", err)
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
	return console.Ceremony{Draft: p.drafts.keep(d), Name: i.Name, Options: options}, err
}

// Register satisfies console.Backend.
func (p *Operator) Register(
	_ context.Context, who console.Who, name string, credential json.RawMessage,
) (console.Ceremony, error) {
	d, err := p.drafts.take(name, "register", who, "")
	if err != nil {
		return console.Ceremony{}, err
	}
	key, err := passkey.Register(bytes.Clone(credential), d.challenge, d.origin)
	if err != nil {
		return console.Ceremony{}, console.Problemf(http.StatusBadRequest, "enrol.credential", "%v", err)
	}
	d.approver, err = p.o.Approvals.NewApprover(d.invite.Name, d.invite.Roles, key.Text(), d.invite.By)
	if err != nil {
		return console.Ceremony{}, err
	}
	options, err := requestOptions(d.approver.Message(), key)
	if err != nil {
		return console.Ceremony{}, err
	}
	d.kind, d.key, d.message = "enrol", key, d.approver.Message()
	return console.Ceremony{Draft: p.drafts.keep(d), Name: d.approver.Fingerprint(), Options: options}, nil
}

// Enrol satisfies console.Backend.
func (p *Operator) Enrol(ctx context.Context, who console.Who, name string, assertion json.RawMessage) error {
	d, small, err := p.signed(name, "enrol", who, assertion)
	if err != nil {
		return err
	}
	e := enrolment{Approver: d.approver, Assertion: small}
	e.Code = e.code(d.secret)
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return p.o.Store.Put(ctx, enrolments, digest(d.secret), string(b))
}

// signed takes a draft, and checks the passkey's signature under its message.
func (p *Operator) signed(
	name, kind string, who console.Who, assertion json.RawMessage,
) (d draft, small []byte, err error) {
	if d, err = p.drafts.take(name, kind, who, ""); err != nil {
		return d, nil, err
	}
	if small, err = passkey.Compact(bytes.Clone(assertion)); err == nil {
		err = d.key.Verify(d.message, small)
	}
	if err != nil {
		return d, nil, console.Problemf(http.StatusBadRequest, "enrol.signature", "%v", err)
	}
	return d, small, nil
}

// RootBegin satisfies console.Backend. Only what bears the code of the secret is signed, so that no row written from
// outside asks for a signature.
func (p *Operator) RootBegin(ctx context.Context, who console.Who, word string) (console.Ceremony, error) {
	word = strings.ToLower(strings.TrimSpace(word))
	r, ok, err := p.requested(ctx, word)
	if err != nil {
		return console.Ceremony{}, err
	}
	if !ok {
		return console.Ceremony{}, console.Problemf(http.StatusForbidden, "enrol.secret",
			"nothing waits for a signature with this secret; for an enrolment make the new passkey first")
	}
	key, found, err := p.passkeyOf(ctx, r.Root)
	if err != nil {
		return console.Ceremony{}, err
	}
	if !found {
		return console.Ceremony{}, console.Problemf(http.StatusConflict, "enrol.root",
			"the first approver, %s, signs at the terminal", r.Root)
	}
	if key.Origin != who.Origin {
		return console.Ceremony{}, console.Problemf(http.StatusForbidden, "approval.origin",
			"the passkey of %s was enrolled at %s, and this page is at %s", r.Root, key.Origin, who.Origin)
	}
	options, err := requestOptions(r.Message, key)
	d := draft{kind: "root", session: who.Session, origin: who.Origin, secret: word, message: r.Message, key: key}
	return console.Ceremony{Draft: p.drafts.keep(d), Name: r.What, Options: options}, err
}

// enrolmentInWords says what the first approver signs.
func enrolmentInWords(a approval.Approver) string {
	return fmt.Sprintf("%s, roles %q, %s", a.Name, a.Roles, a.Fingerprint())
}

// RootSign satisfies console.Backend.
func (p *Operator) RootSign(ctx context.Context, who console.Who, name string, assertion json.RawMessage) error {
	d, small, err := p.signed(name, "root", who, assertion)
	if err != nil {
		return err
	}
	return p.o.Store.Put(ctx, rootSigned, digest(d.secret), string(small))
}

// RootSigned waits for the first approver's signature under an enrolment. EnrollSigned verifies it.
func RootSigned(ctx context.Context, s *database.Store, word string) ([]byte, error) {
	for {
		text, ok, err := s.Get(ctx, rootSigned, digest(word))
		if err != nil || ok {
			return []byte(text), err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(300 * time.Millisecond):
		}
	}
}
