package telemetry

import (
	"context"
	"errors"
	"testing"
)

// gone is a source whose database is away.
type gone struct{ quiet }

func (gone) Store(context.Context) error { return errors.New("away") }

// TestStoreUp: a gauge reports whether the database can be read, and the other metrics stay.
func TestStoreUp(t *testing.T) {
	for want, from := range map[float64]Source{0: gone{}, 1: quiet{}} {
		m, err := New(Options{Version: "1", Lasting: true, Source: from})
		if err != nil {
			t.Fatal(err)
		}
		all, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]float64{}
		for _, f := range all {
			if g := f.Metric[0].Gauge; g != nil {
				found[f.GetName()] = g.GetValue()
			}
		}
		if got, ok := found["waldo_store_up"]; !ok || got != want {
			t.Errorf("%v %t, not %v", got, ok, want)
		}
		if _, ok := found["waldo_log_unsynced"]; !ok {
			t.Errorf("control: %v", found)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
