// Package passkeytest is a software authenticator and browser for tests: it makes the messages that a page gets from
// navigator.credentials.
package passkeytest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"maps"
)

// Authenticator holds one credential. The zero fields of a new one are those of an honest browser and user.
type Authenticator struct {
	Origin      string // of the page
	RPID        string
	ID          []byte
	Unverified  bool           // the user was not verified
	Absent      bool           // the user was not present
	CrossOrigin bool           // another site framed the page
	Extra       map[string]any // more members of the client data
	key         crypto.Signer
}

// New returns an authenticator with a new credential of ES256.
func New(origin, rpid string) *Authenticator {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return with(k, origin, rpid)
}

// NewEdDSA returns an authenticator with a new credential of EdDSA.
func NewEdDSA(origin, rpid string) *Authenticator {
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return with(k, origin, rpid)
}

func with(k crypto.Signer, origin, rpid string) *Authenticator {
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	return &Authenticator{Origin: origin, RPID: rpid, ID: id, key: k}
}

func enc(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (a *Authenticator) clientData(kind, challenge string) []byte {
	members := map[string]any{
		"type": kind, "challenge": challenge, "origin": a.Origin, "crossOrigin": a.CrossOrigin,
	}
	maps.Copy(members, a.Extra)
	b, _ := json.Marshal(members)
	return b
}

func (a *Authenticator) data(flags byte) []byte {
	h := sha256.Sum256([]byte(a.RPID))
	if !a.Absent {
		flags |= 1
	}
	if !a.Unverified {
		flags |= 4
	}
	return binary.BigEndian.AppendUint32(append(h[:], flags), 0)
}

// Create answers navigator.credentials.create for a challenge in base64url.
func (a *Authenticator) Create(challenge string) []byte {
	d := append(a.data(0x40), make([]byte, 16)...)
	d = append(binary.BigEndian.AppendUint16(d, uint16(len(a.ID))), a.ID...)
	d = append(d, a.cose()...)
	object := append([]byte("\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x59"), byte(len(d)>>8), byte(len(d)))
	object = append(object, d...)
	b, _ := json.Marshal(map[string]any{"id": enc(a.ID), "rawId": enc(a.ID), "type": "public-key",
		"clientExtensionResults": map[string]any{},
		"response": map[string]any{
			"clientDataJSON": enc(a.clientData("webauthn.create", challenge)), "attestationObject": enc(object),
		}})
	return b
}

// cose returns the public key as an authenticator of CTAP 2 spells it.
func (a *Authenticator) cose() []byte {
	switch k := a.key.(type) {
	case ed25519.PrivateKey:
		return append([]byte{0xa4, 0x01, 0x01, 0x03, 0x27, 0x20, 0x06, 0x21, 0x58, 0x20}, k[32:]...)
	case *ecdsa.PrivateKey:
		x, y := make([]byte, 32), make([]byte, 32)
		k.X.FillBytes(x)
		k.Y.FillBytes(y)
		out := append([]byte{0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20}, x...)
		return append(append(out, 0x22, 0x58, 0x20), y...)
	}
	return nil
}

// Get answers navigator.credentials.get for a challenge in base64url.
func (a *Authenticator) Get(challenge string) []byte {
	client, data := a.clientData("webauthn.get", challenge), a.data(0)
	h := sha256.Sum256(client)
	signed, hash := append(append([]byte{}, data...), h[:]...), crypto.Hash(0)
	if _, is := a.key.(*ecdsa.PrivateKey); is {
		digest := sha256.Sum256(signed)
		signed, hash = digest[:], crypto.SHA256
	}
	sig, err := a.key.Sign(rand.Reader, signed, hash)
	if err != nil {
		panic(err)
	}
	return a.assertion(client, data, sig)
}

func (a *Authenticator) assertion(client, data, sig []byte) []byte {
	b, _ := json.Marshal(map[string]any{"id": enc(a.ID), "rawId": enc(a.ID), "type": "public-key",
		"clientExtensionResults":  map[string]any{},
		"authenticatorAttachment": "platform",
		"response": map[string]any{"clientDataJSON": enc(client), "authenticatorData": enc(data),
			"signature": enc(sig), "userHandle": nil}})
	return b
}

// Sign returns an assertion over a message, as waldo stores it.
func (a *Authenticator) Sign(message []byte) []byte {
	d := sha256.Sum256(message)
	return a.Get(enc(d[:]))
}
