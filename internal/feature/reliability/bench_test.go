//go:build unix

package reliability

import (
	"fmt"
	"testing"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// BenchmarkCall measures a write through the pipeline to a server over pipes: with none of the keys of this page, and
// with each of them.
func BenchmarkCall(b *testing.B) {
	for _, row := range []struct{ name, keys, key string }{
		{"plain", "", ""}, {"key", "", "k"}, {"rate_limit", "rate_limit: {calls: 1000000, per: second}", ""},
		{"settle", settles, ""},
	} {
		b.Run(row.name, func(b *testing.B) {
			w := newBench(b, row.keys)
			h := w.waldo(b)
			n, err := h.OpenSession()
			if err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				o := create("t", "", "")
				if row.key != "" {
					o.Key = fmt.Sprint(row.key, i)
				}
				if r, err := o.in(b.Context(), h, n); err != nil || r.Status != facts.OK {
					b.Fatal(err, r.Status)
				}
			}
		})
	}
}

// BenchmarkTracked measures what a contract without these keys pays: one look at it.
func BenchmarkTracked(b *testing.B) {
	d := policy.Decision{Contract: contract.Contract{Mode: contract.Write}, Call: call.Call{Capability: "s.t"}}
	for b.Loop() {
		if d.Tracked() {
			b.Fatal("tracked")
		}
	}
}
