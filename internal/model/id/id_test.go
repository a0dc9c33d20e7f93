package id_test

import (
	"testing"
	"time"

	"waldo/internal/model/id"
)

func TestNew(t *testing.T) {
	seen := map[string]bool{}
	for range 10000 {
		s := id.New(id.Call)
		if !id.Is(id.Call, s) {
			t.Fatalf("%q is not a call id", s)
		}
		if seen[s] {
			t.Fatalf("%q came twice", s)
		}
		seen[s] = true
	}
	last := id.New(id.Record)
	for range 100 { // long enough to meet every letter in the last places of the time
		time.Sleep(2 * time.Millisecond)
		next := id.New(id.Record)
		if next <= last {
			t.Fatalf("%q was made after %q and sorts before it", next, last)
		}
		last = next
	}
}

func TestIs(t *testing.T) {
	good := id.New(id.Approval)
	for _, row := range []struct {
		why, s string
		want   bool
	}{
		{"an approval id", good, true},
		{"another kind's", id.New(id.Call), false},
		{"empty", "", false},
		{"cut short", good[:20], false},
		{"a path", "a_../../../../../../etc/pass", false},
	} {
		if got := id.Is(id.Approval, row.s); got != row.want {
			t.Errorf("%s: Is(%q) = %v", row.why, row.s, got)
		}
	}
}
