package a2a

import (
	"context"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	run "waldo/internal/executor/runner"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
)

// Limits on the files that the artifact of one call holds. Others stay links, which a client can show and not follow.
const (
	maxFiles     = 8
	maxFileBytes = maxTask / 8 // of all together
)

// embed puts the files of the session's workspace that a result links to into it, where a contract exposes read_output:
// each is read by a call of it, which the log has. A file that cannot be read, or has no room, stays a link.
func (r *runner) embed(ctx context.Context, c call.Call, result call.Result) (call.Result, error) {
	if !r.kernel.Exposed(run.ReadOutput, false) {
		return result, nil
	}
	files, room := maxFiles, maxFileBytes
	result.Content = slices.Clone(result.Content)
	for i, of := range result.Content {
		name, mine := ownFile(of)
		if !mine || files == 0 || room == 0 {
			continue
		}
		args, err := call.ArgsOf(map[string]any{"name": name, "limit": room})
		if err != nil {
			continue // a name that is no text
		}
		files--
		got, err := r.kernel.Call(ctx, call.Call{ID: id.New(id.Call), Capability: run.ReadOutput, Args: args,
			Session: c.Session, Principal: c.Principal, Channel: c.Channel, Chain: c.Chain, Trace: c.Trace})
		if err != nil {
			return result, err
		}
		if got.Status != facts.OK || len(got.Content) != 1 { // more: a part of the file, and where it goes on
			continue
		}
		b := bytesOf(got.Content[0])
		member := func(name string) string { s, _ := of.Raw.Member(name).Text(); return s }
		v, err := call.ArgsOf(map[string]any{"type": "resource", "resource": map[string]any{"uri": member("uri"),
			"mimeType": member("mimeType"), "blob": base64.StdEncoding.EncodeToString(b)}})
		if err != nil {
			return result, err
		}
		room = max(room-len(b), 0) // what is redacted can be longer
		result.Content[i] = call.Content{Type: "resource", Raw: v.Value()}
	}
	return result, nil
}

// ownFile returns the name of the file of the session's workspace that a content links to.
func ownFile(of call.Content) (name string, ok bool) {
	if of.Type != "resource_link" {
		return "", false
	}
	uri, _ := of.Raw.Member("uri").Text()
	rest, ok := strings.CutPrefix(uri, run.FileURI)
	name, err := url.PathUnescape(rest)
	return name, ok && err == nil && name != ""
}

// bytesOf is the file that read_output answered with.
func bytesOf(of call.Content) []byte {
	text := ""
	switch of.Type {
	case "text":
		return []byte(of.Text)
	case "image":
		text, _ = of.Raw.Member("data").Text()
	case "resource":
		text, _ = of.Raw.Member("resource").Member("blob").Text()
	}
	b, _ := base64.StdEncoding.DecodeString(text) // waldo's own
	return b
}
