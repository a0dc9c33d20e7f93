package worker

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"

	"waldo/internal/model/secret"
)

// The directions of a sealed message. One of a direction is never taken for one of the other.
const (
	toWorker  = "job"
	toGateway = "result"
)

// envelope is what a message is bound to. It stands in the row in clear text, where it proves nothing.
type envelope struct {
	run     string
	attempt int   // of the run, from 1
	expires int64 // of the job, in milliseconds since 1970
}

// errSeal is the error of a message that no holder of the key sealed for this envelope.
var errSeal = errors.New("the message was not sealed with the key of the workers for this run, attempt and direction")

// keyring seals and opens the messages between gateways and workers.
type keyring [32]byte

// newKey returns a key as it stands in its file.
func newKey() string {
	var k keyring
	_, _ = rand.Read(k[:]) // never fails
	return base64.RawStdEncoding.EncodeToString(k[:])
}

func readKey(v secret.Value) (k keyring, err error) {
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimSpace(v.Reveal()))
	if err != nil || len(b) != len(k) {
		return k, errors.New("workers.key must be 32 bytes in base64: waldo worker --new-key FILE makes one")
	}
	return keyring(b), nil
}

// bound returns the associated data of a message.
func (e envelope) bound(direction string) []byte {
	return fmt.Appendf(nil, "waldo worker 1\n%s\n%s\n%d\n%d", direction, e.run, e.attempt, e.expires)
}

func (k keyring) seal(direction string, e envelope, text []byte) []byte {
	nonce := make([]byte, chacha20poly1305.NonceSizeX, chacha20poly1305.NonceSizeX+len(text)+chacha20poly1305.Overhead)
	_, _ = rand.Read(nonce)
	derived, _ := hkdf.Key(sha256.New, k[:], nil, direction, chacha20poly1305.KeySize)
	aead, err := chacha20poly1305.NewX(derived)
	if err != nil {
		panic(err) // the key has its length
	}
	return aead.Seal(nonce, nonce, text, e.bound(direction))
}

func (k keyring) open(direction string, e envelope, sealed []byte) ([]byte, error) {
	if len(sealed) < chacha20poly1305.NonceSizeX {
		return nil, errSeal
	}
	derived, _ := hkdf.Key(sha256.New, k[:], nil, direction, chacha20poly1305.KeySize)
	aead, err := chacha20poly1305.NewX(derived)
	if err != nil {
		return nil, err
	}
	nonce, rest := sealed[:chacha20poly1305.NonceSizeX], sealed[chacha20poly1305.NonceSizeX:]
	text, err := aead.Open(nil, nonce, rest, e.bound(direction))
	if err != nil {
		return nil, errSeal
	}
	return text, nil
}
