package catalog

import (
	"math"
	"slices"
	"sort"
	"strings"
	"sync"

	"waldo/internal/model/call"
	"waldo/internal/protocol/strictjson"
)

// Detail selects how much of a tool a search returns. The zero value returns the least.
type Detail string

// The details.
const (
	Name  Detail = "name"
	Basic Detail = "basic"
	Full  Detail = "full"
)

// DefaultHits, FullHits and MaxHits are how many tools a search returns: of itself, of itself with their schemas, and
// at most.
const (
	DefaultHits = 10
	FullHits    = 3
	MaxHits     = 50
)

// SearchResult is a search result at some detail.
type SearchResult struct {
	Name        string           `json:"name"` // on the wire
	Capability  call.Capability  `json:"capability"`
	Description string           `json:"description,omitempty"`
	Input       strictjson.Value `json:"inputSchema,omitzero"`
	Output      strictjson.Value `json:"outputSchema,omitzero"`
}

// Tell describes a tool: its names, with Basic the description, with Full the schemas as well.
func (e *Entry) Tell(d Detail) SearchResult {
	t := SearchResult{Name: e.Wire, Capability: e.Capability}
	if d == Basic || d == Full {
		t.Description = e.Description
	}
	if d == Full {
		t.Input, t.Output = e.Input, e.Output
	}
	return t
}

// The constants of BM25 (Robertson and Zaragoza 2009), and how much a word weighs by where it is. Its documents are
// long and short, and a long one says no more: b is low.
const (
	k1      = 1.6
	bLength = 0.5

	inName        = 5 // of the tool; that of its server has less
	inServer      = 1.5
	inTitle       = 1.5
	inFirst       = 2   // the first sentence of the description
	inRest        = 1   // the remaining text
	inParam       = 0.8 // the name of a parameter
	inParamText   = 0.5 // its description, and the values that it may have
	asSynonym     = 0.65
	exactWeight   = 1e6 // more than any words
	maxQueryWords = 40

	// aFit is how well a query of three words or more must fit a tool: by two words, or by one that says what the tool
	// is. A least score instead loses answers to strangers, who ask in sentences (BENCHMARKS.md).
	aFit = 2
)

type posting struct {
	doc    int32
	fit    int8    // aFit for a word of the tool's name, title or first sentence, and for a frequent one; otherwise 1
	weight float32 // weight that this query word adds to this document
}

// index ranks a list. It is made by the first search in it.
type index struct {
	entries  []*Entry
	once     sync.Once
	postings map[string][]posting // by word of a query
	names    map[string][]int32   // a tool's name without its server's, to the places of those that have it
	scratch  sync.Pool            // of *scratch
}

// scratch holds the counters of one search; scores and fits are zero between searches.
type scratch struct {
	scores []float32
	fits   []int8
	found  []int32
}

func (ix *index) build() {
	var total float32
	lengths := make([]float32, len(ix.entries))
	ix.names = make(map[string][]int32, len(ix.entries))
	for i, e := range ix.entries {
		for _, tf := range e.terms {
			lengths[i] += tf
		}
		total += lengths[i]
		name := bare(e)
		ix.names[name] = append(ix.names[name], int32(i))
	}
	average := total / float32(max(1, len(ix.entries)))
	own := map[string][]posting{}
	for i, e := range ix.entries {
		norm := k1 * (1 - bLength + bLength*lengths[i]/average)
		for word, tf := range e.terms {
			fit := int8(1)
			if tf >= inTitle {
				fit = aFit
			}
			own[word] = append(own[word], posting{int32(i), fit, tf * (k1 + 1) / (tf + norm)})
		}
	}
	n := float64(len(ix.entries))
	idf := make(map[string]float32, len(own))
	for word, list := range own {
		hits := float64(len(list))
		idf[word] = float32(math.Log(1 + (n-hits+0.5)/(hits+0.5)))
	}
	ix.postings = make(map[string][]posting, len(own))
	for word, list := range own {
		ix.postings[word] = weighed(list, idf[word])
	}
	most := make([]posting, len(ix.entries))
	for word, others := range synonyms() {
		ix.postings[word] = joined(most, word, others, own, idf)
	}
}

func weighed(list []posting, weight float32) []posting {
	out := slices.Clone(list)
	for i := range out {
		out[i].weight *= weight
	}
	return out
}

