package operator

import (
	"testing"
	"time"

	"waldo/internal/model/contract"
	"waldo/internal/storage/breakers"
	"waldo/internal/storage/database"
	"waldo/internal/storage/presence"
)

// The servers of the console show an open breaker while its process is at work.
func TestOpenBreaker(t *testing.T) {
	d := openWith(t, &contract.Config{Servers: map[string]contract.Server{"s": {Command: []string{"s"}}}})
	process, err := presence.New(d.store)
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(time.Minute)
	for _, name := range []string{process.Name, "ended"} {
		b := breakers.Breaker{Server: "s", Process: name, Fails: 5, Until: until}
		if err := breakers.Note(d.ctx, d.store, b); err != nil {
			t.Fatal(err)
		}
	}
	if l, err := d.op.Upstreams(d.ctx); err != nil || l.Items[0].Failures != 5 || l.Items[0].OpenUntil != database.Stamp(until) {
		t.Errorf("%+v %v", l.Items, err)
	}
	if err := process.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err := d.op.Upstreams(d.ctx); err != nil || l.Items[0].Failures != 0 || l.Items[0].OpenUntil != "" {
		t.Errorf("its process has ended: %+v %v", l.Items, err)
	}
}
