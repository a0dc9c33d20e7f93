package audit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
)

// Counted says how many records a selection took of how many.
type Counted struct {
	Shown, Matched, Total uint64
	Last                  uint64 // the number of the last record of the log
	Missing               uint64 // records between others that are damaged or gone: Verify finds which
	Rebuilt               bool   // a part of the index did not fit the log, and was made again
}

// Select calls fn for the records of a selection, oldest first, and counts them. It finds them by the index, and reads
// each from the log.
func Select(ctx context.Context, dir string, s Selection, fn func(Record) error) (n Counted, err error) {
	rebuilt, after := false, uint64(0)
	for try := range 4 {
		var q *query
		q, err = newQuery(ctx, dir, s, after, try < 3)
		if err == nil {
			n, err = q.run(ctx, func(r Record) error { after = r.Seq; return fn(r) })
		}
		var stale errStale
		if !errors.As(err, &stale) {
			n.Rebuilt = rebuilt
			return n, err
		}
		rebuilt = os.Remove(stale.file) == nil || rebuilt
	}
	return n, fmt.Errorf("%w: it changed while it was read; try again", err)
}

// query is one search.
type query struct {
	*index
	s       Selection
	tests   []test
	after   uint64           // records that were shown by an earlier attempt
	callers map[uint64]entry // decisions, by number
	free    [][]byte         // columns that were used
}

func newQuery(ctx context.Context, dir string, s Selection, after uint64, files bool) (*query, error) {
	ix, err := openIndex(ctx, dir, files, s.Progress)
	return &query{index: ix, s: s, tests: s.tests(), after: after, callers: map[uint64]entry{}}, err
}

