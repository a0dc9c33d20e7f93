package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/protocol/strictjson"
)

func offer(t testing.TB, prompts, resources, templates string) OfferSource {
	t.Helper()
	list := func(s string) []strictjson.Value { e, _ := parse(t, "["+s+"]").Elements(); return e }
	o := Offer{list(prompts), list(resources), list(templates)}
	return func(context.Context) (Offer, error) { return o, nil }
}

func wires(items []*Item) string {
	var out []string
	for _, i := range items {
		out = append(out, i.Wire)
	}
	return strings.Join(out, " ")
}

func TestOffersOfServersAreKeptApart(t *testing.T) {
	mark := func(s string) string { return strings.ReplaceAll(s, "\u202e", "") }
	offers := map[string]OfferSource{
		"a": offer(t, `{"name":"greet"},{"name":"_x"},{"name":"greet"},{"name":"e\u202ev"},{"name":""},{}`,
			`{"uri":"file:///x","name":"X"},{"uri":"no uri"},{"uri":"waldo://b/file:///x"},{"uri":"a b:c"}`,
			`{"uriTemplate":"file:///{path}"}`),
		"a_": offer(t, `{"name":"x"}`, ``, ``),
		"b": offer(t, `{"name":"greet","description":"say\u202e it","_meta":{"ui":1},"icons":[{"src":"http://x"}],`+
			`"future":{"n":12345678901234567890}}`,
			`{"uri":"file:///x","name":"X"}`, ``),
	}
	for _, row := range []struct {
		why, plain                    string
		prompts, resources, templates string
	}{
		{"the server's name stands before all", "", "a___x_#1 a___x_#2 a__greet b__greet",
			"waldo://a/file:///x waldo://a/waldo://b/file:///x waldo://b/file:///x", "waldo://a/file:///{path}"},
		{"one server's own names stand as they are, but for those that look like waldo's", "a", "_x a___x b__greet greet",
			"file:///x waldo://a/waldo://b/file:///x waldo://b/file:///x", "file:///{path}"},
	} {
		t.Run(row.why, func(t *testing.T) {
			c := New(Options{Contracts: rules{}, Texts: text{Cleaner: mark}, Offers: offers, Plain: row.plain})
			defer c.Close()
			ctx := context.Background()
			prompts := wires(c.Prompts(ctx, Viewer{}))
			for i, n := range []string{"a._x", "a_.x"} {
				prompts = strings.ReplaceAll(prompts, shorten("a___x", call.Capability(n)), "a___x_#"+string(rune('2'-i)))
			}
			if prompts != row.prompts || wires(c.Resources(ctx, Viewer{})) != row.resources ||
				wires(c.Templates(ctx, Viewer{})) != row.templates {
				t.Errorf("got\n%s\n%s\n%s", prompts, wires(c.Resources(ctx, Viewer{})), wires(c.Templates(ctx, Viewer{})))
			}
			var problems []string
			for _, p := range c.Problems() {
				problems = append(problems, fmt.Sprintf("%s %+q %s", p.Capability, p.Item, p.Code))
			}
			if got := strings.Join(problems, "\n"); got != strings.Join([]string{
				`a.prompts/get "greet" prompt.name`, `a.prompts/get "e\u202ev" prompt.name`,
				`a.prompts/get "(no name)" prompt.name`, `a.prompts/get "(no name)" prompt.name`,
				`a.resources/read "no uri" resource.name`, `a.resources/read "a b:c" resource.name`}, "\n") {
				t.Errorf("problems:\n%s", got)
			}
			for _, i := range append(c.Resources(ctx, Viewer{}), c.Templates(ctx, Viewer{})...) {
				if server, uri, ok := c.Inner(i.Wire); !ok || server != i.Server || uri != i.Name {
					t.Errorf("%s is taken for %q of %q", i.Wire, uri, server)
				}
			}
			i, ok := c.Prompt(ctx, "b__greet")
			if !ok || i.Server != "b" || i.Name != "greet" {
				t.Fatalf("b__greet: %+v", i)
			}
			if b, _ := json.Marshal(i.Show()); string(b) != `{"description":"say it","future":{"n":12345678901234567890},`+
				`"name":"b__greet"}` {
				t.Errorf("shown as %s", b)
			}
		})
	}
}

func TestOffersAreHiddenWithoutAContract(t *testing.T) {
	offers := map[string]OfferSource{"a": offer(t, `{"name":"p"}`, `{"uri":"x:y"}`, `{"uriTemplate":"x:{y}"}`)}
	for allowed, want := range map[string]string{
		"a.prompts/get": "a__p||", "a.resources/read": "|waldo://a/x:y|waldo://a/x:{y}", "a.tool": "||",
	} {
		c := New(Options{Contracts: rules{Seen: func(c call.Capability) bool { return string(c) == allowed }},
			Texts: text{}, Offers: offers})
		ctx := context.Background()
		if got := wires(c.Prompts(ctx, Viewer{})) + "|" + wires(c.Resources(ctx, Viewer{})) + "|" +
			wires(c.Templates(ctx, Viewer{})); got != want {
			t.Errorf("with %s: %s", allowed, got)
		}
		c.Close()
	}
}

