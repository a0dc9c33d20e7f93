package catalog

import (
	"math"
	"sort"
	"strings"
	"sync"
	"unicode"

	"waldo/internal/model/call"
	"waldo/internal/protocol/strictjson"
)

// Detail says how much of a tool is told. The zero value tells the least.
type Detail string

// The details.
const (
	Name  Detail = "name"
	Basic Detail = "basic"
	Full  Detail = "full"
)

// DefaultHits and MaxHits are how many tools a search returns.
const (
	DefaultHits = 10
	MaxHits     = 50
)

// Told is what is told of a tool at some detail.
type Told struct {
	Name        string           `json:"name"` // on the wire
	Capability  call.Capability  `json:"capability"`
	Description string           `json:"description,omitempty"`
	Input       strictjson.Value `json:"inputSchema,omitzero"`
	Output      strictjson.Value `json:"outputSchema,omitzero"`
}

// Tell describes a tool: its names, with Basic the description, with Full the schemas as well.
func (e *Entry) Tell(d Detail) Told {
	t := Told{Name: e.Wire, Capability: e.Capability}
	if d == Basic || d == Full {
		t.Description = e.Description
	}
	if d == Full {
		t.Input, t.Output = e.Input, e.Output
	}
	return t
}

// The constants of BM25 (Robertson and Zaragoza 2009), and how much more a name says than a sentence.
const (
	k1         = 1.2
	bLength    = 0.75
	nameWeight = 3
)

type posting struct {
	doc    int32
	weight float32 // the whole BM25 summand of this term in this document
}

type index struct {
	entries  []*Entry
	postings map[string][]posting
	scratch  sync.Pool // of *scratch
}

// scratch is what one search counts in; scores are zero between searches.
type scratch struct {
	scores []float32
	found  []int32
}

func newIndex(entries []*Entry) *index {
	ix := &index{entries: entries, postings: map[string][]posting{}}
	var total float32
	lengths := make([]float32, len(entries))
	for i, e := range entries {
		for _, tf := range e.terms {
			lengths[i] += tf
		}
		total += lengths[i]
	}
	average := total / float32(max(1, len(entries)))
	for i, e := range entries {
		norm := k1 * (1 - bLength + bLength*lengths[i]/average)
		for term, tf := range e.terms {
			ix.postings[term] = append(ix.postings[term], posting{int32(i), tf * (k1 + 1) / (tf + norm)})
		}
	}
	n := float64(len(entries))
	for _, list := range ix.postings {
		hits := float64(len(list))
		idf := float32(math.Log(1 + (n-hits+0.5)/(hits+0.5)))
		for i := range list {
			list[i].weight *= idf
		}
	}
	return ix
}

// search ranks all tools and returns the best that are not hidden.
func (ix *index) search(query []string, max int, hidden map[call.Capability]bool) []*Entry {
	sc, _ := ix.scratch.Get().(*scratch)
	if sc == nil {
		sc = &scratch{scores: make([]float32, len(ix.entries))}
	}
	scores, found := sc.scores, sc.found[:0]
	for _, term := range query {
		for _, p := range ix.postings[term] {
			if scores[p.doc] == 0 {
				found = append(found, p.doc)
			}
			scores[p.doc] += p.weight
		}
	}
	before := func(a, b int32) bool {
		if scores[a] != scores[b] {
			return scores[a] > scores[b]
		}
		return a < b
	}
	best := make([]int32, 0, max+1) // sorted; insertion is cheap because max is small
	for _, doc := range found {
		if len(best) == max && !before(doc, best[max-1]) || hidden[ix.entries[doc].Capability] {
			continue
		}
		at := sort.Search(len(best), func(i int) bool { return before(doc, best[i]) })
		best = append(best, 0)
		copy(best[at+1:], best[at:])
		best[at] = doc
		best = best[:min(len(best), max)]
	}
	out := make([]*Entry, len(best))
	for i, doc := range best {
		out[i] = ix.entries[doc]
	}
	for _, doc := range found {
		scores[doc] = 0
	}
	sc.found = found
	ix.scratch.Put(sc)
	return out
}

// terms counts the words of a tool: those of its name weigh more.
func terms(e *Entry) map[string]float32 {
	count := map[string]float32{}
	for _, w := range tokens(string(e.Capability)) {
		count[w] += nameWeight
	}
	for _, w := range tokens(e.Title + " " + e.Description) {
		count[w]++
	}
	members, _ := e.Input.Members()
	properties, _ := members["properties"].Members()
	for p := range properties {
		for _, w := range tokens(p) {
			count[w]++
		}
	}
	return count
}

// tokens splits text into words: at anything that is no letter or digit, and where a capital begins
// (createIssue). They are lower-case, and a plural counts as its singular.
func tokens(s string) []string {
	var out []string
	var word strings.Builder
	flush := func() {
		if w := word.String(); w != "" {
			out = append(out, singular(strings.ToLower(w)))
		}
		word.Reset()
	}
	small := false
	for _, r := range s {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush()
			small = false
			continue
		case unicode.IsUpper(r) && small:
			flush()
		}
		small = unicode.IsLower(r)
		word.WriteRune(r)
	}
	flush()
	return out
}

func singular(w string) string {
	switch {
	case len(w) > 4 && strings.HasSuffix(w, "ies"):
		return w[:len(w)-3] + "y"
	case len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss"):
		return w[:len(w)-1]
	}
	return w
}