// joined merges the postings of a word and of its synonyms, which must be at least as frequent as the word. Only the
// largest weight and fit in a document count; most is zero before and after.
func joined(
	most []posting, word string, others []string, own map[string][]posting, idf map[string]float32,
) (out []posting) {
	add := func(list []posting, weight float32) {
		for _, p := range list {
			m := &most[p.doc]
			if m.weight == 0 {
				out = append(out, posting{doc: p.doc})
			}
			m.weight, m.fit = max(m.weight, p.weight*weight), max(m.fit, p.fit)
		}
	}
	add(own[word], idf[word])
	for _, other := range others {
		weight := idf[other]
		if own[word] != nil {
			weight = min(weight, idf[word])
		}
		add(own[other], asSynonym*weight)
	}
	for i, p := range out {
		out[i].weight, out[i].fit, most[p.doc] = most[p.doc].weight, most[p.doc].fit, posting{}
	}
	return out
}

// bare returns a tool's own name in small letters, without its server's.
func bare(e *Entry) string {
	name := string(e.Capability)
	if e.Server != "" {
		name = strings.TrimPrefix(name, e.Server+".")
	}
	return strings.ToLower(name)
}

// search ranks all tools and returns the best that are not hidden. Tools of which the query is the name are the first.
func (ix *index) search(query string, max int, hidden map[call.Capability]bool) []*Entry {
	ix.once.Do(ix.build)
	sc, _ := ix.scratch.Get().(*scratch)
	if sc == nil {
		sc = &scratch{scores: make([]float32, len(ix.entries)), fits: make([]int8, len(ix.entries))}
	}
	sc.found = sc.found[:0]
	asked := stems(query)
	add := func(p posting) {
		if sc.scores[p.doc] == 0 {
			sc.found = append(sc.found, p.doc)
		}
		sc.scores[p.doc] += p.weight
		sc.fits[p.doc] += p.fit
	}
	different := 0
	asked = asked[:min(len(asked), maxQueryWords)]
	for i, word := range asked {
		if slices.Contains(asked[:i], word) {
			continue
		}
		different++
		for _, p := range ix.postings[word] {
			add(p)
		}
	}
	for _, doc := range ix.names[strings.ToLower(strings.TrimSpace(query))] {
		add(posting{doc, aFit, exactWeight})
	}
	least := int8(1)
	if different > 2 {
		least = aFit
	}
	out := ix.best(sc, max, least, hidden)
	for _, doc := range sc.found {
		sc.scores[doc], sc.fits[doc] = 0, 0
	}
	ix.scratch.Put(sc)
	return out
}

// best returns the tools of the highest scores that fit and are not hidden. Equal ones are in the order of the list.
func (ix *index) best(sc *scratch, max int, least int8, hidden map[call.Capability]bool) []*Entry {
	before := func(a, b int32) bool {
		if sc.scores[a] != sc.scores[b] {
			return sc.scores[a] > sc.scores[b]
		}
		return a < b
	}
	best := make([]int32, 0, max+1) // sorted; insertion is cheap because max is small
	for _, doc := range sc.found {
		if sc.fits[doc] < least || len(best) == max && !before(doc, best[max-1]) || hidden[ix.entries[doc].Capability] {
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
	return out
}

// terms weighs the words of a tool.
func terms(e *Entry) map[string]float32 {
	count := map[string]float32{}
	add := func(text string, weight float32) {
		for _, w := range stems(text) {
			count[w] += weight
		}
	}
	add(bare(e), inName)
	add(e.Server, inServer)
	add(e.Title, inTitle)
	first, rest := firstSentence(e.Description)
	add(first, inFirst)
	add(rest, inRest)
	members, _ := e.Input.Members()
	properties, _ := members["properties"].Members()
	for name, p := range properties {
		add(name, inParam)
		text, _ := p.Member("description").Text()
		add(text, inParamText)
		add(string(p.Member("enum").Raw()), inParamText)
	}
	return count
}

// firstSentence cuts a description after its first sentence or line.
func firstSentence(s string) (first, rest string) {
	s = strings.TrimSpace(s)
	end := len(s)
	for _, mark := range []string{". ", ".\n", "\n", "; "} {
		if i := strings.Index(s, mark); i >= 0 {
			end = min(end, i+1)
		}
	}
	return s[:end], s[end:]
}
