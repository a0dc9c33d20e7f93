package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// DefaultBudget is how many bytes of a result are shown where the contract names no number.
const DefaultBudget = 32 << 10

// BridgeBudget limits a result for code in a sandbox, in bytes: each of text and structured content. It is the longest
// message of a server, so that a program gets whole values.
const BridgeBudget = jsonrpc.MaxFrame

// bridge is the channel of code in a sandbox.
const bridge = "bridge"

// PeerFile begins the address of a file in the answer of an A2A peer.
const PeerFile = "a2a:file/"

// Limits for images, audio and the blobs of resources if the budget is smaller: a model does not read their bytes as
// text. The number of blocks of any kind is limited, too.
const (
	maxBlock  = 1 << 20 // bytes of one
	maxMedia  = 4 << 20 // bytes of all in one answer
	maxBlocks = 1000
	maxFiles  = 16 // of an A2A peer in one answer: each is stored in the workspace
)

// Result returns the outcome as the agent sees it: cleaned, redacted, marked with its trust, and cut to the
// contract's response budget. The budget applies to the content, the structured content and the output in the facts,
// each on its own. The overflow goes to Spill.
func (r *Redactor) Result(d policy.Decision, o call.Outcome) call.Result {
	p := r.show(d)
	seen := map[string]bool{} // the same value can be in the content, the structured content and the facts
	p.hid = func(value string) { seen[value] = true }
	cleaned := 0
	p.cleaned = &cleaned
	b := budget{r: r, d: d, max: d.Contract.ResponseBudget, partial: o.Facts.Truncated.Stdout || o.Facts.Truncated.Stderr}
	short := b.partial
	b.media, b.block, b.blocks, b.peer, b.short = maxMedia, maxBlock, maxBlocks, o.Peer, &short
	if d.Call.Channel == bridge { // code reads this, not the model
		b.max, b.media, b.block, b.blocks = BridgeBudget, BridgeBudget, BridgeBudget, strictjson.MaxValues
	}
	if b.max <= 0 {
		b.max = DefaultBudget
	}
	f := p.facts(o.Facts)
	f.CallID, f.DecisionID = d.Call.ID, d.ID
	f.Status = status(o)
	res := call.Result{CallID: d.Call.ID, DecisionID: d.ID, Status: f.Status, IsError: o.IsError || f.Status != facts.OK,
		Answered: o.Answered, Trust: trust(d, o), Why: slices.Clone(d.Reasons), Suspended: o.Suspended,
		ApprovalID: o.ApprovalID, Undo: p.undo(o.Undo)}
	if no := o.Refused; no != nil { // the contract's reasons were for it
		res.Why = []call.Reason{{Code: no.Code, Text: p.text(no.Text), Cause: p.text(no.Cause),
			RetryAfter: no.RetryAfter}}
	}
	f.Stdout = b.stream("stdout", f.Stdout, b.max, &f.Truncated.Stdout)
	f.Stderr = b.stream("stderr", f.Stderr, max(b.max-len(f.Stdout), b.max/2), &f.Truncated.Stderr)
	res.Facts = f
	res.Content = b.content(p, o.Content)
	if !o.Structured.IsZero() {
		res.Structured = b.structured(p.json(o.Structured.Raw()))
	}
	if f := o.Fault; f != nil {
		res.Fault = &call.Fault{Code: f.Code, Message: b.cut("error.txt", p.text(f.Message), b.max)}
		if !f.Data.IsZero() {
			res.Fault.Data = b.structured(p.json(f.Data.Raw()))
		}
	}
	res.Facts.Masked, res.Facts.Cleaned, res.Cut = len(seen), cleaned, short
	return res
}

// undo returns what would undo a call, for who may see each of its values; else nil. It would not run with masks in it.
func (p *pass) undo(u *call.Undo) *call.Undo {
	if u == nil || !bytes.Equal(p.json(u.Args.Raw()), u.Args.Raw()) {
		return nil
	}
	return u
}

// Aside returns a server's log message or question, redacted for the contract and the session of the decision. It
// returns the zero Value if the message cannot be shown.
func (r *Redactor) Aside(d policy.Decision, v strictjson.Value) strictjson.Value {
	out, err := strictjson.Parse(r.show(d).json(v.Raw()))
	if err != nil {
		return strictjson.Value{}
	}
	return out
}

// status is the facts' status; the tool's own word can only make it worse. Without facts or an answer it is a
// failure.
func status(o call.Outcome) facts.Status {
	s := o.Facts.Status
	switch {
	case s == "" && len(o.Content) == 0 && o.Structured.IsZero():
		return facts.Failed
	case o.IsError && (s == "" || s == facts.OK):
		return facts.Failed
	case s == "":
		return facts.OK
	}
	return s
}

