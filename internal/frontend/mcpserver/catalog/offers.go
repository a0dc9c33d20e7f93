package catalog

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"net/url"
	"slices"
	"sort"
	"strings"

	"waldo/internal/model/call"
	"waldo/internal/protocol/strictjson"
)

// OfferSource lists what one upstream offers beside its tools.
type OfferSource func(ctx context.Context) (Offer, error)

// Offer holds a server's prompts, resources and resource templates, each exactly as the server sent it.
type Offer struct{ Prompts, Resources, Templates []strictjson.Value }

// Suffixes of the capabilities of prompts and resources: the server's name, a dot and one of these. No tool can have
// such a name, because of the '/'.
const (
	ReadResource = "resources/read"
	Subscribe    = "resources/subscribe"
	GetPrompt    = "prompts/get"
	Complete     = "completion/complete"
)

// A server's prompt or resource method has the capability that Of returns, as in files.resources/read.
func Of(server, method string) call.Capability { return call.Capability(server + "." + method) }

// Item is a prompt, a resource or a template of resources, as it is shown.
type Item struct {
	Server string
	Name   string // the server's own: of a prompt its name, of a resource its URI
	Wire   string // as shown
	key    string // the member that holds it
	shown  map[string]any
	digest string
}

// Show returns the form of an item that hosts see.
func (i *Item) Show() map[string]any {
	m := maps.Clone(i.shown)
	m[i.key] = i.Wire
	return m
}

// shown holds the visible prompts, resources and templates, each sorted by its displayed key.
type shown struct{ prompts, resources, templates []*Item }

// Offered reports whether a contract speaks of the prompts, or of the resources, of any server.
func (c *Catalogue) Offered() (prompts, resources bool) {
	for server := range c.o.Offers {
		prompts = prompts || c.Visible(Of(server, GetPrompt))
		resources = resources || c.Visible(Of(server, ReadResource))
	}
	return prompts, resources || c.Visible(ReadOutput)
}

// Prompt returns the visible prompt of a name as it is shown. As Lookup does, it finds what a viewer may not use.
func (c *Catalogue) Prompt(ctx context.Context, name string) (*Item, bool) {
	c.offers.load(ctx)
	c.mu.RLock()
	list := c.shown.prompts
	c.mu.RUnlock()
	i := sort.Search(len(list), func(i int) bool { return list[i].Wire >= name })
	if i < len(list) && list[i].Wire == name {
		return list[i], true
	}
	return nil, false
}

// offers rebuilds the lists. It omits an entry that no contract covers.
func (b *builder) offers(fs *sourceLoaders[Offer]) shown {
	var out shown
	byWire := map[string][]*Item{}
	for _, server := range slices.Sorted(maps.Keys(fs.by)) {
		var silent []Problem
		o := fs.by[server].get(&silent)
		if !slices.ContainsFunc(b.problems, func(p Problem) bool { return p.Server == server && p.Code == Unavailable }) {
			b.problems = append(b.problems, silent...) // otherwise it was told of already
		}
		if b.visible(Of(server, GetPrompt)) {
			for _, i := range b.items(server, "prompt", "name", o.Prompts) {
				if i.Wire = server + "__" + i.Name; server == b.o.Plain {
					i.Wire = i.Name
				}
				byWire[i.Wire] = append(byWire[i.Wire], i)
			}
		}
		if b.visible(Of(server, ReadResource)) {
			out.resources = append(out.resources, b.uris(server, "resource", "uri", o.Resources)...)
			out.templates = append(out.templates, b.uris(server, "template", "uriTemplate", o.Templates)...)
		}
	}
	for name, list := range byWire {
		for _, i := range list {
			if len(list) > 1 { // as with tools: none takes over another's name
				i.Wire = shorten(name, call.Capability(i.Server+"."+i.Name))
			}
			out.prompts = append(out.prompts, i)
		}
	}
	for _, list := range [][]*Item{out.prompts, out.resources, out.templates} {
		sort.Slice(list, func(i, j int) bool { return list[i].Wire < list[j].Wire })
	}
	return out
}

func (b *builder) visible(c call.Capability) bool { return b.o.Contracts.Visible(c) }

func (b *builder) uris(server, kind, key string, list []strictjson.Value) []*Item {
	items := b.items(server, kind, key, list)
	for _, i := range items {
		i.Wire = outer(b.o.Plain, server, i.Name)
	}
	return items
}

// maxName is how many bytes the name of a prompt or a URI may have.
const maxName = 2000

// items reads a list. It leaves out an entry without a name, with a name that is not plain text, or with a duplicate
// name, and records the reason.
func (b *builder) items(server, kind, key string, list []strictjson.Value) []*Item {
	var out []*Item
	seen, capability := map[string]bool{}, Of(server, ReadResource)
	if kind == "prompt" {
		capability = Of(server, GetPrompt)
	}
	for _, v := range list {
		m, _ := v.Members()
		name, _ := m[key].Text()
		why := ""
		switch {
		case name == "" || len(name) > maxName || b.o.Texts.Clean(name) != name ||
			strings.ContainsAny(name, "\n\r\t"):
			why = "the " + key + " cannot be shown"
		case key != "name" && !isURI(name):
			why = "the " + key + " is not a URI"
		case seen[name]:
			why = "the " + key + " is there twice"
		}
		if why != "" {
			b.problems = append(b.problems, Problem{
				Server: server, Capability: capability, Item: cmp.Or(name, "(no name)"), Code: kind + ".name", Text: why,
			})
			continue
		}
		seen[name] = true
		shown, err := b.plainText(v)
		if err != nil {
			continue // wire.Parse has read it before: it is an object
		}
		out = append(out, &Item{Server: server, Name: name, key: key, shown: shown, digest: v.Digest()})
	}
	return out
}

// isURI reports whether s begins with a scheme and holds no space. A template may hold braces.
func isURI(s string) bool {
	if strings.ContainsAny(s, " \"<>\\^`") {
		return false
	}
	scheme, _, ok := strings.Cut(s, ":")
	u, err := url.Parse(scheme + ":x")
	return ok && err == nil && u.Scheme != ""
}

// plainText cleans all text of a definition and leaves out what a host might run or fetch: _meta,
// where extensions put their hooks, and icons.
func (b *builder) plainText(v strictjson.Value) (map[string]any, error) {
	var x map[string]any
	if err := decodeNumbers(v, &x); err != nil {
		return nil, err
	}
	delete(x, "_meta")
	delete(x, "icons")
	b.cleanAll(x)
	return x, nil
}

func (b *builder) cleanAll(x any) any {
	switch x := x.(type) {
	case string:
		return b.clean(x)
	case map[string]any:
		for k, v := range x {
			x[k] = b.cleanAll(v)
		}
	case []any:
		for i := range x {
			x[i] = b.cleanAll(x[i])
		}
	}
	return x
}

func sameItems(a, b []*Item) bool {
	return slices.EqualFunc(a, b, func(x, y *Item) bool { return x.Wire == y.Wire && x.digest == y.digest })
}

func sameOffer(a, b Offer) bool {
	same := func(x, y []strictjson.Value) bool {
		return slices.EqualFunc(x, y, func(v, w strictjson.Value) bool { return bytes.Equal(v.Raw(), w.Raw()) })
	}
	return same(a.Prompts, b.Prompts) && same(a.Resources, b.Resources) && same(a.Templates, b.Templates)
}
