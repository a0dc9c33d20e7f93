package call

import (
	"strings"
	"testing"
	"time"
)

// TestRun: the digest of a run covers the values of its environment; its record shows their names alone.
func TestRun(t *testing.T) {
	a := &Run{
		Template: "image@sha256:1", Input: "/srv", Env: []string{"TOKEN=hunter2", "BARE"},
		Limits: Limits{Wall: 2 * time.Second, Pids: 3},
	}
	b := *a
	if b.Env = []string{"TOKEN=hunter3", "BARE"}; a.Digest() == b.Digest() || string(a.Record()) != string(b.Record()) {
		t.Errorf("%s %s", a.Record(), b.Record())
	}
	if got, want := string(a.Record()),
		`{"env":["TOKEN","BARE"],"input":"/srv","limits":{"pids":3,"wall_ms":2000},`+
			`"template":"image@sha256:1"}`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if strings.Contains(string(a.Record()), "hunter2") || len(a.Env) != 2 || a.Env[0] != "TOKEN=hunter2" {
		t.Error("a value is recorded, or the run was changed")
	}
	var none *Run
	if none.Digest() != "" || none.Record() != nil {
		t.Error("a call without a run has one")
	}
}
