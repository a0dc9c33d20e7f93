package secretsource

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
	"filippo.io/age/armor"

	"waldo/internal/model/secret"
)

// unseal opens an age file, in armour or not, with the identities of s.Identity; one sealed with a
// passphrase asks for it.
func (s Sources) unseal(path string, b []byte) ([]byte, error) {
	ids, err := s.identities(path, b)
	if err != nil {
		return nil, err
	}
	return Unseal(b, ids...)
}

// Unseal decrypts an age file. The result is at most as long as the file.
func Unseal(b []byte, ids ...age.Identity) ([]byte, error) {
	r, err := age.Decrypt(unarmoured(b), ids...)
	if err != nil {
		return nil, ErrSealed // the library's reason may quote the file
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, ErrSealed
	}
	return text, nil
}

func unarmoured(b []byte) io.Reader {
	if bytes.HasPrefix(b, []byte(armor.Header)) {
		return armor.NewReader(bytes.NewReader(b))
	}
	return bytes.NewReader(b)
}

// identities returns what may open the file at path.
func (s Sources) identities(path string, b []byte) ([]age.Identity, error) {
	if withPassphrase(b) {
		return s.passphrase(path)
	}
	if s.Identity == "" {
		return nil, fmt.Errorf("%w: no identity is named; set WALDO_AGE_IDENTITY to the file of one", ErrClosed)
	}
	text, _, err := readPrivate(s.Identity, onlyMine)
	if err == nil && withPassphrase(text) {
		var keys []age.Identity
		if keys, err = s.passphrase(s.Identity); err == nil {
			text, err = Unseal(text, keys...)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the identity file %s: %w", s.Identity, err)
	}
	ids, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("the identity file %s: %w", s.Identity, errNoIdentity)
	}
	return ids, nil
}

var errNoIdentity = errors.New("it holds no age identity")

// withPassphrase reports whether an age file is sealed with a passphrase: its only recipient is scrypt.
func withPassphrase(b []byte) bool {
	head := make([]byte, 128)
	n, _ := io.ReadFull(unarmoured(b), head)
	return bytes.HasPrefix(head[:n], []byte("age-encryption.org/v1\n-> scrypt "))
}

// passphrase asks for the passphrase of a file.
func (s Sources) passphrase(path string) ([]age.Identity, error) {
	if s.Passphrase == nil {
		return nil, fmt.Errorf("%w: it needs a passphrase, and standard input is not a terminal", ErrClosed)
	}
	p, err := s.Passphrase(path)
	if err != nil {
		return nil, err
	}
	return scryptIdentity(p)
}

func scryptIdentity(p secret.Value) ([]age.Identity, error) {
	id, err := age.NewScryptIdentity(p.Reveal())
	if err != nil {
		return nil, ErrSealed
	}
	id.SetMaxWorkFactor(20) // a file of another's making must not keep us busy for minutes
	return []age.Identity{id}, nil
}
