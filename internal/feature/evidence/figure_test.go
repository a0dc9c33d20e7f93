package evidence

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/core/audit"
)

// TestFigureProof measures the receipt of one record of WALDO_RECORDS, alone and with the search for it by the id of its
// decision: rows of BENCHMARKS.md.
func TestFigureProof(t *testing.T) {
	var records int
	if _, err := fmt.Sscan(os.Getenv("WALDO_RECORDS"), &records); err != nil {
		t.Skip("WALDO_RECORDS is the number of records to measure with")
	}
	g := newGround(t, 1)
	l, err := audit.Open(t.Context(), audit.Dir(g.state), audit.Options{Heads: g.store})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("some arguments as agents write them ", 20)
	for i := range records {
		body := fmt.Appendf(nil, `{"call_id":"c_%d","decision_id":"d_%d","args":{"text":%q}}`, i, i, text)
		if _, err := l.Append(t.Context(), audit.KindDecision, body, i+1 == records); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	at := g.grow()
	t.Logf("a tree of %d records: %v", at.N, time.Since(begun))
	var proved, found []time.Duration
	for i := range 200 {
		id, begun := fmt.Sprintf("d_%d", rand.IntN(records)), time.Now()
		var one []audit.Record
		about := audit.Selection{About: []string{id}}
		n, err := audit.Select(t.Context(), audit.Dir(g.state), about, func(r audit.Record) error {
			one = append(one, r)
			return nil
		})
		if err != nil || len(one) != 1 {
			t.Fatal(id, len(one), n, err)
		}
		search := time.Since(begun)
		if i == 0 {
			t.Logf("the first build of the index: %v", search)
			continue
		}
		if _, err := g.tree.Receipt(at, one[0]); err != nil {
			t.Fatal(err)
		}
		found, proved = append(found, time.Since(begun)), append(proved, time.Since(begun)-search)
	}
	slices.Sort(found)
	slices.Sort(proved)
	t.Logf("a receipt: p50 %v, p99 %v", proved[len(proved)/2], proved[len(proved)*99/100])
	t.Logf("with the search by id: p50 %v, p99 %v", found[len(found)/2], found[len(found)*99/100])
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
