package evidence

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
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
