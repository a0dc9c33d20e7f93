package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/testing/corpus"
)

func parse(t testing.TB, s string) strictjson.Value {
	t.Helper()
	v, err := strictjson.Parse([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func tool(t testing.TB, name, description, input string) call.Tool {
	return call.Tool{
		Capability: call.Capability(name), Description: description, Input: parse(t, input),
		Digest: strictjson.Digest([]byte(name + description + input)),
	}
}

func fixed(tools ...call.Tool) Source {
	return func(context.Context) ([]call.Tool, error) { return tools, nil }
}

func names(entries []*Entry) string {
	var out []string
	for _, e := range entries {
		out = append(out, e.Wire)
	}
	return strings.Join(out, " ")
}

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 80)
	o := `{"type":"object"}`
	for _, row := range []struct {
		why   string
		tools map[string][]string // by server
		want  string
	}{
		{"the server's name stands before the tool's", map[string][]string{"mail": {"mail.send"}, "evil": {"evil.send"}},
			"evil__send mail__send search_tools"},
		{
			"a tool named as one of waldo's own is another tool",
			map[string][]string{"evil": {"evil.run_python", "evil.search_tools"}},
			"evil__run_python evil__search_tools search_tools",
		},
		{"a tool cannot pass for another server's", map[string][]string{"evil": {"mail.send", "run_python"}}, "search_tools"},
		{"names that are the same on the wire are told apart, both of them", map[string][]string{"a": {"a.b.c", "a.b__c"}},
			"a__b__c_2ca89a48 a__b__c_b39c1d6a search_tools"},
		{"a server cannot take over a wire name", map[string][]string{"a": {"a.b__c"}, "a__b": {"a__b.c"}},
			"a__b__c_0bdc8ba4 a__b__c_2ca89a48 search_tools"},
		{"the same tool twice counts once", map[string][]string{"a": {"a.x", "a.x"}}, "a__x_67b0b1f5 search_tools"},
		{"a long name ends in its digest", map[string][]string{"a": {"a." + long}},
			"a__" + long[:52] + "_f5a2e2c0 search_tools"},
		{"a line break is no part of a name", map[string][]string{"a": {"a.send\nx"}}, "search_tools"},
		{"an escape code is no part of a name", map[string][]string{"a": {"a.\x1b[2Jx"}}, "search_tools"},
		{"NUL is no part of a name", map[string][]string{"a": {"a.\x00"}}, "search_tools"},
		{"an emoji is no part of a name", map[string][]string{"a": {"a.😀"}}, "search_tools"},
	} {
		t.Run(row.why, func(t *testing.T) {
			sources := map[string]Source{}
			for server, names := range row.tools {
				var list []call.Tool
				for _, n := range names {
					list = append(list, tool(t, n, "", o))
				}
				sources[server] = fixed(list...)
			}
			c := New(Options{Contracts: rules{}, Texts: text{}, Sources: sources})
			defer c.Close()
			got := names(c.List(context.Background(), Viewer{}))
			if masked(got) != masked(row.want) {
				t.Errorf("got %s, want %s", got, row.want)
			}
			for _, e := range c.List(context.Background(), Viewer{}) {
				if len(e.Wire) > maxWire {
					t.Errorf("%s has %d characters", e.Wire, len(e.Wire))
				}
				for _, n := range []string{e.Wire, string(e.Capability)} {
					if found, ok := c.Lookup(context.Background(), n); !ok || found != e {
						t.Errorf("%s is not found by %s", e.Wire, n)
					}
				}
			}
		})
	}
}

// A server's tool never gets one of waldo's own names, even if a contract gives it that name.
func TestOwnNames(t *testing.T) {
	for _, name := range []call.Capability{"run_python", "search_tools", "exec", "run_code", "echo"} {
		c := New(Options{
			Contracts: rules{Named: func(string, string) []call.Capability { return []call.Capability{name} }},
			Texts:     text{},
			Builtins:  Builtins(),
			Sources:   map[string]Source{"s": fixed(tool(t, "s.echo", "theirs", `{"type":"object"}`))},
		})
		defer c.Close()
		list, p := c.List(t.Context(), Viewer{}), c.Problems()
		if name == "echo" { // control
			if len(list) != 8 || len(p) != 0 {
				t.Errorf("%s: %s %v", name, names(list), p)
			}
			continue
		}
		if names(list) != "read_output run_code run_javascript run_python run_shell run_typescript "+
			"search_tools" ||
			len(p) != 1 || p[0].Code != "tool.own" {
			t.Errorf("%s: %s %v", name, names(list), p)
		}
		if e, ok := c.Lookup(t.Context(), string(name)); ok && e.Description == "theirs" {
			t.Errorf("%s is the server's", name)
		}
	}
}

// masked hides the digits of digests, which the rows need not know by heart.
func masked(s string) string {
	words := strings.Fields(s)
	for i, w := range words {
		if n := len(w); n > 9 && w[n-9] == '_' && strings.Trim(w[n-8:], "0123456789abcdef") == "" {
			words[i] = w[:n-8] + "########"
		}
	}
	return strings.Join(words, " ")
}

// Adding a tool changes the wire name of no other, unless both would have had the same one.
func TestNamesAreStable(t *testing.T) {
	o := `{"type":"object"}`
	before := New(Options{
		Contracts: rules{},
		Texts:     text{},
		Sources:   map[string]Source{"m": fixed(tool(t, "m.send", "", o), tool(t, "m.x.y", "", o))},
	})
	after := New(Options{
		Contracts: rules{},
		Texts:     text{},
		Sources:   map[string]Source{"m": fixed(tool(t, "m.x__y", "", o), tool(t, "m.send", "", o), tool(t, "m.x.y", "", o))},
	})
	defer before.Close()
	defer after.Close()
	a, _ := before.Lookup(context.Background(), "m.send")
	b, _ := after.Lookup(context.Background(), "m.send")
	before.List(context.Background(), Viewer{})
	after.List(context.Background(), Viewer{})
	if a == nil || b == nil || a.Wire != b.Wire {
		t.Errorf("m.send: %v %v", a, b)
	}
	if _, ok := after.Lookup(context.Background(), "m__x__y"); ok {
		t.Error("of two tools that would have the same name, one has kept it: which one is a matter of luck")
	}
}

func TestHiddenWithoutAContract(t *testing.T) {
	o := `{"type":"object"}`
	options := Options{
		Texts:    text{},
		Builtins: Builtins(),
		Sources:  map[string]Source{"a": fixed(tool(t, "a.x", "", o), tool(t, "a.y", "", o))},
	}
	c := New(options)
	defer c.Close()
	if got := names(c.List(context.Background(), Viewer{})); got != "search_tools" {
		t.Errorf("without contracts: %s", got)
	}
	options.Contracts = rules{Seen: func(c call.Capability) bool { return c == "a.x" || c == "run_shell" }}
	c = New(options)
	defer c.Close()
	if got := names(c.List(context.Background(), Viewer{})); got != "a__x run_code run_shell search_tools" {
		t.Errorf("with two contracts: %s", got)
	}
	if _, ok := c.Lookup(context.Background(), "a__y"); ok {
		t.Error("a hidden tool is found by name")
	}
	if got := names(c.Search(context.Background(), Viewer{}, "y typescript", 0)); got != "run_code" {
		t.Errorf("a hidden tool is found by search: %s", got)
	}
}

func TestSchemasAreMadeSafeToShow(t *testing.T) {
	mark := func(s string) string { return "<" + s + ">" }
	input := `{"$comment":"secret","properties":{"description":{"type":"string","description":"d","x-mcp-header":"H",` +
		`"enum":["e"]},"n":{"const":18446744073709551615,"title":"t"}}}`
	c := New(Options{Contracts: rules{}, Texts: text{Cleaner: mark},
		Sources: map[string]Source{"a": fixed(tool(t, "a.x", "D", input))}})
	defer c.Close()
	e, ok := c.Lookup(context.Background(), "a.x")
	if !ok {
		t.Fatal(c.Problems())
	}
	want := `{"properties":{"description":{"description":"<d>","enum":["e"],"type":"string"},` +
		`"n":{"const":18446744073709551615,"title":"<t>"}},"type":"object"}`
	if string(e.Input.Raw()) != want || e.Description != "<D>" {
		t.Errorf("shown: %s %s", e.Input.Raw(), e.Description)
	}
	c = New(Options{Contracts: rules{}, Sources: map[string]Source{"a": fixed(tool(t, "a.x", "D", input))}})
	defer c.Close()
	if e, _ := c.Lookup(context.Background(), "a.x"); e == nil || e.Description != "" {
		t.Error("without a filter, text of a server is shown as it is")
	}
}

func TestBadSchemasKeepATool(t *testing.T) {
	for _, row := range []struct{ input, want, why string }{
		{`{"type":"string"}`, "another type than object", "a client would reject the whole list"},
		{`{"type":["object","null"]}`, "another type than object", "a list of types, likewise"},
		{`"oops"`, "neither an object nor a boolean", "no schema"},
		{`true`, "not an object", "a boolean schema"},
		{`{"$ref":"http://169.254.169.254/"}`, "leaves the schema", "a reference that leaves the schema"},
	} {
		t.Run(row.why, func(t *testing.T) {
			c := New(Options{
				Contracts: rules{},
				Texts:     text{},
				Sources:   map[string]Source{"a": fixed(tool(t, "a.bad", "", row.input), tool(t, "a.good", "", `{}`))},
			})
			defer c.Close()
			if got := names(c.List(context.Background(), Viewer{})); got != "a__good search_tools" {
				t.Errorf("listed: %s", got)
			}
			p := c.Problems()
			if len(p) != 1 || p[0].Code != "tool.schema" || !strings.Contains(p[0].Text, row.want) {
				t.Errorf("problems: %v", p)
			}
		})
	}
}

// One server that hangs or fails does not keep the tools of another from the agent.
func TestSlowAndFailingSources(t *testing.T) {
	release := make(chan struct{})
	var asked, changed atomic.Int64
	o := `{"type":"object"}`
	c := New(Options{
		Contracts: rules{},
		Texts:     text{},
		Wait:      50 * time.Millisecond,
		Retry:     time.Hour,
		Sources: map[string]Source{
			"good": fixed(tool(t, "good.x", "", o)),
			"bad":  func(context.Context) ([]call.Tool, error) { asked.Add(1); return nil, errors.New("no such program") },
			"slow": func(ctx context.Context) ([]call.Tool, error) {
				select {
				case <-release:
					return []call.Tool{tool(t, "slow.x", "", o)}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			},
		},
	})
	defer c.Close()
	stop := c.Watch(func() { changed.Add(1) })
	defer stop()
	// a busy machine may take longer than Wait for the good one
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if names(c.List(context.Background(), Viewer{})) == "good__x search_tools" {
			break
		}
	}
	for range 3 {
		if got := names(c.List(context.Background(), Viewer{})); got != "good__x search_tools" {
			t.Fatalf("listed: %s", got)
		}
	}
	if asked.Load() != 1 {
		t.Errorf("a failing source was asked %d times", asked.Load())
	}
	if p := c.Problems(); len(p) != 2 || p[0].Server != "bad" || p[0].Code != "server.unavailable" ||
		p[1].Server != "slow" || p[1].Code != "server.slow" {
		t.Errorf("problems: %v", p)
	}
	before, version := changed.Load(), c.Versions().Tools
	close(release)
	for end := time.Now().Add(time.Minute); changed.Load() == before && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if got := names(c.List(context.Background(), Viewer{})); got != "good__x search_tools slow__x" ||
		c.Versions().Tools == version {
		t.Errorf("later: %s", got)
	}
}

// A server that says "list changed" ten thousand times is listed about once a second.
func TestAFloodOfChangesIsBounded(t *testing.T) {
	var asked atomic.Int64
	c := New(Options{
		Contracts: rules{},
		Texts:     text{},
		Sources: map[string]Source{"a": func(context.Context) ([]call.Tool, error) {
			n := asked.Add(1)
			return []call.Tool{tool(t, "a.x", fmt.Sprint(n), `{}`)}, nil
		}},
	})
	defer c.Close()
	c.Invalidate("a")
	if asked.Load() != 0 {
		t.Error("tools were listed that nobody wanted")
	}
	c.List(context.Background(), Viewer{})
	begin := time.Now()
	for range 10_000 {
		c.Invalidate("a")
		c.Invalidate("nobody")
	}
	e, _ := c.Lookup(context.Background(), "a.x")
	if e == nil || e.Description == "1" {
		t.Errorf("after a change: %+v", e)
	}
	if n := asked.Load(); n > 2+int64(time.Since(begin)/time.Second) {
		t.Errorf("listed %d times in %v", n, time.Since(begin))
	}
}

func TestCheckArguments(t *testing.T) {
	c := New(Options{Contracts: rules{}, Texts: text{}, Builtins: Builtins()})
	defer c.Close()
	e, ok := c.Lookup(context.Background(), "run_python")
	if !ok {
		t.Fatal("no run_python")
	}
	for _, row := range []struct{ args, want, why string }{
		{`{"code":"print(1)"}`, "", "what it asks for"},
		{`{}`, `"code" is missing`, "nothing"},
		{`{"code":1}`, "/code: is integer, want string", "another type"},
		{`{"code":"","network":true}`, "/network: no such property", "what it does not know"},
	} {
		t.Run(row.why, func(t *testing.T) {
			a, err := call.ParseArgs([]byte(row.args))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if f := e.Check(a); len(f) > 0 {
				got = f[0].String()
			}
			if got != row.want {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
	if f := e.Check(call.Args{}); len(f) == 0 {
		t.Error("the zero arguments lack the code as well")
	}
}

func TestSearch(t *testing.T) {
	o := `{"type":"object"}`
	c := New(Options{
		Contracts: rules{},
		Texts:     text{},
		Sources: map[string]Source{
			"github": fixed(tool(t, "github.create_issue", "Open a new issue in a repository", o),
				tool(t, "github.listIssues", "List the issues of a repository", o),
				tool(t, "github.merge", "Merge a pull request", `{"type":"object","properties":
				{"commitTitle":{},"how":{"enum":["squash","rebase"]}}}`)),
			"slack": fixed(tool(t, "slack.send_message", "Send a message to a channel", o),
				tool(t, "slack.tips", "Help to know more", o)),
			"maps": fixed(tool(t, "maps.a", "根据城市名称查询指定城市的天气", o), tool(t, "maps.b", "查询两点之间的GitHub路线", o)),
		},
	})
	defer c.Close()
	for _, row := range []struct{ query, want, why string }{
		{"github create issue", "github__create_issue github__listIssues github__merge",
			"the tool that has all the words comes first"},
		{"send messages", "slack__send_message", "a plural is its singular"},
		{"list issue", "github__listIssues github__create_issue", "a capital begins a word"},
		{"commit", "github__merge", "names of parameters count"},
		{"squash", "github__merge", "as do values of parameters"},
		{"can you help me, I would like to know more about that channel", "slack__send_message",
			"the words around a question do not"},
		{"help", "slack__tips", "control: alone they do"},
		{"merge issue issue issue", "github__merge github__create_issue github__listIssues",
			"a word that is said again counts once"},
		{"北京天气", "maps__a", "two characters are a word where none are apart"},
		{"路线", "maps__b", "nor are they apart from letters"},
		{"北京", "", "control: those of no tool"},
		{"MERGE", "github__merge", "capitals do not matter"},
		{"github__merge", "github__merge", "a whole name returns its tool alone"},
		{" github.listIssues ", "github__listIssues", "as does its name in contracts"},
		{"createissue", "", "control: no name, and no word"},
		{"LISTissues", "github__listIssues", "a name without its server's"},
		{"post", "slack__send_message", "a word that stands for that of the name"},
		{"the", "", "an article alone fits nothing"},
		{"merging it all for us", "github__merge", "an ending does not matter, nor do words that say nothing"},
		{"zzz", "", "nothing fits"},
		{"", "github__create_issue github__listIssues", "no words: the beginning of the list"},
	} {
		t.Run(row.why, func(t *testing.T) {
			limit := 0
			if row.query == "" {
				limit = 2
			}
			if got := names(c.Search(context.Background(), Viewer{}, row.query, limit)); got != row.want {
				t.Errorf("%q: %s, want %s", row.query, got, row.want)
			}
		})
	}
	e, _ := c.Lookup(context.Background(), "slack.send_message")
	for detail, want := range map[Detail]string{
		"":    `{"name":"slack__send_message","capability":"slack.send_message"}`,
		Name:  `{"name":"slack__send_message","capability":"slack.send_message"}`,
		Basic: `{"name":"slack__send_message","capability":"slack.send_message","description":"Send a message to a channel"}`,
		Full: `{"name":"slack__send_message","capability":"slack.send_message","description":"Send a message to a ` +
			`channel","inputSchema":{"type":"object"}}`,
	} {
		if b, err := json.Marshal(e.Tell(detail)); err != nil || string(b) != want {
			t.Errorf("%q: %s %v", detail, b, err)
		}
	}
}

// Search leaves out a tool that has one of many words, and that one late in its description. One of few words finds it.
func TestSearchFindsNothing(t *testing.T) {
	sources := map[string]Source{}
	for _, name := range []string{"a.one", "b.two", "c.three", "d.four", "e.five"} {
		sources[name[:1]] = fixed(tool(t, name, "Count the apples", `{}`))
	}
	sources["w"] = fixed(tool(t, "w.read_output", "Read a part of a kept result. The rest of a large answer is a document there.", `{}`))
	c := New(Options{Contracts: rules{}, Texts: text{}, Sources: sources})
	defer c.Close()
	for query, want := range map[string]string{
		"google drive share document": "", "document document drive share": "", "part of a document": "w__read_output",
		"document": "w__read_output", "share a document": "w__read_output", "drive share read": "w__read_output",
		"share quarterly google drive spreadsheet document marketing team calendar invite budget forecast travel hotel": "",
	} {
		if got := names(c.Search(context.Background(), Viewer{}, query, 0)); got != want {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
}

// A very long query is cut: its first words count.
func TestLongQueries(t *testing.T) {
	c := New(Options{Contracts: rules{}, Texts: text{}, Sources: map[string]Source{"s": fixed(tool(t, "s.send", "", `{}`))}})
	defer c.Close()
	for n, want := range map[int]string{maxQueryWords - 1: "s__send", maxQueryWords: ""} {
		if got := names(c.Search(context.Background(), Viewer{}, strings.Repeat("zebra ", n)+"send", 0)); got != want {
			t.Errorf("after %d words: %q, want %q", n, got, want)
		}
	}
	long := strings.Repeat("w ", 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.Search(context.Background(), Viewer{}, long, 0)
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("%d MB are allocated for a query of 2", (after.TotalAlloc-before.TotalAlloc)>>20)
	}
}

// Real definitions, and awkward ones: each is listed under a good name or refused with a reason.
func TestRealTools(t *testing.T) {
	listed, refused := 0, 0
	for file, b := range corpus.Definitions(t) {
		var doc struct {
			Tools []struct {
				Name, Description string
				InputSchema       json.RawMessage
			}
		}
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		server := path.Base(file)
		var tools []call.Tool
		for _, d := range doc.Tools {
			if _, err := strictjson.Parse(d.InputSchema); err != nil {
				t.Logf("%s: %s: %v", server, d.Name, err) // an upstream's frame would have been refused
				continue
			}
			tools = append(tools, tool(t, server+"."+d.Name, d.Description, string(d.InputSchema)))
		}
		c := New(Options{Contracts: rules{}, Texts: text{}, Sources: map[string]Source{server: fixed(tools...)}})
		list := c.List(context.Background(), Viewer{})
		if n := len(list) - 1 + len(c.Problems()); n != len(tools) {
			t.Errorf("%s: %d of %d tools are accounted for", server, n, len(tools))
		}
		if strings.HasPrefix(filepath.Base(filepath.Dir(file)), "live") && len(c.Problems()) > 0 {
			t.Errorf("%s: %v", server, c.Problems())
		}
		for _, e := range list {
			if len(e.Wire) > maxWire || strings.Contains(e.Wire, ".") {
				t.Errorf("%s: %q", server, e.Wire)
			}
		}
		listed, refused = listed+len(list)-1, refused+len(c.Problems())
		c.Close()
	}
	t.Logf("%d definitions listed, %d refused", listed, refused)
	if listed < corpus.Least(t, 45, 800) {
		t.Errorf("only %d definitions were listed", listed)
	}
}

// Every accepted name is a valid wire name, and every other is refused: the list stays valid for any tool names of a
// server.
func FuzzNames(f *testing.F) {
	f.Add("send", "s.x__y")
	f.Add("a.b", "a__b")
	f.Add(strings.Repeat("x", 300), "\x1b[2J")
	f.Fuzz(func(t *testing.T, one, two string) {
		v := parse(t, `{}`)
		c := New(Options{
			Contracts: rules{},
			Texts:     text{},
			Sources: map[string]Source{"s": fixed(
				call.Tool{Capability: call.Capability("s." + one), Input: v},
				call.Tool{Capability: call.Capability("s." + two), Input: v})},
		})
		defer c.Close()
		seen := map[string]bool{}
		for _, e := range c.List(context.Background(), Viewer{}) {
			if seen[e.Wire] || len(e.Wire) > maxWire ||
				strings.Trim(e.Wire, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
				t.Errorf("%q and %q gave %q", one, two, e.Wire)
			}
			seen[e.Wire] = true
		}
	})
}

// The processor time ("busy") of a search is its own; the rest of its time is the machine's, as that of a loop of the
// same length beside it ("spin") is.
func BenchmarkSearch10000(b *testing.B) {
	words := strings.Fields("create list delete update issue ticket message channel user file folder branch " +
		"commit merge query table row column customer order invoice payment account calendar event note page comment label " +
		"search export import")
	var tools []call.Tool
	for i := range 10_000 {
		w := func(n int) string { return words[(i*7+n*13+i/31)%len(words)] }
		tools = append(tools, tool(b, fmt.Sprintf("s.%s_%s_%d", w(1), w(2), i),
			fmt.Sprintf("%s the %s of a %s with the %s", w(1), w(2), w(3), w(4)), `{"properties":{"`+w(5)+`":{},"id":{}}}`))
	}
	c := New(Options{Contracts: rules{}, Texts: text{}, Sources: map[string]Source{"s": fixed(tools...)}})
	defer c.Close()
	c.List(context.Background(), Viewer{})
	search := func() {
		if len(c.Search(context.Background(), Viewer{}, "create issue in the customer table", 10)) != 10 {
			b.Fatal("nothing found")
		}
	}
	search()
	sum := byte(0)
	spin := func() { // as long as a search, and without memory: its tail is the machine's
		for i := range 40_000 {
			sum += byte(i) ^ sum<<1
		}
	}
	b.ReportAllocs()
	runtime.LockOSThread() // for the processor time
	defer runtime.UnlockOSThread()
	var took, busy, spun []time.Duration
	for b.Loop() {
		begin, used := time.Now(), threadTime()
		search()
		busy = append(busy, threadTime()-used)
		took = append(took, time.Since(begin))
		begin = time.Now()
		spin()
		spun = append(spun, time.Since(begin))
	}
	for _, x := range []struct {
		name  string
		times []time.Duration
	}{{"", took}, {"busy-", busy}, {"spin-", spun}} {
		slices.Sort(x.times)
		b.ReportMetric(float64(x.times[len(x.times)/2].Microseconds()), x.name+"p50-µs")
		b.ReportMetric(float64(x.times[len(x.times)*99/100].Microseconds()), x.name+"p99-µs")
	}
}

// A tool has every name that contracts give it, and is found by each. An omitted tool is among the problems under
// those names, for viewers that may use it.
func TestOtherNames(t *testing.T) {
	object := `{"type":"object"}`
	var told []string
	c := New(Options{
		Contracts: rules{
			Seen:    func(cap call.Capability) bool { return cap != "s.b" },
			Allowed: func(cap call.Capability, v Viewer) bool { return v.Principal == "os:0" },
			Named: func(server, tool string) []call.Capability {
				if names, ok := map[string][]call.Capability{
					"a": {"s.a", "notes.say"}, "b": {"s.b", "o.b"}, "c": {}, "d": {"s.d", "notes.d"},
				}[tool]; ok {
					return names
				}
				return []call.Capability{call.Capability(server + "." + tool)}
			},
			Under: func(cap call.Capability) contract.Contract {
				return contract.Contract{Server: map[call.Capability]string{"notes.say": "s", "o.b": "s", "o.x": "nobody"}[cap]}
			}},
		Texts: text{},
		Pins: pins{Holds: func(server string) []Problem {
			if server != "s" {
				return nil
			}
			return []Problem{{Server: "s", Capability: "s.d", Code: "lock.changed"},
				{Server: "s", Capability: "s.b", Code: "lock.new"},
				{Server: "s", Capability: "s.prompts/get", Item: "greet", Code: "lock.new"},
				{Server: "s", Capability: "s.no name", Code: "tool.name"}}
		}, Misses: func(first Problem, n int) { told = append(told, fmt.Sprint(first.Code, n)) }},
		Sources: map[string]Source{
			"s": fixed(tool(t, "s.a", "", object), tool(t, "s.b", "", object), tool(t, "s.c", "", object)), "o": fixed(),
		},
	})
	defer c.Close()
	ctx := context.Background()
	if _, ok := c.Lookup(ctx, "o.x"); ok {
		t.Error("found what nobody has")
	}
	for _, name := range []string{"notes__say", "notes.say", "o.b", "s.a"} {
		if e, ok := c.Lookup(ctx, name); !ok || e.Server != "s" {
			t.Errorf("%s is not found", name)
		}
	}
	if got := names(c.List(ctx, Viewer{Principal: "os:0"})); got != "notes__say o__b s__a search_tools" {
		t.Errorf("the list is %s", got)
	}
	got := ""
	for _, p := range c.Problems() {
		got += fmt.Sprintf("%s%s %s;", p.Capability, p.Item, p.Code)
	}
	if want := "s.d lock.changed;notes.d lock.changed;o.b lock.new;s.prompts/getgreet lock.new;s.no name " +
		"tool.name;"; got != want {
		t.Errorf("left out are %s", got)
	}
	if a, b := c.Why(Viewer{Principal: "os:0"}, "notes.d"),
		c.Why(Viewer{Principal: "os:1"}, "notes.d"); a != "lock.changed" || b != "" {
		t.Errorf("it is told %q, and who may not use it %q", a, b)
	}
	c.Rebuild()
	slices.Sort(told)
	if fmt.Sprint(told) != "[lock.changed2 lock.new2 tool.name1]" {
		t.Errorf("the operator was told %q", told)
	}
}

// Who looks for the tool of a call waits for its server as long as the call may take; a list waits less.
func TestPatience(t *testing.T) {
	for patience, want := range map[time.Duration]bool{0: false, time.Minute: true} {
		ready := make(chan struct{})
		slow := func(ctx context.Context) ([]call.Tool, error) {
			<-ready
			return fixed(tool(t, "s.a", "", `{}`))(ctx)
		}
		c := New(Options{
			Contracts: rules{Under: func(cap call.Capability) contract.Contract {
				return map[call.Capability]contract.Contract{"s.a": {Timeout: patience}}[cap]
			}},
			Texts:   text{},
			Sources: map[string]Source{"s": slow},
			Wait:    time.Millisecond,
		})
		if got := names(c.List(context.Background(), Viewer{})); got != "search_tools" {
			t.Errorf("the list has waited: %s", got)
		}
		if p := c.Problems(); len(p) != 1 || p[0].Code != "server.slow" {
			t.Errorf("while it is asked: %v", p)
		}
		if want {
			time.AfterFunc(300*time.Millisecond, func() { close(ready) })
		}
		if _, ok := c.Lookup(context.Background(), "s__a"); ok != want {
			t.Errorf("with %s of patience it is found: %v", patience, ok)
		}
		if !want {
			close(ready)
		}
		c.Close()
	}
}
