package worker

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"waldo/internal/model/secret"
	"waldo/internal/storage/safefile"
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

// name returns what a message is sealed for.
func (e envelope) name(direction string) string {
	return fmt.Sprintf("waldo worker 1\n%s\n%s\n%d\n%d", direction, e.run, e.attempt, e.expires)
}

// derived returns the key of one direction.
func (k keyring) derived(direction string) []byte {
	b, _ := hkdf.Key(sha256.New, k[:], nil, direction, len(k)) // never fails: the length is small
	return b
}

// id names a key, 16 hexadecimal digits that do not show it. It stands in clear text, where it proves nothing.
func (k keyring) id() string { return hex.EncodeToString(k.derived("id")[:8]) }

func (k keyring) seal(direction string, e envelope, text []byte) []byte {
	sealed, err := safefile.Seal(k.derived(direction), text, e.name(direction))
	if err != nil {
		panic(err) // the key has its length
	}
	return sealed
}

func (k keyring) open(direction string, e envelope, sealed []byte) ([]byte, error) {
	return safefile.Unseal(k.derived(direction), sealed, e.name(direction))
}
