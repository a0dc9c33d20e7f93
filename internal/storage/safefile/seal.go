package safefile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/crypto/chacha20poly1305"
)

// ErrSealed is the error for bytes that were not sealed so: with another key, under another name, or changed since.
var ErrSealed = errors.New("the bytes were sealed otherwise, or changed since")

// Key reads the key in a file. It makes one where there is none; of several processes the first wins.
func Key(path string) ([]byte, error) {
	b, err := Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		b = make([]byte, chacha20poly1305.KeySize)
		_, _ = rand.Read(b)
		if err = Create(path, b, 0o600); errors.Is(err, fs.ErrExist) {
			b, err = Read(path)
		}
	}
	if err == nil && len(b) != chacha20poly1305.KeySize {
		err = fmt.Errorf("%s does not hold a key", path)
	}
	return b, err
}

// Seal encrypts bytes with a key. Unseal returns them under the same name alone.
func Seal(key, text []byte, name string) ([]byte, error) {
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(text)+aead.Overhead())
	_, _ = rand.Read(nonce)
	return aead.Seal(nonce, nonce, text, []byte(name)), nil
}

// Unseal returns what Seal was given, or ErrSealed.
func Unseal(key, sealed []byte, name string) ([]byte, error) {
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return nil, err
	}
	if len(sealed) < aead.NonceSize() {
		return nil, ErrSealed
	}
	nonce, rest := sealed[:aead.NonceSize()], sealed[aead.NonceSize():]
	text, err := aead.Open(nil, nonce, rest, []byte(name))
	if err != nil {
		return nil, ErrSealed
	}
	return text, nil
}
