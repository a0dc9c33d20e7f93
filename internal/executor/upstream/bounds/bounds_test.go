package bounds

import (
	"testing"
	"time"
)

// A server's messages are counted by number and by size, and the count decays with time.
func TestMeter(t *testing.T) {
	at := time.Unix(1, 0)
	for _, row := range []struct{ bytes, most int }{{0, Burst}, {1024, Burst / 2}, {1 << 20, Burst / 1025}} {
		m := &Meter{}
		for n := range row.most {
			if m.Full(row.bytes, at) {
				t.Fatalf("%d bytes: full after %d", row.bytes, n)
			}
		}
		if !m.Full(row.bytes, at) {
			t.Errorf("%d bytes: not full after %d", row.bytes, row.most+1)
		}
		if m.Full(0, at.Add(2*time.Second)) {
			t.Errorf("%d bytes: full for ever", row.bytes)
		}
	}
	m := &Meter{}
	for n := range 5 * Burst { // less than the rate, for ever
		if m.Full(0, at.Add(time.Duration(n)*2*time.Millisecond)) {
			t.Fatalf("full after %d", n)
		}
	}
}

// A server's list changes are passed on at a pace that slows down, however many there are. The last one is always
// passed on, and after a quiet time the first one at once.
func TestPace(t *testing.T) {
	told := 0
	var due func()
	var wait time.Duration
	p := &Pace{Tell: func() { told++ }, after: func(d time.Duration, f func()) { wait, due = d, f }}
	now := time.Unix(1000, 0)
	if p.Ask(now); told != 1 || due != nil {
		t.Fatalf("control: told %d times", told)
	}
	begun, asked := now, 1
	for now.Sub(begun) < 10*time.Minute {
		p.Ask(now)
		asked++
		if due == nil {
			t.Fatalf("the word at %s is lost, or passed on at once", now.Sub(begun))
		}
		for range 10 {
			p.Ask(now.Add(wait / 2))
			asked++
		}
		now = now.Add(wait)
		f := due
		due = nil
		f()
	}
	if told < 20 || told > 40 || asked < 10*told || wait != LongestPace {
		t.Errorf("told %d times in ten minutes, the last after %s", told, wait)
	}
	before := told
	if p.Ask(now.Add(2 * LongestPace)); told != before+1 || due != nil {
		t.Errorf("after a quiet time it waits")
	}
}
