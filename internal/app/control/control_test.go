package control

import (
	"testing"

	"waldo/internal/core/session"
)

// TestNamed: a stop is of the sessions that its name means.
func TestNamed(t *testing.T) {
	n := session.Info{ID: "n_a", Principal: "token:ci"}
	for name, want := range map[string]bool{
		"*": true, "token:ci": true, "ci": true, "n_a": true, "": false, "c": false, "token:": false, "n_b": false,
		"os:0": false,
	} {
		if named(name, n) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
	if named("", session.Info{Principal: "os:0"}) {
		t.Error("no name is everybody's")
	}
}
