package evidence

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"waldo/internal/core/audit"
)

// TestFigureProof measures the receipt of one record of WALDO_RECORDS: a row of BENCHMARKS.md. The record is there; to
// find it is measured by TestFigureIndex.
func TestFigureProof(t *testing.T) {
	var records int
	if _, err := fmt.Sscan(os.Getenv("WALDO_RECORDS"), &records); err != nil {
		t.Skip("WALDO_RECORDS is the number of records to measure with")
	}
	g := newGround(t, records)
	begun := time.Now()
	at := g.grow()
	t.Logf("a tree of %d records: %v", at.N, time.Since(begun))
	some := map[uint64]audit.Record{}
	for len(some) < 100 {
		some[1+rand.Uint64N(uint64(records))] = audit.Record{}
	}
	_, err := audit.All(t.Context(), audit.Dir(g.state), func(r audit.Record) error {
		if _, wanted := some[r.Seq]; wanted {
			some[r.Seq] = r
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	for _, r := range some {
		for range 10 {
			begun := time.Now()
			if _, err := g.tree.Receipt(at, r); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(begun))
		}
	}
	slices.Sort(took)
	t.Logf("a receipt: p50 %v, p99 %v", took[len(took)/2], took[len(took)*99/100])
}

// TestFigureAppend measures synced appends of 32 writers in turns, alone and while the tree grows five times as often as
// beside waldo serve: a row of BENCHMARKS.md.
func TestFigureAppend(t *testing.T) {
	var records int
	if _, err := fmt.Sscan(os.Getenv("WALDO_APPENDS"), &records); err != nil {
		t.Skip("WALDO_APPENDS is the number of records of a turn to measure with")
	}
	g := newGround(t, 1)
	g.grow()
	took := map[bool][]time.Duration{}
	for turn := range 10 {
		grows := turn%2 == 1
		took[grows] = append(took[grows], g.appends(records, grows))
	}
	for _, one := range took {
		slices.Sort(one)
	}
	t.Logf("an append: alone %v, with the tree %v; ratio of the medians %.2f", took[false][2]/time.Duration(records),
		took[true][2]/time.Duration(records), float64(took[true][2])/float64(took[false][2]))
}

// appends returns how long 32 writers took.
func (g *ground) appends(records int, grows bool) time.Duration {
	g.t.Helper()
	l, err := audit.Open(g.t.Context(), audit.Dir(g.state), audit.Options{Heads: g.store})
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, end := context.WithCancel(g.t.Context())
	var tree, writers sync.WaitGroup
	if grows {
		tree.Go(func() {
			for tick := time.Tick(growEvery / 5); ; {
				select {
				case <-ctx.Done():
					return
				case <-tick:
					_, _ = g.tree.grown(ctx, g.store)
				}
			}
		})
	}
	begun := time.Now()
	for range 32 {
		writers.Go(func() {
			for range records / 32 {
				if _, err := l.Append(ctx, "test", []byte(`{"n":1}`), true); err != nil {
					g.t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	took := time.Since(begun)
	end()
	tree.Wait()
	return took
}
