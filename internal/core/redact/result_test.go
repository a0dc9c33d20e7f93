package redact

import (
	"bytes"
	"strings"
	"testing"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/secret"
	"waldo/internal/protocol/strictjson"
)

// If an executor refuses a call that the contract allows, the result has the executor's reason, without secrets.
func TestWorkersReason(t *testing.T) {
	known := &Registry{}
	if err := known.Add("token", secret.NewValue("hunter2-canary-value")); err != nil {
		t.Fatal(err)
	}
	r := &Redactor{Known: known}
	d := policy.Decision{Effect: policy.Allow, Reasons: []call.Reason{{Code: "approval.none"}}}
	o := call.Outcome{Facts: facts.New(), IsError: true}
	o.Facts.Status = facts.Denied
	if res := r.Result(d, o); len(res.Why) != 1 || res.Why[0].Code != "approval.none" {
		t.Errorf("control: %+v", res.Why)
	}
	o.Refused = &call.Reason{Code: "program.denied", Text: "no program hunter2-canary-value", RetryAfter: 5}
	res := r.Result(d, o)
	if len(res.Why) != 1 || res.Why[0].Code != "program.denied" || res.Why[0].RetryAfter != 5 ||
		strings.Contains(res.Why[0].Text, "hunter2") ||
		res.Status != facts.Denied {
		t.Errorf("%+v", res)
	}
}

