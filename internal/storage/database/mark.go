package database

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"sync"
)

// A mark stands in front of a text of a row in PostgreSQL. It proves that a host with the key of the store wrote the
// row: who can write to the database alone cannot make one. It does not prove that the row is the newest.

// ErrForged is the error for a row without a right mark.
var ErrForged = errors.New("row.forged: no waldo with the key of the store wrote this row")

// markSize is the length of a mark: HMAC-SHA-256 in base64.
const markSize = 43

// marker makes marks.
type marker struct {
	secret func() ([]byte, error)

	mu  sync.Mutex
	key []byte // of marks, made of the secret; nil: not yet
}

// MarkWith sets where the key of marks comes from: it is read when the first row needs it, and again after an error.
// Nil: rows have no marks.
func (s *Store) MarkWith(secret func() ([]byte, error)) {
	if secret == nil {
		s.marks.Store(nil)
		return
	}
	s.marks.Store(&marker{secret: secret})
}

// Marks reports whether the rows of this store have marks.
func (s *Store) Marks() bool { return s.marks.Load() != nil }

// Key returns a key for a purpose, made of the key of the store.
func (s *Store) Key(purpose string) ([]byte, error) {
	m := s.marks.Load()
	if m == nil {
		return nil, errors.New("the rows of this store have no key")
	}
	secret, err := m.secret()
	if err != nil {
		return nil, err
	}
	return hkdf.Key(sha256.New, secret, nil, "waldo "+purpose+" 1", sha256.Size)
}

// Mark returns a text, which does not begin with '=', with its mark for a table and for the other values of the row.
func (s *Store) Mark(text, table string, row ...string) (string, error) {
	m := s.marks.Load()
	if m == nil {
		return text, nil
	}
	mark, err := m.mark(text, table, row)
	return "=" + mark + text, err
}

// keyed returns the key of marks.
func (m *marker) keyed() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.key != nil {
		return m.key, nil
	}
	secret, err := m.secret()
	if err == nil {
		m.key, err = hkdf.Key(sha256.New, secret, nil, "waldo row 1", sha256.Size)
	}
	return m.key, err
}

func (m *marker) mark(text, table string, row []string) (string, error) {
	key, err := m.keyed()
	if err != nil {
		return "", err
	}
	bound, err := json.Marshal(append(append([]string{table}, row...), text))
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(bound)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), nil
}

// Unmark returns the text that Mark was given, or ErrForged with the text if the mark is not that of the row.
func (s *Store) Unmark(marked, table string, row ...string) (string, error) {
	text := Unmarked(marked)
	m := s.marks.Load()
	if m == nil {
		return text, nil
	}
	mark, err := m.mark(text, table, row)
	if err == nil && !hmac.Equal([]byte("="+mark+text), []byte(marked)) {
		err = ErrForged
	}
	return text, err
}

// Unmarked returns a text without the mark that it can have, unproven.
func Unmarked(text string) string {
	if len(text) > markSize && text[0] == '=' {
		return text[1+markSize:]
	}
	return text
}
