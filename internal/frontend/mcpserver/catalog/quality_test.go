package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/model/call"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/testing/corpus"
)

// realTools are the definitions of the corpus, by server; nil where the recorded ones are not here.
func realTools(t testing.TB) map[string]Source {
	if !corpus.Whole(t) {
		return nil
	}
	out := map[string]Source{}
	for file, b := range corpus.Definitions(t) {
		var doc struct {
			Tools []struct {
				Name, Title, Description  string
				InputSchema, OutputSchema json.RawMessage
			}
		}
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		server := path.Base(file)
		var tools []call.Tool
		for _, d := range doc.Tools {
			if _, err := strictjson.Parse(d.InputSchema); err == nil {
				one := tool(t, server+"."+d.Name, d.Description, string(d.InputSchema))
				one.Title = d.Title
				if len(d.OutputSchema) > 0 {
					one.Output = parse(t, string(d.OutputSchema))
				}
				tools = append(tools, one)
			}
		}
		out[server] = fixed(tools...)
	}
	return out
}

type query struct {
	text    string
	answers []string
}

func queries(t testing.TB) (out []query) {
	b, err := os.ReadFile(filepath.Join("testdata", "queries.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if text, answers, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && !strings.HasPrefix(line, "#") {
			out = append(out, query{text, strings.Fields(answers)})
		}
	}
	return out
}

// score is recall at 1, 5 and 10, and the mean reciprocal rank among the first ten.
type score struct{ one, five, ten, mrr, n float64 }

func (s score) String() string {
	return fmt.Sprintf("recall@1 %.2f, @5 %.2f, @10 %.2f, MRR %.3f of %.0f queries", s.one/s.n, s.five/s.n,
		s.ten/s.n, s.mrr/s.n, s.n)
}

// tokens is how many tokens a search answer has, roughly: JSON schemas have 3.6 bytes a token (o200k_base) and more.
func tokens(t testing.TB, c *Catalogue, q query, d Detail, limit int) int {
	var told []SearchResult
	for _, e := range c.Search(context.Background(), Viewer{}, q.text, limit) {
		told = append(told, e.Tell(d))
	}
	b, err := json.Marshal(map[string]any{"tools": told})
	if err != nil {
		t.Fatal(err)
	}
	return len(b) * 10 / 36
}

// rank returns the place of the first tool that answers a query, from 1; 0 if the first ten hold no such tool.
func rank(c *Catalogue, q query) int {
	return 1 + slices.IndexFunc(c.Search(context.Background(), Viewer{}, q.text, 10),
		func(e *Entry) bool { return slices.Contains(q.answers, string(e.Capability)) })
}

// An agent finds the tool that it asks for: 100 queries over real definitions, of which the second half was written
// down and not looked at while the ranking was tuned.
func TestSearchFindsRealTools(t *testing.T) {
	all100 := queries(t)
	if len(all100) != 100 {
		t.Errorf("%d queries", len(all100))
	}
	sources := realTools(t)
	if sources == nil {
		t.Log("the corpus of real tool definitions is not here; nothing was searched")
		return
	}
	c := New(Options{Contracts: rules{}, Texts: text{}, Sources: sources})
	defer c.Close()
	for _, q := range all100 {
		for _, name := range q.answers {
			if _, ok := c.Lookup(context.Background(), name); !ok {
				t.Errorf("%q: there is no %s", q.text, name)
			}
		}
	}
	var half [2]score
	var basic, full []int
	for i, q := range all100 {
		at, s := rank(c, q), &half[i%2]
		s.n++
		basic, full = append(basic, tokens(t, c, q, Basic, 0)), append(full, tokens(t, c, q, Full, FullHits))
		if at > 0 {
			s.mrr += 1 / float64(at)
			s.ten++
		}
		if at > 0 && at <= 5 {
			s.five++
		}
		if at == 1 {
			s.one++
		}
		if at != 1 && i%2 == 0 && os.Getenv("WALDO_SEARCH_MISSES") != "" {
			t.Logf("%2d %q: %s", at, q.text, names(c.Search(context.Background(), Viewer{}, q.text, 4)))
		}
	}
	both := score{
		half[0].one + half[1].one, half[0].five + half[1].five, half[0].ten + half[1].ten, half[0].mrr + half[1].mrr,
		half[0].n + half[1].n,
	}
	t.Logf("tuned on: %s", half[0])
	t.Logf("held out: %s", half[1])
	t.Logf("all: %s", both)
	slices.Sort(basic)
	slices.Sort(full)
	t.Logf("tokens of an answer, median (most): basic %d (%d), full %d (%d)", basic[50], basic[99], full[50], full[99])
	if full[50] > 2500 {
		t.Errorf("full answers have %d tokens at the median", full[50])
	}
	if both.five/both.n < 0.85 || both.mrr/both.n < 0.70 {
		t.Errorf("too few are found: %s", both)
	}
}