// All text shares one budget, regardless of the kind of block; media share another; and the notices do not grow with
// the pieces.
func TestWholeAnswer(t *testing.T) {
	block := func(text string) call.Content {
		v, err := strictjson.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		kind, _ := v.Member("type").Text()
		return call.Content{Type: kind, Raw: v}
	}
	long := strings.Repeat("a", 900)
	resource := block(`{"type":"resource","resource":{"uri":"x:1","text":"` + long + `"}}`)
	link := block(`{"type":"resource_link","uri":"x:1","name":"a","description":"` + long + `"}`)
	image := block(`{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("aaaa", 200_000) + `"}`)
	blob := block(`{"type":"resource","resource":{"uri":"x:1","blob":"` + strings.Repeat("aaaa", 200_000) + `"}}`)
	for name, row := range map[string]struct {
		one   call.Content
		most  int // bytes of all
		alone bool
	}{
		"texts": {call.Text(long), 2000 + 600, true}, "resources": {resource, 2000 + 600 + 60, true},
		"links":  {link, 2000 + 600, true},
		"images": {image, maxMedia + 600, true}, "blobs": {blob, maxMedia + 600, true},
		"empty texts": {call.Text(""), maxBlocks*40 + 600, true},
	} {
		r := New(contract.Redaction{}, &Registry{}, nil)
		d := policy.Decision{Contract: contract.Contract{ResponseBudget: 2000}}
		size := func(n int) (total int) {
			var in []call.Content
			for range n {
				in = append(in, row.one)
			}
			for _, c := range r.Result(d, call.Outcome{Content: in}).Content {
				total += 30 + len(c.Text) + len(c.Raw.Raw())
			}
			return total
		}
		if alone := size(1); alone < len(row.one.Text)+len(row.one.Raw.Raw()) {
			t.Errorf("%s: the control: one is not shown: %d bytes", name, alone)
		}
		n := 3000
		if row.most > maxMedia {
			n = 8 // of 800 KB
		}
		if all := size(n); all > row.most {
			t.Errorf("%s: %d of them are %d bytes, at most %d", name, n, all, row.most)
		}
	}
}

// TestPeerFiles: of the files of a peer, 16 of one result are stored. Those of a server are not, nor those for a program.
func TestPeerFiles(t *testing.T) {
	v, err := strictjson.Parse([]byte(`{"type":"resource","resource":{"uri":"` + PeerFile + `x.csv","mimeType":"text/csv","blob":"YQ=="}}`))
	if err != nil {
		t.Fatal(err)
	}
	for why, row := range map[string]struct {
		peer           bool
		channel        string
		files          int
		stored, pieces int
		last           string
	}{
		"control: 16":          {true, "", 16, 16, 16, "in spill/x.csv."},
		"17":                   {true, "", 17, 16, 17, "[files not stored: 1. A result stores at most 16.]"},
		"500":                  {true, "", 500, 16, 17, "[files not stored: 484. A result stores at most 16.]"},
		"a server, not a peer": {false, "", 500, 0, 500, ""},
		"for a program":        {true, bridge, 500, 0, 500, ""},
	} {
		r := New(contract.Redaction{}, &Registry{}, nil)
		stored := 0
		r.Spill = func(call.Session, string, []byte) (string, error) { stored++; return "spill/x.csv", nil }
		in := []call.Content{}
		for range row.files {
			in = append(in, call.Content{Type: "resource", Raw: v})
		}
		out := r.Result(policy.Decision{Call: call.Call{Channel: row.channel}}, call.Outcome{Content: in, Peer: row.peer}).Content
		if stored != row.stored || len(out) != row.pieces || !strings.Contains(out[len(out)-1].Text, row.last) ||
			row.last == "" && out[0].Type != "resource" {
			t.Errorf("%s: %d stored, %d pieces, the last %+v", why, stored, len(out), out[len(out)-1])
		}
	}
}

// TestCut: a result says whether something of it is missing.
func TestCut(t *testing.T) {
	for n, want := range map[int]bool{DefaultBudget: false, DefaultBudget + 1: true} {
		r := New(contract.Redaction{}, &Registry{}, nil)
		o := call.Outcome{Content: []call.Content{call.Text(strings.Repeat("x", n))}}
		if got := r.Result(policy.Decision{}, o).Cut; got != want {
			t.Errorf("%d bytes: %t", n, got)
		}
	}
}

// TestSpillOfAPart: output that its sandbox has cut is not called whole.
func TestSpillOfAPart(t *testing.T) {
	r := New(contract.Redaction{}, &Registry{}, nil)
	r.Spill = func(call.Session, string, []byte) (string, error) { return "spill/x.txt", nil }
	for _, cut := range []bool{false, true} {
		d := policy.Decision{Contract: contract.Contract{ResponseBudget: 4}}
		o := call.Outcome{Content: []call.Content{call.Text("too long")}, Facts: facts.New()}
		o.Facts.Status, o.Facts.Truncated.Stdout = facts.OK, cut
		got := r.Result(d, o).Content[0].Text
		if strings.Contains(got, "All of it is in spill/x.txt") == cut ||
			!strings.Contains(got, "spill/x.txt") {
			t.Errorf("cut %t: %q", cut, got)
		}
	}
}

// TestCharacters: code gets the characters of a result as they are, whole. A model gets it without those that do not
// show, and the facts count the changed texts. Line ends stay.
func TestCharacters(t *testing.T) {
	odd := "a\r\nb\u200fc\u00add\x00e \U0001f3f4\U000e0067\U000e007f"
	r, d, _ := desk(t)
	d.Call.Channel, d.Contract.ResponseBudget = "mcp", 1<<20
	o := call.Outcome{Facts: facts.New(), Content: []call.Content{call.Text(odd)}}
	o.Facts.Status = facts.OK
	res := r.Result(d, o)
	if got := res.Content[0].Text; got != "a\r\nbcde \U0001f3f4" || res.Facts.Cleaned != 1 {
		t.Errorf("for a model: %q, %d cleaned", got, res.Facts.Cleaned)
	}
	// Hosts show the structured content to the model in place of the content. It holds the same characters then.
	shape := `{"\u202ek\u200f":["a\r\nb\u200fc\u001b[2J\u001b]0;x\u0007d\u0000e",{"n":9007199254740993,"ok":"\u00e9\u2028"}]}`
	o.Structured = value(t, shape)
	res = r.Result(d, o)
	if got := string(res.Structured.Raw()); got != `{"k":["a\r\nbcde",{"n":9007199254740993,"ok":"é\n"}]}` ||
		res.Facts.Cleaned != 4 {
		t.Errorf("the structure, for a model: %s, %d cleaned", got, res.Facts.Cleaned)
	}
	d.Call.Channel = bridge
	if res = r.Result(d, o); !bytes.Equal(res.Structured.Canonical(), o.Structured.Canonical()) || res.Facts.Cleaned != 0 {
		t.Errorf("the structure, for code: %s, %d cleaned", res.Structured.Raw(), res.Facts.Cleaned)
	}
	rows := "[" + strings.Repeat(`{"id":1,"name":"a row of sixty-six bytes","value":"0123456789"},`, 100_000) + "{}]"
	o.Content = []call.Content{call.Text(odd), call.Text(rows)}
	o.Structured = value(t, `{"result":[`+strings.Repeat("\"0123456789012345678901234567890123456789\",", 100_000)+`1]}`)
	d.Call.Channel, d.Contract.ResponseBudget = bridge, 1000
	res = r.Result(d, o)
	if got := res.Content; len(got) != 2 || got[0].Text != odd || got[1].Text != rows || res.Facts.Cleaned != 0 ||
		len(res.Structured.Raw()) != len(o.Structured.Raw()) {
		t.Errorf("for code: %d pieces, %d bytes", len(got), len(res.Structured.Raw()))
	}
	o.Content = []call.Content{call.Text("sk_live_" + strings.Repeat("4eC39HqLyjWDarjtT1zdp7dc", 1) + " \u200f")}
	if got := r.Result(d, o).Content[0].Text; got != secretMask+" \u200f" {
		t.Errorf("for code, secrets are hidden: %q", got)
	}
}
