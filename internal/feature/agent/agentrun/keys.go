package agentrun

import (
	"context"
	"slices"
	"strings"

	"waldo/internal/core/redact"
	"waldo/internal/feature/agent/chat"
	"waldo/internal/feature/agent/provider"
	"waldo/internal/protocol/strictjson"
)

// guarded is a chain whose answers hold no key of a provider. A provider knows its key and can send it back.
type guarded struct {
	chain *provider.Chain
	keys  *redact.Registry // the keys that were sent
}

// Next returns an answer with its keys hidden. A call that held one has a Fault.
func (g *guarded) Next(ctx context.Context, r chat.Request, w chat.Watch) (chat.Reply, error) {
	reply, err := g.chain.Next(ctx, r, w)
	if err != nil {
		return reply, err
	}
	reply.Blocks = slices.Clone(reply.Blocks)
	var words strings.Builder
	for _, b := range reply.Blocks {
		if b.Call == nil {
			words.WriteString(b.Text)
			continue
		}
		if g.holds(b.Call.Tool) || g.holds(b.Call.Fault) || g.within(b.Call.Input) {
			*b.Call = chat.Call{ID: b.Call.ID, Tool: g.hide(b.Call.Tool), Input: []byte("{}"),
				Fault: "it held the key of a provider. Ask for it again without the key."}
		}
	}
	if g.holds(words.String()) {
		reply.Blocks = slices.DeleteFunc(reply.Blocks, func(b chat.Block) bool { return b.Call == nil })
		first := chat.Block{Text: g.hide(words.String())} // a key can be split over two texts
		reply.Blocks = slices.Insert(reply.Blocks, 0, first)
	}
	return reply, nil
}

func (g *guarded) hide(text string) string { return g.keys.Text(redact.Clean(text)) }

// holds reports whether a text has a key in any spelling that redact finds, also between invisible characters.
func (g *guarded) holds(text string) bool {
	clean := redact.Clean(text)
	return g.keys.Text(clean) != clean
}

// within reports whether JSON has a key: in its text, or in a decoded name or string.
func (g *guarded) within(raw []byte) bool {
	v, err := strictjson.Parse(raw)
	return err != nil || g.holds(string(raw)) || g.decoded(v)
}

func (g *guarded) decoded(v strictjson.Value) bool {
	if text, ok := v.Text(); ok {
		return g.holds(text)
	}
	if members, ok := v.Members(); ok {
		for name, member := range members {
			if g.holds(name) || g.decoded(member) {
				return true
			}
		}
	}
	all, _ := v.Elements()
	return slices.ContainsFunc(all, g.decoded)
}
