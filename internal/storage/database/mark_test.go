package database

import (
	"errors"
	"testing"
)

// TestMarks: a mark is of one key, table, row and text. Without a key a store makes none, and believes.
func TestMarks(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	with := func(key string) { s.MarkWith(func() ([]byte, error) { return []byte(key), nil }) }
	if text, err := s.Mark("{}", "calls", "a", "b"); text != "{}" || err != nil {
		t.Fatal(text, err)
	}
	with("one")
	marked, err := s.Mark("{}", "calls", "a", "b")
	if err != nil || Unmarked(marked) != "{}" {
		t.Fatal(marked, err)
	}
	for why, row := range map[string]struct {
		key, text, table string
		row              []string
		want             error
	}{
		"control":           {"one", marked, "calls", []string{"a", "b"}, nil},
		"another key":       {"two", marked, "calls", []string{"a", "b"}, ErrForged},
		"another table":     {"one", marked, "deliveries", []string{"a", "b"}, ErrForged},
		"another row":       {"one", marked, "calls", []string{"a", "c"}, ErrForged},
		"other bounds":      {"one", marked, "calls", []string{"ab"}, ErrForged},
		"another text":      {"one", marked + " ", "calls", []string{"a", "b"}, ErrForged},
		"no mark":           {"one", "{}", "calls", []string{"a", "b"}, ErrForged},
		"a mark of nothing": {"one", "=", "calls", []string{"a", "b"}, ErrForged},
	} {
		with(row.key)
		if text, err := s.Unmark(row.text, row.table, row.row...); !errors.Is(err, row.want) || text != Unmarked(row.text) {
			t.Errorf("%s: %q %v", why, text, err)
		}
	}
	broken := errors.New("no such file")
	s.MarkWith(func() ([]byte, error) { return nil, broken })
	if _, err := s.Mark("{}", "calls"); !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := s.Unmark(marked, "calls", "a", "b"); !errors.Is(err, broken) {
		t.Error(err)
	}
}
