package mcpserver

import (
	"context"
	"crypto/ed25519"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/database"
	"waldo/internal/testing/catalogtest"
)

// approver is a pipeline that asks a real approval service about each call, and records the calls that were made.
type approver struct {
	t    *testing.T
	k    *approval.Service
	ann  approval.Signer
	mu   sync.Mutex
	made []call.Call
}

func newApprover(t *testing.T) *approver {
	t.Helper()
	store, err := database.Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	log := &memoryLog{}
	a := &approver{t: t, ann: approval.NewSigner("ann", private),
		k: &approval.Service{Store: store, Witness: log, Records: log}}
	if _, err := a.k.EnrollKey(t.Context(), "ann", nil, private.Public().(ed25519.PublicKey), a.ann); err != nil {
		t.Fatal(err)
	}
	return a
}

// memoryLog is a log that knows who can answer, and what was answered.
type memoryLog struct{ ledger approval.Ledger }

func (l *memoryLog) Look(_ context.Context, fn func(*approval.Ledger)) error {
	fn(&l.ledger)
	return nil
}

func (l *memoryLog) Enrolled(_ context.Context, e approval.Enrolment) error {
	return l.ledger.Enrolled(e)
}

func (l *memoryLog) Verdict(_ context.Context, a approval.Answer) error {
	return l.ledger.Given(approval.Recorded{DecisionID: a.DecisionID, ApprovalID: a.ApprovalID, ArgsDigest: a.ArgsDigest,
		Yes: a.Yes, By: string(a.By), Key: a.Key, Signed: a.Signed, Signature: a.Signature})
}

func (l *memoryLog) Configured(context.Context, approval.Configuration, string) error { return nil }

func (l *memoryLog) Passed(context.Context, approval.Elsewhere, string, bool) error { return nil }

func (a *approver) call(ctx context.Context, c call.Call) (call.Result, error) {
	d := policy.Decision{ID: id.New(id.Decision), Effect: policy.Ask, Danger: 3, Policy: "sha256:config", Call: c,
		Contract: contract.Contract{Pattern: "s.*", Approval: contract.Approval{When: contract.Always}}}
	said, waiting, err := a.k.Ask(ctx, d)
	f := facts.New()
	r := call.Result{CallID: c.ID, DecisionID: d.ID, Facts: f, IsError: true, ApprovalID: waiting}
	switch {
	case err != nil:
		return r, err
	case said == nil:
		r.Status = facts.Waiting
	case !said.Yes:
		r.Status, r.Why = facts.Denied, []call.Reason{{Code: said.Refusal, Text: said.Reason}}
	default:
		a.mu.Lock()
		defer a.mu.Unlock()
		a.made = append(a.made, c)
		r.Status, r.IsError, r.Content = facts.OK, false, []call.Content{call.Text("made")}
	}
	return r, nil
}

func (a *approver) server(lean bool) *Server {
	a.t.Helper()
	o := options(a.t, newDesk(a.t))
	pipeline(&o).OnCall, o.Lean = a.call, lean
	text := `{"type":"object","properties":{"p":{"type":"string"}},"additionalProperties":false}`
	o.Catalogue = catalog.New(catalog.Options{
		Contracts: catalogtest.Rules[catalog.Viewer]{},
		Texts:     catalogtest.Words{},
		Sources: map[string]catalog.Source{"s": func(context.Context) ([]call.Tool, error) {
			return []call.Tool{
				{Capability: "s.wait", Input: parse(a.t, text), Digest: strictjson.Digest([]byte("wait"))},
				{Capability: "s.own", Digest: strictjson.Digest([]byte("own")), Input: parse(a.t,
					`{"type":"object","properties":{"waldo_approval":{"type":"string"}},"additionalProperties":false}`)},
			}, nil
		}},
	})
	a.t.Cleanup(o.Catalogue.Close)
	return New(o)
}

// yes answers a question.
func (a *approver) yes(approvalID string) {
	a.t.Helper()
	q, _, err := a.k.Question(a.t.Context(), approvalID)
	if err == nil {
		err = a.k.Answer(a.t.Context(), a.ann, q, true, "")
	}
	if err != nil {
		a.t.Fatalf("%s: %v", approvalID, err)
	}
}

