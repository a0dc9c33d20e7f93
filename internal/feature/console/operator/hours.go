package operator

import (
	"context"
	"math"
	"slices"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/feature/console/site"
)

// maxHours is how many hours the index counts: 31 days. Earlier ones are in the log alone.
const maxHours = 31 * 24

// spans count durations in classes, each 2^(1/4) as long as the one before, from 0.1 ms on. A quantile is therefore
// at most 19 % too high.
type spans [128]int32

func (s *spans) add(ms float64) {
	i := 0
	if ms > 0.1 {
		i = min(int(math.Ceil(4*math.Log2(ms/0.1))), len(s)-1)
	}
	s[i]++
}

func (s *spans) quantile(q float64) float64 {
	total := int32(0)
	for _, n := range s {
		total += n
	}
	if total == 0 {
		return 0
	}
	rest := int32(math.Ceil(q * float64(total)))
	for i, n := range s {
		if rest -= n; rest <= 0 {
			return 0.1 * math.Pow(2, float64(i)/4)
		}
	}
	return 0
}

// hour counts the calls of one hour, or of several.
type hour struct {
	site.Hour
	took spans
}

func (h *hour) add(o *hour) {
	h.Calls += o.Calls
	h.Denied += o.Denied
	h.Asked += o.Asked
	h.Refused += o.Refused
	h.Failed += o.Failed
	h.WallMS += o.WallMS
	h.CPUMS += o.CPUMS
	for i, n := range o.took {
		h.took[i] += n
	}
}

// hours holds counts by the first 13 characters of a record's time: 2026-11-23T15.
type hours map[string]*hour

const hourLayout = "2006-01-02T15"

// count enters one decision or outcome. effect is that of its decision; empty: not known.
func (all hours) count(r audit.Record, b body, effect string) {
	if len(r.At) < len(hourLayout) {
		return
	}
	key := r.At[:len(hourLayout)]
	h := all[key]
	if h == nil {
		h = &hour{}
		all[key] = h
		if len(all) > 2*maxHours {
			all.trim(key)
		}
	}
	if r.Kind == audit.KindDecision {
		h.Calls++
		switch b.Effect {
		case "deny":
			h.Denied++
		case "ask":
			h.Asked++
		}
		return
	}
	h.WallMS += b.Facts.Usage.Wall
	h.CPUMS += b.Facts.Usage.CPU
	if ran(b.Status) {
		h.took.add(b.Facts.Usage.Wall)
	}
	switch b.Status {
	case "failed", "timeout", "oom":
		h.Failed++
	case "denied":
		if effect == "ask" || effect == "allow" {
			h.Refused++
		}
	}
}

// ran reports whether a call with this status counts in the times that calls take.
func ran(status string) bool {
	return slices.Contains([]string{"ok", "failed", "timeout", "oom"}, status)
}

// trim forgets the hours that are too long before one.
func (all hours) trim(newest string) {
	at, err := time.Parse(hourLayout, newest)
	if err != nil {
		delete(all, newest)
		return
	}
	oldest := at.Add(-maxHours * time.Hour).Format(hourLayout)
	for key := range all {
		if key < oldest || key > newest {
			delete(all, key)
		}
	}
}

// Hours satisfies site.Backend.
func (p *Operator) Hours(ctx context.Context, span, step int) (site.List[site.Hour], error) {
	out := site.List[site.Hour]{Items: []site.Hour{}}
	if err := p.index.use(ctx); err != nil {
		return out, err
	}
	p.index.mu.Lock()
	defer p.index.mu.Unlock()
	end := time.Now().UTC().Truncate(time.Hour).Add(time.Hour)
	for at := end.Add(-time.Duration(span) * time.Hour); at.Before(end); at = at.Add(time.Duration(step) * time.Hour) {
		var sum hour
		for i := range step {
			if h := p.index.hours[at.Add(time.Duration(i)*time.Hour).Format(hourLayout)]; h != nil {
				sum.add(h)
			}
		}
		sum.Start, sum.P50MS, sum.P95MS = at, sum.took.quantile(0.5), sum.took.quantile(0.95)
		out.Items = append(out.Items, sum.Hour)
	}
	return out, nil
}
