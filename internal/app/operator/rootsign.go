package operator

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"

	"waldo/internal/storage/database"
)

// requests is the bucket of messages that a terminal has the first approver sign in a browser, by the digest of the
// terminal's secret.
const requests = "passkey-requests"

// request is one of them. Its code shows that the terminal made it, and no writer of the database.
type request struct {
	Root    string `json:"root"` // the first approver
	What    string `json:"what"` // the message in words, for the person who signs
	Message []byte `json:"message"`
	Code    []byte `json:"code"` // HMAC-SHA256 over the rest, with the secret
}

func (r request) code(word string) []byte {
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
	word := secret()
	r := request{Root: b.Root, What: b.What, Message: message}
	r.Code = r.code(word)
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if err := b.Store.Put(b.Ctx, requests, digest(word), string(text)); err != nil {
		return nil, err
	}
	defer func() {
		ctx := context.WithoutCancel(b.Ctx)
		err = errors.Join(err, b.Store.Delete(ctx, requests, digest(word)), b.Store.Delete(ctx, rootSigned, digest(word)))
	}()
	b.Tell(word)
	ctx, cancel := context.WithTimeout(b.Ctx, InviteLife)
	defer cancel()
	return RootSigned(ctx, b.Store, word)
}

// requested returns what waits for the first approver under a secret: a request of a terminal, or an enrolment that a
// browser has signed. Rows without the code of the secret are none.
func (p *Operator) requested(ctx context.Context, word string) (r request, ok bool, err error) {
	text, found, err := p.o.Store.Get(ctx, requests, digest(word))
	if err != nil {
		return r, false, err
	}
	if found {
		ok = json.Unmarshal([]byte(text), &r) == nil && hmac.Equal(r.Code, r.code(word))
		return r, ok, nil
	}
	text, found, err = p.o.Store.Get(ctx, enrolments, digest(word))
	var e enrolment
	if err != nil || !found || json.Unmarshal([]byte(text), &e) != nil || !hmac.Equal(e.Code, e.code(word)) {
		return r, false, err
	}
	a := e.Approver
	return request{Root: a.By, What: enrolmentInWords(a), Message: a.Message()}, true, nil
}
