package database

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
)

// A mark stands in front of a text of a row in PostgreSQL. It proves that a host with the key of the store wrote
// the row:
// who can write to the database alone cannot make one. It does not prove that the row is the newest.

// ErrForged is the error for a row without a right mark.
var ErrForged = errors.New("row.forged: no waldo with the key of the store wrote this row")

// markSize is the length of a mark: HMAC-SHA-256 in base64.
const markSize = 43

// MarkWith sets where the key of marks comes from: it is read when the first row needs it. Nil: rows have no marks.
func (s *Store) MarkWith(key func() ([]byte, error)) { s.marks.Store(&key) }

// Marks reports whether the rows of this store have marks.
func (s *Store) Marks() bool {
	key := s.marks.Load()
	return key != nil && *key != nil
}

// Mark returns a text, which does not begin with '=', with its mark for a table and for the other values of the row.
func (s *Store) Mark(text, table string, row ...string) (string, error) {
	if !s.Marks() {
		return text, nil
	}
	mark, err := s.mark(text, table, row)
	return "=" + mark + text, err
}

func (s *Store) mark(text, table string, row []string) (string, error) {
	key, err := (*s.marks.Load())()
	if err != nil {
		return "", err
	}
	if key, err = hkdf.Key(sha256.New, key, nil, "waldo row 1", sha256.Size); err != nil {
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
	if !s.Marks() {
		return text, nil
	}
	mark, err := s.mark(text, table, row)
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
