package approval

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/testing/corpus"
)

// A corpus row is a story of asking, answering and executing, or a request to be shown.
type corpusRow struct {
	ID, Class, Expect, Why string
	Input                  struct {
		Steps   [][]any
		Request map[string]any
	}
}

// story is the state of one row under test.
type story struct {
	*fixture
	d     policy.Decision // the decision on the request
	id    string          // the question; empty: none was asked
	found string          // waldo's own findings about the call
	runs  int
	need  int    // how many approvers the contract needs
	last  string // the outcome of the last execution
}

func newStory(t *testing.T) *story {
	s := &story{fixture: newFixture(t), found: "as it was"}
	s.about.notes = func(policy.Decision) []string { return []string{s.found} }
	return s
}

func (s *story) request(t *testing.T, tool string, args map[string]any, session string) {
	b, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	s.d = decide(t, string(b))
	s.d.Call.Capability, s.d.Call.Session = call.Capability(tool), call.Session(session)
	s.d.Contract.Approval.Need = s.need
	s.id = s.want(t, s.d, "waiting")
}

// execute retries a call, quoting the question, as an agent does after "waiting".
func (s *story) execute(t *testing.T, d policy.Decision, quoted string) {
	d.Call.ApprovalID = quoted
	s.last, _ = s.ask(t, d)
	if s.last == "yes" {
		s.runs++
	}
}

func (s *story) answer(t *testing.T, by Signer, approvalID string, yes bool) string {
	return code(s.Answer(ctx, by, approvalID, yes, ""))
}

func TestCorpus(t *testing.T) {
	told, policys := 0, 0
	for _, r := range corpus.Rows[corpusRow](t, "approval.jsonl") {
		switch {
		case r.Class == "rules", r.Expect == "still_asks", r.Expect == "asks_by_default":
			policys++ // whether to ask is policy's to say
			continue
		}
		told++
		t.Run(r.ID+" "+r.Why, func(t *testing.T) {
			if r.Class == "display" {
				judgeDisplay(t, r)
				return
			}
			s := newStory(t)
			if strings.Contains(r.Why, "two approvals needed") {
				s.need = 2
			}
			for _, step := range r.Input.Steps {
				s.step(t, step)
			}
			s.judge(t, r)
		})
	}
	t.Logf("%d rows told; %d are policy's", told, policys)
}

// step takes one step. Input from a channel without an approver's signature reaches Answer as a stranger's, or not at
// all: a web page, a webhook, the host's dialogue, a file, a variable.
func (s *story) step(t *testing.T, step []any) {
	_, strange, _ := ed25519.GenerateKey(nil)
	switch step[0] {
	case "request":
		s.request(t, step[1].(string), step[2].(map[string]any), "n_one")
	case "session":
		inner := step[2].([]any)
		if inner[0] == "request" {
			s.request(t, inner[1].(string), inner[2].(map[string]any), "n_"+step[1].(string))
			s.say(t, s.id, true)
			return
		}
		d := s.d
		d.Call.Session = call.Session("n_" + step[1].(string))
		s.execute(t, d, s.id)
	case "approve":
		id := s.id
		if step[1] == "guess" {
			id = "a_aaaaaaaaaaaaaaaaaaaaaaaaaa"
		}
		s.last = s.answer(t, s.ann, id, true)
	case "deny":
		s.last = s.answer(t, s.ann, s.id, false)
	case "parallel":
		one, two := make(chan string), make(chan string)
		go func() { one <- s.answer(t, s.ann, s.id, true) }()
		go func() { two <- s.answer(t, s.ann, s.id, false) }()
		yes, no := <-one, <-two
		_, state, err := s.Question(ctx, s.id) // a no that comes after the yes takes it back
		if err != nil || yes != "" && no != "" || (no == "") != (state == No) {
			t.Errorf("yes: %q, no: %q, and the question is %s (%v)", yes, no, state, err)
		}
	case "as":
		if step[1] == "guest" {
			pub, key, _ := ed25519.GenerateKey(nil)
			if _, err := s.EnrollKey(ctx, "guest", nil, pub, s.ann); err != nil {
				t.Fatal(err)
			}
			if got := s.answer(t, NewSigner("guest", key), s.id, true); got != "approval.role" {
				t.Errorf("guest: %s", got)
			}
		}
		if step[1] == "ann" {
			s.last = s.answer(t, s.ann, s.id, true)
		}
	case "execute":
		if s.id == "" {
			s.d = decide(t, `{}`)
			s.execute(t, s.d, "a_aaaaaaaaaaaaaaaaaaaaaaaaaa")
			return
		}
		s.execute(t, s.d, s.id)
		s.execute(t, s.d, s.id) // and once more, which must never run
	case "execute_modified":
		s.modified(t, step[2].(map[string]any))
	case "wait":
		s.pass(DefaultTimeout + time.Second)
	case "restart":
		s.restart(t)
	case "answer":
		if _, ok := Verdict(step[2].(string)); ok {
			t.Errorf("%q is an answer", step[2])
		}
		s.execute(t, s.d, s.id)
	case "elicitation_auto_accept", "sandbox_http", "csrf", "http", "webhook_unsigned":
		if got := s.answer(t, NewSigner("ann", strange), s.id, true); got != "approval.not_enrolled" {
			t.Errorf("%s: %s", step[0], got)
		}
	case "type_ahead", "headless", "env", "workspace_file":
	default:
		t.Fatalf("no such step: %v", step[0])
	}
}

