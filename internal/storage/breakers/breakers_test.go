package breakers

import (
	"slices"
	"testing"
	"time"

	"waldo/internal/storage/database"
)

func TestOpenBreakers(t *testing.T) {
	s, err := database.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, until := t.Context(), time.Now().UTC()
	mine, other := Breaker{"s", "p1", 5, until}, Breaker{"s", "p2", 6, until}
	rests := Breaker{"t", "p1", 0, until.Add(time.Hour)}
	for _, b := range []Breaker{other, mine, rests, {"rested", "p1", 0, until}, {"closes", "p1", 5, until},
		{"closes", "p1", 0, time.Time{}}} {
		if err := Note(ctx, s, b); err != nil {
			t.Fatal(err)
		}
	}
	all, err := Open(ctx, s, func(string) bool { return false })
	if err != nil || !slices.Equal(all, []Breaker{mine, other, rests}) {
		t.Errorf("%v %v", all, err)
	}
	for range 2 { // one that was forgotten does not come back
		all, err = Open(ctx, s, func(process string) bool { return process == "p2" })
		if err != nil || !slices.Equal(all, []Breaker{mine, rests}) {
			t.Errorf("%v %v", all, err)
		}
	}
	if all, err = Open(ctx, s, func(string) bool { return false }); err != nil || len(all) != 2 {
		t.Errorf("%v %v", all, err)
	}
}
