// Package enrolment is how a terminal and a browser exchange passkeys and signatures: rows of the store, named by the
// digest of a secret that the terminal prints once. A row proves nothing: each side checks the code over it.
package enrolment

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/approval/passkey"
	"waldo/internal/storage/database"
)

// The buckets of enrolments under way, by the digest of their secret.
const (
	Invites    = "passkey-invites"
	Answers    = "passkey-enrolments" // enrolments that a browser has signed
	Signatures = "passkey-roots"      // the first approver's assertion under an enrolment or a request
	Requests   = "passkey-requests"   // messages that a terminal has the first approver sign
)

// Secret returns 128 random bits in letters that are easy to type.
func Secret() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}

// Digest names the row of a secret.
func Digest(secret string) string {
	d := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(d[:])
}

// InviteLife is how long the secret of a terminal is good for.
const InviteLife = 10 * time.Minute

// Invite lets one passkey be enrolled.
type Invite struct {
	Name  string   `json:"name"`
	Roles []string `json:"roles"`
	By    string   `json:"by"` // who signs it: the first approver, or Name itself
	// Trusted are the configurations that the first approver signs with its own enrolment.
	Trusted []approval.Configuration `json:"trusted,omitempty"`
	Expires time.Time                `json:"expires"`
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
	word := Secret()
	return word, s.Put(ctx, Invites, Digest(word), string(b))
}

// Enrolled waits until a browser has answered an invitation, and returns what it signed. It takes only an enrolment
// that bears the code of the secret, for the invited name and roles, signed with the new key.
func Enrolled(
	ctx context.Context, s *database.Store, word string, i Invite,
) (a approval.Approver, assertion []byte, err error) {
	at := Digest(word)
	for {
		text, ok, err := s.Get(ctx, Answers, at)
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
			if err == nil && (a.Name != i.Name || a.By != i.By ||
				strings.Join(a.Roles, "\n") != strings.Join(i.Roles, "\n") || !slices.Equal(a.Trusted, i.Trusted)) {
				err = errors.New("it is for another name, other roles or other configurations")
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
	return errors.Join(s.Delete(ctx, Invites, Digest(word)), s.Delete(ctx, Answers, Digest(word)),
		s.Delete(ctx, Signatures, Digest(word)))
}

// RootSigned waits for the first approver's signature under an enrolment. EnrollSigned verifies it.
func RootSigned(ctx context.Context, s *database.Store, word string) ([]byte, error) {
	for {
		text, ok, err := s.Get(ctx, Signatures, Digest(word))
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

// Request is a message that a terminal has the first approver sign in a browser. Its code shows that the terminal
// made it, and no other writer of the database.
type Request struct {
	Root    string `json:"root"` // the first approver
	What    string `json:"what"` // the message in words, for the person who signs
	Message []byte `json:"message"`
	Code    []byte `json:"code"` // HMAC-SHA256 over the rest, with the secret
}

func (r Request) code(word string) []byte {
	h := hmac.New(sha256.New, []byte("waldo passkey request v1\n"+word))
	r.Code = nil
	b, _ := json.Marshal(r) // plain fields only
	_, _ = h.Write(b)
	return h.Sum(nil)
}

// BrowserSigner is the first approver, who signs with a passkey in the console. It satisfies approval.Signer. Who
// calls Sign verifies the signature.
type BrowserSigner struct {
	Ctx   context.Context
	Root  string // the first approver's name
	What  string // what is signed, in words
	Store *database.Store
	Tell  func(secret string) // prints the secret on a terminal, once
}

// Name satisfies approval.Signer.
func (b BrowserSigner) Name() string { return b.Root }

// Sign waits for the first approver, for InviteLife at most.
func (b BrowserSigner) Sign(message []byte) (sig []byte, err error) {
	word := Secret()
	r := Request{Root: b.Root, What: b.What, Message: message}
	r.Code = r.code(word)
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if err := b.Store.Put(b.Ctx, Requests, Digest(word), string(text)); err != nil {
		return nil, err
	}
	defer func() {
		ctx := context.WithoutCancel(b.Ctx)
		err = errors.Join(err, b.Store.Delete(ctx, Requests, Digest(word)), b.Store.Delete(ctx, Signatures, Digest(word)))
	}()
	b.Tell(word)
	ctx, cancel := context.WithTimeout(b.Ctx, InviteLife)
	defer cancel()
	return RootSigned(ctx, b.Store, word)
}

// Open returns the invitation of a secret. ok is false without one that is still good.
func Open(ctx context.Context, s *database.Store, word string) (i Invite, ok bool, err error) {
	text, found, err := s.Get(ctx, Invites, Digest(word))
	ok = found && json.Unmarshal([]byte(text), &i) == nil && !time.Now().After(i.Expires)
	return i, ok, err
}

// Answer stores an enrolment that a browser has signed.
func Answer(ctx context.Context, s *database.Store, word string, a approval.Approver, assertion []byte) error {
	e := enrolment{Approver: a, Assertion: assertion}
	e.Code = e.code(word)
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return s.Put(ctx, Answers, Digest(word), string(b))
}

// Sign stores the first approver's signature.
func Sign(ctx context.Context, s *database.Store, word string, assertion []byte) error {
	return s.Put(ctx, Signatures, Digest(word), string(assertion))
}

// Requested returns what waits for the first approver under a secret: a request of a terminal, or an enrolment that a
// browser has signed. Rows without the code of the secret are ignored.
func Requested(ctx context.Context, s *database.Store, word string) (r Request, ok bool, err error) {
	text, found, err := s.Get(ctx, Requests, Digest(word))
	if err != nil {
		return r, false, err
	}
	if found {
		ok = json.Unmarshal([]byte(text), &r) == nil && hmac.Equal(r.Code, r.code(word))
		return r, ok, nil
	}
	text, found, err = s.Get(ctx, Answers, Digest(word))
	var e enrolment
	if err != nil || !found || json.Unmarshal([]byte(text), &e) != nil || !hmac.Equal(e.Code, e.code(word)) {
		return r, false, err
	}
	a := e.Approver
	return Request{Root: a.By, What: fmt.Sprintf("%s, roles %q, %s", a.Name, a.Roles, a.Fingerprint()),
		Message: a.Message()}, true, nil
}