// A model cannot write _meta, so it quotes an approval as an argument, in each way of calling. Policy, people and tools
// see the call without that argument.
func TestAQuotedApprovalIsCollected(t *testing.T) {
	direct := func(with string) string { return `"name":"s__wait","arguments":{"p":"a<b"` + with + `}` }
	for _, row := range []struct {
		why    string
		lean   bool
		caps   string // of a modern client; empty: a legacy one
		first  string
		repeat func(quote string) string
	}{
		{"a legacy host", false, "", direct(""), direct},
		{"a modern host", false, `{}`, direct(""), direct},
		{"inside the arguments of call_tool", true, "",
			`"name":"call_tool","arguments":{"name":"s__wait","arguments":{"p":"a<b"}}`, func(quote string) string {
				return `"name":"call_tool","arguments":{"name":"s__wait","arguments":{"p":"a<b"` + quote + `}}`
			}},
		{"beside the arguments of call_tool", true, "",
			`"name":"call_tool","arguments":{"name":"s__wait","arguments":{"p":"a<b"}}`, func(quote string) string {
				return `"name":"call_tool","arguments":{"name":"s__wait","arguments":{"p":"a<b"}` + quote + `}`
			}},
		{"beside no arguments at all", true, "",
			`"name":"call_tool","arguments":{"name":"s__wait"}`, func(quote string) string {
				return `"name":"call_tool","arguments":{"name":"s__wait"` + quote + `}`
			}},
	} {
		t.Run(row.why, func(t *testing.T) {
			a := newApprover(t)
			d := a.server(row.lean)
			session := func() *Session {
				if row.caps == "" {
					return legacySession(t, d, me, lines{})
				}
				s := d.Session(me, lines{})
				t.Cleanup(s.Close)
				return s
			}
			s := session()
			waits := ended(t, s, row.first, row.caps)
			if waits.approval == "" {
				t.Fatalf("it does not wait: %s", waits.say)
			}
			s = session() // the same session over another connection, which remembers no call
			quote := `,"waldo_approval":"` + waits.approval + `"`
			if got := ended(t, s, row.repeat(quote), row.caps); got.approval != waits.approval {
				t.Errorf("before the answer: %+v, want the question %s", got, waits.approval)
			}
			a.yes(waits.approval)
			if got := ended(t, s, row.repeat(quote), row.caps); got.say != "made" || len(a.made) != 1 {
				t.Fatalf("%+v", got)
			}
			if c := a.made[0]; strings.Contains(string(c.Args.Raw()), "waldo_approval") || c.ApprovalID != waits.approval {
				t.Errorf("the tool is given %s, approval %s", c.Args.Raw(), c.ApprovalID)
			}
			if got := ended(t, s, row.repeat(quote), row.caps); !strings.Contains(got.say, "approval.used") || len(a.made) != 1 {
				t.Errorf("spent: %+v", got)
			}
		})
	}
	t.Run("as a task", func(t *testing.T) {
		a := newApprover(t)
		s := legacySession(t, a.server(false), me, lines{})
		waits := ended(t, s, direct(""), "")
		a.yes(waits.approval)
		got, fault := request(t, s, lines{}, "tools/call",
			direct(`,"waldo_approval":"`+waits.approval+`"`)+`,"task":{"ttl":60000}`, "")
		if fault != nil {
			t.Fatal(fault)
		}
		task, _ := got["task"].(map[string]any)
		name, _ := task["taskId"].(string)
		until(t, s, name, "", "completed")
		if len(a.made) != 1 || a.made[0].ApprovalID != waits.approval {
			t.Errorf("%+v", a.made)
		}
	})
	t.Run("the argument of a tool that has one of this name is the tool's own", func(t *testing.T) {
		a := newApprover(t)
		s := legacySession(t, a.server(false), me, lines{})
		const params = `"name":"s__own","arguments":{"waldo_approval":"mine"}`
		a.yes(ended(t, s, params, "").approval)
		if got := ended(t, s, params, ""); got.say != "made" || string(a.made[0].Args.Raw()) != `{"waldo_approval":"mine"}` {
			t.Errorf("%+v %+v", got, a.made)
		}
	})
}