// trust is the outcome's own, unless the contract names another.
func trust(d policy.Decision, o call.Outcome) call.Trust {
	switch d.Contract.Trust {
	case "":
		return o.Trust
	case "trusted":
		return call.Trusted
	case "partial":
		return call.Partial
	}
	return call.Untrusted
}

// facts hides and cleans in every string that a guest or a tool may have written.
func (p *pass) facts(f facts.Facts) facts.Facts {
	f.Stdout, f.Stderr = p.text(f.Stdout), p.text(f.Stderr)
	for _, l := range []*[]string{&f.Network.AllowedHosts, &f.Network.Contacted, &f.Network.Denied,
		&f.Files.Read, &f.Files.Written, &f.Files.Artifacts, &f.Seen, &f.Warnings} {
		*l = p.list(*l)
	}
	attempts := make([]facts.Attempt, 0, len(f.Network.Attempts))
	for _, x := range f.Network.Attempts {
		x.Host = p.text(x.Host)
		attempts = append(attempts, x)
	}
	f.Network.Attempts = attempts
	f.Network.Packages = slices.Clone(f.Network.Packages)
	for i, x := range f.Network.Packages {
		f.Network.Packages[i].Name, f.Network.Packages[i].Version = p.text(x.Name), p.text(x.Version)
	}
	denials := make([]facts.Denial, 0, len(f.Denials))
	for _, x := range f.Denials {
		x.What = p.text(x.What)
		denials = append(denials, x)
	}
	f.Denials = denials
	return f
}

func (p *pass) list(l []string) []string {
	out := make([]string, 0, len(l))
	for _, s := range l {
		out = append(out, p.text(s))
	}
	return out
}

// budget cuts one result.
type budget struct {
	r   *Redactor
	d   policy.Decision
	max int
	// media is for images, audio and blobs together, block for one of them, blocks the number of all pieces.
	media, block, blocks int
	// partial: the output was cut at the limit of its sandbox, before it came here.
	partial bool
	// peer: an A2A peer answered, so that its files are stored.
	peer  bool
	short *bool // set when something of the result is not in it
}

// content redacts and cuts the pieces of an answer. All text shares the budget in the order of the pieces; images,
// audio and files share another (maxMedia). Pieces after a spent budget are omitted and named once, so that at most
// four notices come on top of the budgets.
func (b budget) content(p *pass, in []call.Content) []call.Content {
	out := make([]call.Content, 0, min(len(in), b.blocks))
	left, media := b.max, max(b.max, b.media)
	var rest []json.RawMessage
	files := 0
	for i, c := range in {
		var raw []byte
		if b.peer && isPeerFile(c) && b.d.Call.Channel != bridge { // a program gets the bytes
			if files++; files > maxFiles {
				continue
			}
			c = b.file(p, c)
		}
		shown := c.Type == "text" || c.Raw.IsZero()
		if shown {
			c = call.Content{Type: "text", Text: p.textOrJSON(c.Text)}
		} else {
			raw = p.json(c.Raw.Raw())
		}
		switch {
		case shown && left > 0 && len(out) < b.blocks, shown && len(in) == 1:
			text := b.cut(fmt.Sprintf("content-%d.txt", i+1), c.Text, left)
			left -= min(left, len(text))
			out = append(out, call.Text(text))
		case shown:
			raw, _ = json.Marshal(c.Text) // text always encodes
			rest = append(rest, raw)
		case !isMedia(c) && len(raw) > left && left > 0 && resourceText(raw) != "" && len(out) < b.blocks:
			// as text, up to the limit
			text := b.cut(fmt.Sprintf("content-%d.txt", i+1), resourceText(raw), left)
			left -= min(left, len(text))
			out = append(out, call.Text(text))
		case len(out) >= b.blocks, isMedia(c) && len(raw) > media, !isMedia(c) && len(raw) > left:
			rest = append(rest, raw)
		default:
			if isMedia(c) {
				media -= len(raw)
			} else {
				left -= len(raw)
			}
			out = append(out, b.shown(p, c, raw, i))
		}
	}
	if len(rest) > 0 {
		all, _ := json.Marshal(rest) // each is JSON
		out = append(out,
			call.Text(fmt.Sprintf("[%d more pieces of %d bytes not shown: the budget is spent. %s]", len(rest), len(all),
				b.spill("content-rest.json", all))))
	}
	if files > maxFiles {
		out = append(out, call.Text(fmt.Sprintf("[files not stored: %d. A result stores at most %d.]",
			files-maxFiles, maxFiles)))
	}
	return out
}

