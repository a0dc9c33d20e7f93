// Package secretstore is waldo's own store of secrets: one encrypted file for each secret in the state directory. The
// key is in a file of its own or in the keyring. The store protects against a thief of some files, not against a
// program that reads everything of this user.
package secretstore

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"

	"waldo/internal/model/secret"
	"waldo/internal/storage/safefile"
	"waldo/internal/storage/secretsource"
)

// Errors of the store.
var (
	ErrName = errors.New("a secret's name has at most 63 letters, digits, '_', '.' and '-', and begins with a letter")
	ErrSwap = errors.New("the file was sealed for a secret of another name")
	ErrKey  = errors.New("the key to the stored secrets is damaged")
)

// Store is the store in one directory. Keyring is where its key may be kept; set it before it is used.
type Store struct {
	dir     string
	Keyring interface { // nil: the key is in a file
		Get(service, account string) (string, error)
		Set(service, account, value string) error
	}
}

// Open returns the store in a directory, which need not be there yet.
func Open(dir string) *Store { return &Store{dir: dir} }

// Entry holds the printable facts of one secret.
type Entry struct {
	Name    string    `json:"name"`
	Changed time.Time `json:"changed"`
}

const (
	suffix  = ".age"
	service = "waldo-secrets" // in the keyring; the account is drawn by chance
)

// sealed is the content of a file. It holds the name, so that a renamed file is refused.
type sealed struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name+suffix) }

// List returns the names, in their order.
func (s *Store) List() ([]Entry, error) {
	files, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := []Entry{}
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), suffix)
		info, err := f.Info()
		if !ok || !secret.Name(name) || err != nil || !info.Mode().IsRegular() {
			continue
		}
		out = append(out, Entry{name, info.ModTime().UTC()})
	}
	return out, nil
}

// Has reports whether there is a secret of that name.
func (s *Store) Has(name string) bool {
	info, err := os.Lstat(s.path(name))
	return secret.Name(name) && err == nil && info.Mode().IsRegular()
}

// HasKey reports whether there is a key already.
func (s *Store) HasKey() bool {
	_, err := os.Lstat(filepath.Join(s.dir, "key"))
	return err == nil
}

// Get opens one secret.
func (s *Store) Get(name string) (secret.Value, error) {
	if !secret.Name(name) {
		return secret.Value{}, ErrName
	}
	b, err := secretsource.ReadPrivate(s.path(name))
	if err != nil {
		return secret.Value{}, err
	}
	key, err := s.key()
	if err != nil {
		return secret.Value{}, err
	}
	text, err := secretsource.Unseal(b, key)
	if err != nil {
		return secret.Value{}, err
	}
	var in sealed
	if err := json.Unmarshal(text, &in); err != nil {
		return secret.Value{}, secretsource.ErrSealed
	}
	if in.Name != name {
		return secret.Value{}, ErrSwap
	}
	return secret.NewValue(in.Value), nil
}

// Set seals a secret under a name, in place of the one that is there. The first makes the key.
func (s *Store) Set(name string, v secret.Value) error {
	switch {
	case !secret.Name(name):
		return ErrName
	case v.Reveal() == "":
		return secretsource.ErrEmpty
	case strings.Contains(v.Reveal(), "\x00"):
		return secretsource.ErrBytes
	case len(v.Reveal()) > 32<<10:
		return fmt.Errorf("it has %d bytes; the limit is %d", len(v.Reveal()), 32<<10)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	key, err := s.key()
	if errors.Is(err, secretsource.ErrMissing) {
		key, err = s.newKey()
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(sealed{name, v.Reveal()})
	if err != nil {
		return err
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, key.Recipient())
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return err
	}
	return safefile.Replace(s.path(name), out.Bytes(), 0o600)
}

// Remove takes a secret away.
func (s *Store) Remove(name string) error {
	if !secret.Name(name) {
		return ErrName
	}
	err := os.Remove(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return secretsource.ErrMissing
	}
	return err
}

// key reads the key: it stands in its file, or the file names the item of the keyring that has it.
func (s *Store) key() (*age.X25519Identity, error) {
	b, err := secretsource.ReadPrivate(filepath.Join(s.dir, "key"))
	if err != nil {
		return nil, fmt.Errorf("the key to the stored secrets: %w", err)
	}
	text := strings.TrimSpace(string(b))
	if p, ok := secret.Ref(text).Place(); ok && p.Kind == "keyring" {
		if s.Keyring == nil {
			return nil, fmt.Errorf("the key to the stored secrets is in the keyring: %w", secretsource.ErrClosed)
		}
		if text, err = s.Keyring.Get(p.Path, p.Name); err != nil {
			return nil, fmt.Errorf("the key to the stored secrets: %w", err)
		}
	}
	id, err := age.ParseX25519Identity(text)
	if err != nil {
		return nil, ErrKey // the library's reason may quote it
	}
	return id, nil
}

// newKey generates and stores the key. If two do so at the same time, the first one wins.
func (s *Store) newKey() (*age.X25519Identity, error) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, err
	}
	text := id.String()
	if s.Keyring != nil {
		account := make([]byte, 8)
		_, _ = rand.Read(account) // never fails
		ref := "keyring:" + service + "/" + hex.EncodeToString(account)
		if err := s.Keyring.Set(service, hex.EncodeToString(account), text); err != nil {
			return nil, err
		}
		text = ref
	}
	err = safefile.Create(filepath.Join(s.dir, "key"), []byte(text+"\n"), 0o600)
	if errors.Is(err, fs.ErrExist) {
		return s.key()
	}
	return id, err
}