func (q *query) run(ctx context.Context, fn func(Record) error) (n Counted, err error) {
	q.count(&n)
	if err := q.sample(); err != nil {
		return n, err
	}
	for _, x := range q.segs { // a new process makes memory slower than it reads the index
		x.free = &q.free
	}
	fits := make([][]bool, len(q.segs))
	for i, x := range slices.Backward(q.segs) {
		if fits[i], err = q.rows(i); err != nil || ctx.Err() != nil {
			return n, errors.Join(err, ctx.Err())
		}
		x.release() // the decisions of older segments' calls are in them, or older
		for _, yes := range fits[i] {
			if yes {
				n.Matched++
			}
		}
	}
	if q.s.Last > 0 {
		return n, q.newest(ctx, fits, &n, fn)
	}
	for i, x := range q.segs {
		for row, yes := range fits[i] {
			if !yes {
				continue
			}
			if x.seq(row) <= q.after {
				n.Shown++
				continue
			}
			r, shown, err := q.read(i, row)
			if err == nil && shown {
				n.Shown++
				err = fn(r)
			}
			if err = errors.Join(err, ctx.Err()); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// newest shows the last records of a selection. It reads them from the newest on.
func (q *query) newest(ctx context.Context, fits [][]bool, n *Counted, fn func(Record) error) error {
	var out []Record
	for i := range slices.Backward(q.segs) {
		for row := len(fits[i]) - 1; row >= 0 && len(out) < q.s.Last; row-- {
			if !fits[i][row] {
				continue
			}
			r, shown, err := q.read(i, row)
			if err = errors.Join(err, ctx.Err()); err != nil {
				return err
			}
			if shown {
				out = append(out, r)
			}
		}
	}
	for _, r := range slices.Backward(out) {
		n.Shown++
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

// count counts the records of the log.
func (q *query) count(n *Counted) {
	for _, x := range q.segs {
		if x.N == 0 {
			continue
		}
		first, last := x.seq(0), x.seq(x.N-1)
		if n.Last > 0 && first > n.Last+1 {
			n.Missing += first - n.Last - 1
		}
		for row := 1; x.seqs != nil && row < x.N; row++ {
			if x.seqs[row] > x.seqs[row-1]+1 {
				n.Missing += x.seqs[row] - x.seqs[row-1] - 1
			}
		}
		n.Last = last
		n.Total = last - q.segs[0].First + 1
	}
}

// rows returns which rows of a segment fit, by the index.
func (q *query) rows(segment int) ([]bool, error) {
	x := q.segs[segment]
	if x.N == 0 {
		return nil, nil
	}
	fits := make([]bool, x.N)
	if q.s.About != nil {
		if some, err := x.about(q.s.About, fits); err != nil || !some {
			return nil, err
		}
	}
	for i := range fits {
		fits[i] = (fits[i] || q.s.About == nil) && (q.s.Before == 0 || x.seq(i) < q.s.Before)
	}
	if first, last := q.s.span(); !q.s.Since.IsZero() || !q.s.Until.IsZero() {
		at, err := x.column(cellAt)
		if err != nil {
			return nil, err
		}
		for i := range fits {
			ms := int64(at.at(i))
			fits[i] = fits[i] && ms >= first && ms < last
		}
	}
	for i, t := range q.tests {
		if err := q.test(segment, i, t, fits); err != nil {
			return nil, err
		}
	}
	return fits, nil
}

// about marks the rows with one of some ids, and reports whether there are any.
func (x *indexed) about(ids []string, fits []bool) (some bool, err error) {
	var wanted []uint64
	for _, id := range ids {
		wanted = append(wanted, max(hashID(id), 1)) // 0: a row without that id
	}
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	mark := func(row int) { fits[row], some = true, true }
	if x.read {
		for _, h := range wanted {
			if err := x.named(h, mark); err != nil {
				return some, err
			}
		}
		return some, nil
	}
	for c := range 5 { // in memory
		for row := range x.N {
			if _, is := slices.BinarySearch(wanted, cells{x.cols[cellIDs+c], true}.at(row)); is {
				mark(row)
			}
		}
	}
	return some, nil
}

// test clears the rows that do not fit one condition.
func (q *query) test(segment, number int, t test, fits []bool) error {
	x := q.segs[segment]
	ok, own, err := q.words(x, number, t.text)
	if err != nil {
		return err
	}
	var origin, or cells
	if t.caller {
		if origin, err = x.column(cellOrigin); err != nil {
			return err
		}
	}
	if t.or != 0 {
		if _, or, err = q.words(x, number, t.or); err != nil {
			return err
		}
	}
	for i := range fits {
		if !fits[i] {
			continue
		}
		from, fit, word := x, ok, own.at(i)
		if t.caller && origin.at(i) != 0 {
			switch at, row, known := q.find(segment, origin.at(i)); {
			case known && at == segment:
				word = own.at(row)
			case known:
				var theirs cells
				from = q.segs[at]
				if fit, theirs, err = q.words(from, number, t.text); err != nil {
					return err
				}
				word = theirs.at(row)
			}
		}
		if word >= uint64(len(fit)) {
			return from.stale()
		}
		if fits[i] = fit[word]; !fits[i] && t.or != 0 {
			if word = or.at(i); word >= uint64(len(ok)) {
				return x.stale()
			}
			fits[i] = ok[word]
		}
	}
	return nil
}

// words returns which words of a segment fit a condition, and the column of a text.
func (q *query) words(x *indexed, number, text int) (ok []bool, column cells, err error) {
	if x.ok == nil {
		x.ok = make([][]bool, len(q.tests))
	}
	if column, err = x.column(cells64 + text); err != nil {
		return nil, column, err
	}
	if ok = x.ok[number]; ok == nil {
		words, err := x.dictionary()
		if err != nil {
			return nil, column, err
		}
		ok = make([]bool, len(words))
		for i, w := range words {
			ok[i] = q.tests[number].fits(w)
		}
		x.ok[number] = ok
	}
	return ok, column, nil
}

// Principals returns those of the decisions of a log, by the index alone.
func Principals(ctx context.Context, dir string) (out []string, err error) {
	return distinct(ctx, dir, textPrincipal, KindDecision)
}

// distinct returns the texts that the records of a kind have in one column of the index, each once in a segment.
// An empty kind is all kinds.
func distinct(ctx context.Context, dir string, text int, kind string) (out []string, err error) {
	ix, err := openIndex(ctx, dir, true, nil)
	if err != nil {
		return nil, err
	}
	for _, x := range ix.segs {
		words, err := x.dictionary()
		if err != nil {
			return nil, err
		}
		kinds, err := x.column(cells64 + textKind)
		if err != nil {
			return nil, err
		}
		column, err := x.column(cells64 + text)
		if err != nil {
			return nil, err
		}
		of, seen := uint64(slices.Index(words, kind)), make([]bool, len(words))
		for row := range x.N {
			w := column.at(row)
			if (kind == "" || kinds.at(row) == of) && w < uint64(len(seen)) && !seen[w] && words[w] != "" {
				seen[w] = true
				out = append(out, words[w])
			}
		}
	}
	return out, nil
}

// find returns the row of a record, which is in a segment or before.
func (q *query) find(segment int, seq uint64) (at, row int, known bool) {
	for at = segment; at >= 0; at-- {
		if x := q.segs[at]; seq >= x.First {
			row, known = x.row(seq)
			return at, row, known
		}
	}
	return 0, 0, false
}

// read reads a record from the log, and reports whether it fits; errStale if the index says so, and it does not.
func (q *query) read(segment, row int) (r Record, fits bool, err error) {
	x := q.segs[segment]
	if r, err = x.record(row); err != nil {
		return r, false, err
	}
	own := entryOf(r)
	caller := own
	if slices.ContainsFunc(q.tests, func(t test) bool { return t.caller }) {
		if caller, err = q.caller(segment, row, own); err != nil {
			return r, false, err
		}
	}
	if !q.s.holds(q.tests, r, own, caller) {
		return r, false, x.stale()
	}
	return r, q.s.Match == nil || q.s.Match(r), nil
}

// caller reads the decision of a record's call.
func (q *query) caller(segment, row int, own entry) (entry, error) {
	origin, err := q.segs[segment].cell(cellOrigin, row)
	if err != nil || origin == 0 {
		return own, err
	}
	e, known := q.callers[origin]
	if !known {
		at, row, there := q.find(segment, origin)
		if !there {
			return own, nil // it was removed
		}
		r, err := q.segs[at].record(row)
		if err != nil {
			return own, err
		}
		if len(q.callers) > 10_000 {
			clear(q.callers)
		}
		e = entryOf(r)
		q.callers[origin] = e
	}
	if e.texts[textKind] != KindDecision || e.ids[idCall] != own.ids[idCall] {
		return own, q.segs[segment].stale()
	}
	return e, nil
}

// samples is how many rows each query compares with the log, whatever it asks.
const samples = 16

// sample compares rows with the log. It finds an index that was changed in many rows soon, and one changed in few
// seldom.
func (q *query) sample() error {
	for range samples {
		if len(q.segs) == 0 {
			return nil
		}
		i := rand.IntN(len(q.segs))
		x := q.segs[i]
		if x.N == 0 || !x.read {
			continue
		}
		if err := compare(x, rand.IntN(x.N)); err != nil {
			return err
		}
	}
	return nil
}

// compare makes a row anew.
func compare(x *indexed, row int) error {
	r, err := x.record(row)
	if err != nil {
		return err
	}
	words, err := x.dictionary()
	if err != nil {
		return err
	}
	fresh := &indexed{known: map[string]uint32{}}
	fresh.enter(r, 0)
	var all, anew [columns]uint64
	if err := errors.Join(x.some(0, row, all[:]), fresh.some(0, 0, anew[:])); err != nil {
		return x.stale()
	}
	for c := cellAt; c < columns; c++ {
		have, want := all[c], anew[c]
		switch {
		case c == cellOrigin: // read finds a false one
		case c < cells64 && have != want, c >= cells64 && (have >= uint64(len(words)) || words[have] != fresh.words[want]):
			return x.stale()
		}
	}
	return nil
}

// Known returns the values of one filter that a log has, sorted, by the index alone: of host, capability, agent,
// channel or principal. Another filter has none.
func Known(ctx context.Context, dir, filter string) (out []string, err error) {
	text, is := map[string]int{"host": textHosts, "capability": textCapability, "agent": textAgent, "channel": textChannel,
		"principal": textPrincipal}[filter]
	if !is {
		return nil, nil
	}
	texts, err := distinct(ctx, dir, text, "")
	for _, t := range texts {
		out = append(out, strings.Split(t, "\n")...) // a record has several hosts
	}
	slices.Sort(out)
	return slices.Compact(out), err
}