// Each row quotes an approved id, or a text that is not an id, for another call. A quoted id is the only one that
// counts.
func TestAQuotedApprovalHelpsNoOtherCall(t *testing.T) {
	other := me
	other.Session = "n_2"
	stranger := me
	stranger.Principal = "os:2000"
	const args, none = `"p":"a"`, "a_zzzzzzzzzzzzzzzzzzzzzzzzzz"
	for _, row := range []struct {
		why, args, quote string // a quote of ID is the approved id
		who              Who
		want             string
	}{
		{"control", args, `"ID"`, me, "made"},
		{"another session", args, `"ID"`, other, `approval.unknown: unknown approval "ID" in this session`},
		{"another principal", args, `"ID"`, stranger, "approval.mismatch: approval ID is for another call: the arguments"},
		{"other arguments", `"p":"b"`, `"ID"`, me, "approval.mismatch: approval ID is for another call: the arguments"},
		{"no arguments", ``, `"ID"`, me, "approval.mismatch"},
		{"an id that was never given", args, `"` + none + `"`, me, `approval.unknown: unknown approval "` + none + `" in this session`},
		{"no id", args, `"yes"`, me, "approval.unknown: unknown approval "},
		{"an empty text", args, `""`, me, "approval.unknown"},
		{"null", args, `null`, me, "approval.unknown"},
		{"true", args, `true`, me, "approval.unknown"},
		{"a list with the id", args, `["ID"]`, me, "approval.unknown"},
		{"an object with the id", args, `{"id":"ID"}`, me, "approval.unknown"},
		{"the id and a blank", args, `"ID "`, me, "approval.unknown"},
		{"SQL", args, `"x' OR 1=1 --"`, me, "approval.unknown"},
		{"a long text", args, `"` + strings.Repeat("a", 10_000) + `"`, me, "approval.unknown"},
	} {
		for _, lean := range []bool{false, true} {
			t.Run(row.why, func(t *testing.T) {
				a := newApprover(t)
				d := a.server(lean)
				params := func(args string) string {
					if lean {
						return `"name":"call_tool","arguments":{"name":"s__wait","arguments":{` + args + `}}`
					}
					return `"name":"s__wait","arguments":{` + args + `}`
				}
				mine := legacySession(t, d, me, lines{})
				approved := ended(t, mine, params(args), "").approval
				a.yes(approved)
				s := mine // it remembers the call that waits
				if row.who != me {
					s = legacySession(t, d, row.who, lines{})
				}
				quoted := strings.TrimPrefix(row.args+`,"waldo_approval":`+strings.ReplaceAll(row.quote, "ID", approved), ",")
				got := ended(t, s, params(quoted), "")
				want := strings.ReplaceAll(row.want, "ID", approved)
				if !strings.Contains(got.say, want) || len(got.say) > 400 || (len(a.made) == 1) != (row.want == "made") {
					t.Fatalf("%+v, want %q; made %+v", got, want, a.made)
				}
				if row.want == "made" {
					return
				}
				if got.approval != "" {
					t.Errorf("it asked anew: %s", got.approval)
				}
				if got := ended(t, mine, params(args), ""); got.say != "made" {
					t.Errorf("control: the call itself, afterwards: %+v", got)
				}
			})
		}
	}
}

// ending is the host's view of a finished call.
type ending struct{ say, approval string }

func ended(t *testing.T, s *Session, params, caps string) (e ending) {
	t.Helper()
	got, fault := request(t, s, lines{}, "tools/call", params, caps)
	if fault != nil {
		t.Fatal(fault)
	}
	content, _ := got["content"].([]any)
	for _, c := range content {
		block, _ := c.(map[string]any)
		text, _ := block["text"].(string)
		e.say += text
	}
	meta, _ := got["_meta"].(map[string]any)
	e.approval, _ = meta["waldo/approval_id"].(string)
	return e
}