// modified executes with something changed since the question.
func (s *story) modified(t *testing.T, change map[string]any) {
	d := s.d
	args := maps.Clone(d.Call.Args.Values())
	for name, v := range change {
		field, isArg := strings.CutPrefix(name, "args.")
		switch {
		case isArg && v == nil:
			delete(args, field)
		case isArg:
			args[field] = v
		case name == "tool":
			d.Call.Capability = call.Capability(v.(string))
		case name == "policy", name == "env", name == "cwd": // all of them are in the configuration
			d.Policy = "sha256:changed"
		case name == "file", name == "link", name == "dns", name == "token_map":
			s.found = "changed"
		case name == "secret": // its name is in the contract, its value nowhere
		case name == "retry":
			s.execute(t, d, s.id)
		case name == "batch":
			s.execute(t, d, s.id)
			args["body"] = "the second"
		default:
			t.Fatalf("no such change: %s", name)
		}
	}
	a, err := call.ArgsOf(args)
	if err != nil {
		t.Fatal(err)
	}
	d.Call.Args = a
	s.execute(t, d, s.id)
}

func (s *story) judge(t *testing.T, r corpusRow) {
	t.Helper()
	runs := 0
	switch r.Expect {
	case "runs", "runs_once", "runs_or_refused_documented", "runs_once_or_refused_documented",
		"asks_again_or_idempotency_key", "second_refused":
		runs = 1
	case "one_outcome_consistent":
		if s.runs > 1 {
			t.Error("it ran twice")
		}
		return
	case "refused", "refused_or_digest_bound", "refused_or_shown", "refused_or_bound", "literal",
		"refused_or_channel_authenticated",
		"refused_or_documented", "refused_or_loud", "ignored":
	default:
		t.Fatalf("no judge for %q", r.Expect)
	}
	if s.runs != runs {
		t.Errorf("ran %d times, want %d; at last: %s", s.runs, runs, s.last)
	}
	if r.Class == "binding" && runs == 0 && s.last != "approval.mismatch" {
		t.Errorf("got %s, want approval.mismatch", s.last)
	}
}

func judgeDisplay(t *testing.T, r corpusRow) {
	if r.Input.Request["blob"] != nil { // the row represents a big argument; a call carries at most 4 MiB
		r.Input.Request["blob"] = strings.Repeat("x", 3<<20)
	}
	b, err := json.Marshal(r.Input.Request)
	if err != nil {
		t.Fatal(err)
	}
	q := shown(t, string(b))
	q.Notes = []string{"link/x leads to /etc/x"}
	out := q.Show()
	want := map[string]string{
		"punycode_shown": "host xn--", "raw_shown": "  | text = ", "framed": "  | text = \"\\n",
		"digest_and_size_shown": "bytes in all, sha256:", "bad_one_visible": `"/etc/passwd"`,
		"description_marked_as_claim": "its claim", "marked_as_agent_text": "The agent wrote these",
		"ignored": "danger 2 of 3", "resolved_shown": "waldo found link/x leads to /etc/x",
	}[r.Expect]
	switch r.Expect {
	case "escaped":
		want = `\u{`
	case "all_fields_shown":
		want = "  | "
		if n := len(leaves(r.Input.Request)); len(q.Fields()) != n {
			t.Errorf("%d fields shown of %d", len(q.Fields()), n)
		}
		for _, v := range leaves(r.Input.Request) {
			if !strings.Contains(out, Escape(v)) {
				t.Errorf("lacks %q:\n%s", v, out)
			}
		}
	}
	if want == "" || !strings.Contains(out, want) {
		t.Errorf("%s: lacks %q:\n%.2000s", r.Expect, want, out)
	}
	if strings.ContainsAny(out, "\x1b\b\r\u200b\u202e") {
		t.Errorf("%q", out)
	}
}

// leaves returns every value in a request as text.
func leaves(v any) []string {
	var out []string
	switch v := v.(type) {
	case map[string]any:
		for _, x := range v {
			out = append(out, leaves(x)...)
		}
	case []any:
		for _, x := range v {
			out = append(out, leaves(x)...)
		}
	default:
		out = append(out, fmt.Sprint(v))
	}
	return out
}
