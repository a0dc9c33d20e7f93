package generation

import (
	"slices"
	"testing"
	"time"
)

// TestGenerations: an earlier value is retired when its last call is over, and not before; the value in force stays.
func TestGenerations(t *testing.T) {
	retired := make(chan string, 8)
	g := New("first", func(v string) error { retired <- v; return nil })
	none := func(why string) {
		t.Helper()
		select {
		case v := <-retired:
			t.Fatalf("%s: %s was retired", why, v)
		case <-time.After(20 * time.Millisecond):
		}
	}
	one, over := g.Enter()
	_, also := g.Enter()
	idle, left := g.Enter()
	left()
	left() // a call ends once
	none("the value in force has no call")
	if one != "first" || idle != "first" {
		t.Fatal(one, idle)
	}
	g.Change("second", func() { none("before the change is complete") })
	if now, done := g.Enter(); now != "second" || g.Now() != "second" || len(g.All()) != 2 {
		t.Fatal(now, g.All())
	} else {
		done()
	}
	over()
	none("one of two calls is over")
	also()
	select {
	case v := <-retired:
		if v != "first" || !slices.Equal(g.All(), []string{"second"}) {
			t.Error(v, g.All())
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a value whose calls are over stays open")
	}
	_, _ = g.Enter()
	if err := g.End(); err != nil || <-retired != "second" || len(g.All()) != 0 {
		t.Error("the end leaves a value open", err)
	}
}

// TestEndAsks: what ends can ask for the value in force, as the metrics of telemetry do when they are sent at the end.
func TestEndAsks(t *testing.T) {
	var g *Generations[string]
	asked := ""
	g = New("first", func(string) error { asked = g.Now(); return nil })
	if err := g.End(); err != nil || asked != "first" {
		t.Errorf("%v %q", err, asked)
	}
}
