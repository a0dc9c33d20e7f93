package catalog

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// processor returns the processor time that this process has used.
func processor(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFirstList is a first list in processor time: 10,000 tools of one server, and of 50 that answer one after
// another.
func BenchmarkFirstList(b *testing.B) {
	for name, row := range map[string][2]int{"1x10000": {1, 10_000}, "50x200": {50, 200}} {
		b.Run(name, func(b *testing.B) {
			var used time.Duration
			for b.Loop() {
				b.StopTimer()
				c := New(Options{Contracts: rules{}, Texts: text{}, Wait: time.Minute, Sources: many(b, row[0], row[1])})
				begin := processor(b)
				b.StartTimer()
				if n := len(c.List(context.Background(), Viewer{})); n != row[0]*row[1]+1 {
					b.Fatalf("%d tools", n)
				}
				used += processor(b) - begin
				c.Close()
			}
			b.ReportMetric(float64(used.Milliseconds())/float64(b.N), "cpu-ms")
		})
	}
}

// BenchmarkStorm measures the cost of one server that reports list changes without pause, beside 10,000 tools of
// other servers. The unit is hundredths of one processor. The upstreams forward at most ten such messages in a
// second.
func BenchmarkStorm(b *testing.B) {
	sources := many(b, 50, 200)
	sources["storm"] = fixed(tool(b, "storm.a", "", `{}`))
	c := New(Options{Contracts: rules{}, Texts: text{}, Wait: time.Minute, Sources: sources})
	defer c.Close()
	c.List(context.Background(), Viewer{})
	var told atomic.Int64
	c.Watch(func() { told.Add(1) })
	begin, cpu := time.Now(), processor(b)
	for b.Loop() {
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			c.Invalidate("storm")
		}
	}
	b.ReportMetric(100*float64(processor(b)-cpu)/float64(time.Since(begin)), "cpu-%")
	b.ReportMetric(float64(told.Load()), "told")
}