// The tools of a plain server keep their names, unless those look like another server's or waldo's own.
func TestPlainNames(t *testing.T) {
	o := `{"type":"object"}`
	c := New(Options{
		Contracts: rules{},
		Texts:     text{},
		Builtins:  Builtins(),
		Plain:     "a",
		Sources: map[string]Source{
			"a": fixed(tool(t, "a.read", "", o), tool(t, "a.b__send", "", o), tool(t, "a.run_shell", "", o),
				tool(t, "a.search_tools", "", o), tool(t, "a.call_tool", "", o)),
			"b": fixed(tool(t, "b.send", "", o)),
		},
	})
	defer c.Close()
	want := "a__b__send a__call_tool a__run_shell a__search_tools b__send read read_output run_code " +
		"run_javascript run_python run_shell run_typescript search_tools"
	if got := names(c.List(context.Background(), Viewer{})); got != want {
		t.Errorf("got %s", got)
	}
	for name, capability := range map[string]call.Capability{
		"read": "a.read", "run_shell": "run_shell", "b__send": "b.send",
	} {
		if e, ok := c.Lookup(context.Background(), name); !ok || e.Capability != capability {
			t.Errorf("%s: %v", name, e)
		}
	}
}

// A URI that is shown belongs to one server and one URI of its own, and the other way round.
func FuzzURIs(f *testing.F) {
	f.Add("", "files", "file:///etc/passwd")
	f.Add("files", "files", "waldo://mail/inbox")
	f.Add("files", "mail", "waldo://files/waldo://mail/x")
	f.Add("x", "waldo:", "//")
	f.Fuzz(func(t *testing.T, plain, server, uri string) {
		if server != "" && !strings.Contains(server, "/") && uri != "" {
			shown := outer(plain, server, uri)
			if s, u, ok := inner(plain, shown); !ok || s != server || u != uri {
				t.Fatalf("%q of %q is shown as %q, which is %q of %q", uri, server, shown, u, s)
			}
		}
		if s, u, ok := inner(plain, uri); ok && outer(plain, s, u) != uri {
			t.Fatalf("%q is %q of %q, which is shown as %q", uri, u, s, outer(plain, s, u))
		}
	})
}

// A server that does not answer is reported once. A server that lists only its tools is not reported.
func TestOffersThatAreMissing(t *testing.T) {
	no := errors.New("no")
	bad := func(context.Context) (Offer, error) { return Offer{}, no }
	never := func(ctx context.Context) (Offer, error) { <-ctx.Done(); return Offer{}, ctx.Err() }
	c := New(Options{
		Contracts: rules{},
		Texts:     text{},
		Wait:      50 * time.Millisecond,
		Offers:    map[string]OfferSource{"down": bad, "half": bad, "slow": never},
		Sources: map[string]Source{
			"down": func(context.Context) ([]call.Tool, error) { return nil, no }, "half": fixed(), "slow": fixed(),
		},
	})
	defer c.Close()
	c.List(t.Context(), Viewer{})
	c.Prompts(t.Context(), Viewer{})
	var got []string
	for _, p := range c.Problems() {
		got = append(got, p.Server+" "+p.Code)
	}
	if strings.Join(got, ", ") != "down server.unavailable, half offers.unavailable, slow offers.slow" {
		t.Errorf("got %v", got)
	}
}

// Hidden text is removed from a prompt, a resource and a template, at any depth.
func TestOffersAreCleaned(t *testing.T) {
	clean := strings.NewReplacer("\u202e", "", "\u200b", "", "\U000e0041", "", "\x1b[2J", "").Replace
	evil := `"name":"p","uri":"x:y","uriTemplate":"x:{y}","description":"say\u202e it\u200b","title":"\u001b[2Jt",` +
		`"arguments":[{"name":"a","description":"\udb40\udc41b"}]`
	for name, want := range map[string]func(string) string{
		"control": func(s string) string { return s }, "cleaned": clean,
	} {
		c := New(Options{
			Contracts: rules{},
			Texts:     text{Cleaner: want},
			Offers:    map[string]OfferSource{"s": offer(t, "{"+evil+"}", "{"+evil+"}", "{"+evil+"}")},
		})
		defer c.Close()
		for _, list := range [][]*Item{
			c.Prompts(t.Context(), Viewer{}), c.Resources(t.Context(), Viewer{}), c.Templates(t.Context(), Viewer{}),
		} {
			b, err := json.Marshal(list[0].Show())
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			hidden := strings.ContainsAny(string(b), "\u202e\u200b\U000e0041") || strings.Contains(string(b), `\u001b`)
			if hidden != (name == "control") || !strings.Contains(string(b), "say") {
				t.Errorf("%s: %q", name, b)
			}
		}
	}
}