func isPeerFile(c call.Content) bool {
	uri, _ := c.Raw.Member("resource").Member("uri").Text()
	return c.Type == "resource" && strings.HasPrefix(uri, PeerFile)
}

// file stores a file of an A2A peer in the workspace, a text redacted, and returns where it is. Other content is returned
// as it is.
func (b budget) file(p *pass, c call.Content) call.Content {
	var v struct {
		Resource struct {
			URI  string  `json:"uri"`
			Kind string  `json:"mimeType"`
			Blob *string `json:"blob"`
		} `json:"resource"`
	}
	if c.Raw.Decode(&v) != nil || v.Resource.Blob == nil {
		return c
	}
	data, err := base64.StdEncoding.DecodeString(*v.Resource.Blob)
	if err != nil {
		return call.Text("[a file that is not base64 was left out]")
	}
	if utf8.Valid(data) {
		data = []byte(p.text(string(data)))
	}
	name, err := url.PathUnescape(strings.TrimPrefix(v.Resource.URI, PeerFile))
	if err != nil {
		name = "file"
	}
	return call.Text(fmt.Sprintf("[the file %.100q, %.100s, %d bytes. %s]", name, v.Resource.Kind, len(data), b.spill(name, data)))
}

// isMedia reports whether a content block holds bytes that no model reads as text: an image, audio, or the blob of a
// resource without text.
func isMedia(c call.Content) bool {
	if c.Type != "resource" {
		return c.Type == "image" || c.Type == "audio"
	}
	var v struct {
		Resource struct {
			Text *string `json:"text"`
			Blob *string `json:"blob"`
		} `json:"resource"`
	}
	return c.Raw.Decode(&v) == nil && v.Resource.Text == nil && v.Resource.Blob != nil
}

// resourceText is the text of an embedded resource, after its address; "": it has none.
func resourceText(raw []byte) string {
	var v struct {
		Resource struct{ URI, Text string } `json:"resource"`
	}
	if json.Unmarshal(raw, &v) != nil || v.Resource.Text == "" {
		return ""
	}
	return v.Resource.URI + "\n" + v.Resource.Text
}

// shown returns an MCP content block whose strings were looked at, and spills one that is too large.
func (b budget) shown(p *pass, c call.Content, raw []byte, i int) call.Content {
	if len(raw) > max(b.max, b.block) {
		return call.Text(fmt.Sprintf("[%s of %d bytes not shown: more than %d. %s]", p.text(c.Type), len(raw),
			max(b.max, b.block), b.spill(fmt.Sprintf("content-%d.json", i+1), raw)))
	}
	v, err := strictjson.Parse(raw)
	if err != nil {
		return call.Text("[a content block was withheld]")
	}
	return call.Content{Type: c.Type, Raw: v}
}

// textOrJSON redacts a text, by its members where it is a JSON object or array.
func (p *pass) textOrJSON(s string) string {
	if len(s) > 1 && (s[0] == '{' || s[0] == '[') {
		if all, err := leaves([]byte(s)); err == nil {
			if out, ok := p.members([]byte(s), all); ok {
				return string(out)
			}
		}
	}
	return p.text(s)
}

// structured returns the value, or where it is larger than the budget a summary in its place.
func (b budget) structured(raw []byte) strictjson.Value {
	if len(raw) > b.max {
		note := map[string]any{
			"truncated": true, "bytes": len(raw), "budget_bytes": b.max, "rest": b.spill("structured.json", raw),
		}
		raw, _ = json.Marshal(note) // strings and numbers encode
	}
	v, err := strictjson.Parse(raw)
	if err != nil {
		v, _ = strictjson.Parse([]byte(withheld))
	}
	return v
}

// stream cuts stdout or stderr and notes it.
func (b budget) stream(name, s string, most int, cut *bool) string {
	if len(s) > most {
		*cut = true
	}
	return b.cut(name+".txt", s, most)
}

// cut returns at most most bytes of text, of whole characters, and says in their place where the
// rest is. The words it adds come on top.
func (b budget) cut(name, s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + fmt.Sprintf("\n[cut: %d of %d bytes shown. %s]", most, len(s), b.spill(name, []byte(s)))
}

// spill stores data in the workspace and returns its path.
func (b budget) spill(name string, data []byte) string {
	*b.short = true
	if b.r.Spill == nil {
		return "The rest was not kept."
	}
	path, err := b.r.Spill(b.d.Call.Session, b.d.Call.ID+"-"+name, data)
	if err != nil {
		return "The rest could not be kept."
	}
	all := "All of it is in "
	if b.partial {
		all = "The output reached the limit of its sandbox, and the rest was not stored; the part before it is in "
	}
	return all + Clean(path) + ". Read it with read_output, or in code as /workspace/" + Clean(path) + "."
}
