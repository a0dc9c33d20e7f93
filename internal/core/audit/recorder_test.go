package audit

import (
	"encoding/json"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/secret"
	"waldo/internal/protocol/strictjson"
)

func decision(t testing.TB, args string) policy.Decision {
	t.Helper()
	a, err := call.ParseArgs([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	return policy.Decision{
		ID: "d_aaaaaaaaaaaaaaaaaaaaaaaaaa", Effect: policy.Ask, Danger: 3, Policy: "sha256:p",
		Reasons: []call.Reason{{Code: "contract.ask", File: "waldo.yaml", Line: 4}},
		Call: call.Call{
			ID: "c_aaaaaaaaaaaaaaaaaaaaaaaaaa", Capability: "mail.send", Principal: "os:1000", Session: "n_a",
			Channel: "mcp", Args: a,
		},
		Contract: contract.Contract{
			Pattern: "mail.*", Mode: contract.Write, Secrets: map[string]secret.Ref{"TOKEN": "env:MAIL_TOKEN"},
			At: contract.Position{File: "waldo.yaml", Line: 4},
		},
	}
}

func bodies(t *testing.T, dir string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, segmentName(1)))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, l := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")[1:] {
		r, err := parseRecord([]byte(l))
		if err != nil {
			t.Fatal(err, l)
		}
		out = append(out, string(r.Body))
	}
	return out
}

// value reads JSON of the test's own.
func value(t *testing.T, text string) strictjson.Value {
	t.Helper()
	v, err := strictjson.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestRecorder(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, Options{Heads: &memory{}})
	d := decision(t, `{"to":"a@b.example","password":"hunter2"}`)
	r := &Recorder{
		Log: l, Args: func(policy.Decision) strictjson.Value { return value(t, `{"to":"[EMAIL_1]","password":"[secret]"}`) },
		Place: func(n call.Session) Place { return Place{"w_of_" + string(n), "q_1", "q_1", "/home/ann/shop"} },
	}
	f := facts.New()
	f.Status, f.Stdout, f.Stderr = facts.OK, "the output", ""
	if err := r.Decision(ctx, d); err != nil {
		t.Fatal(err)
	}
	if err := r.Answer(ctx, d, approval.Answer{
		ApprovalID: "a_1", Yes: true, By: "approver:ann", At: time.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	at, err := r.Outcome(ctx, d, call.Result{
		Status: facts.OK, Facts: f, Content: []call.Content{call.Text("the output")},
	})
	if err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	_ = Range(ctx, dir, at.Seq-1, at.Seq, func(rec Record) error {
		if meta := (call.Result{Logged: at}).Meta()["waldo/log"]; rec.Kind != KindOutcome || rec.Hash != at.Digest || meta != at {
			t.Errorf("%+v is not the record of the outcome: %s; in the result: %v", at, rec.line(), meta)
		}
		at.Seq = 0
		return nil
	})
	if at.Seq != 0 {
		t.Errorf("no record %d", at.Seq)
	}
	got := bodies(t, dir)
	for i, want := range [][]string{
		{`"effect":"ask"`, `"args":{"password":"[secret]","to":"[EMAIL_1]"},"args_redacted":true`, d.Call.Args.Digest(), `"principal":"os:1000"`,
			`"line":4`, `"TOKEN=env:MAIL_TOKEN"`, `"workspace":"w_of_` + string(d.Call.Session) + `"`, `"mode":"write"`, `"asker":"q_1"`, `"folder":"/home/ann/shop"`},
		{`"yes":true`, `"by":"approver:ann"`},
		{`"stdout":{"bytes":10,"sha256":"`, `"status":"ok"`, `"side_effect":"unknown"`},
	} {
		for _, w := range want {
			if !strings.Contains(got[i], w) {
				t.Errorf("record %d lacks %s: %s", i, w, got[i])
			}
		}
		for _, leak := range []string{"hunter2", "the output", "a@b.example"} {
			if strings.Contains(got[i], leak) {
				t.Errorf("record %d holds %q: %s", i, leak, got[i])
			}
		}
	}
}

func TestRecorderWithoutRedaction(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, Options{Heads: &memory{}})
	if err := (&Recorder{Log: l}).Decision(ctx, decision(t, `{"password":"hunter2"}`)); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	if b := bodies(t, dir)[0]; strings.Contains(b, "hunter2") || !strings.Contains(b, `"args":null`) {
		t.Error(b)
	}
}

// TestRecorderStaysWhole: however long the parts are, the ids of a record survive.
func TestRecorderStaysWhole(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, Options{Heads: &memory{}})
	long := strings.Repeat("\x01é", 1<<20)
	d := decision(t, `{}`)
	for range 100 {
		d.Reasons = append(d.Reasons, call.Reason{Code: "x", Text: long})
	}
	d.Call.Capability, d.Call.Session = call.Capability(long), call.Session(long)
	r := &Recorder{Log: l, Args: func(policy.Decision) strictjson.Value {
		b, _ := json.Marshal(map[string]string{"x": long})
		return value(t, string(b))
	}}
	f := facts.New()
	for range 1000 {
		f.Files.Read = append(f.Files.Read, strings.Repeat("é", 1000))
		f.Denials = append(f.Denials, facts.Denial{What: strings.Repeat("\x02", 2000)})
	}
	if err := r.Decision(ctx, d); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Outcome(ctx, d, call.Result{Facts: f, Status: facts.OK}); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	for i, b := range bodies(t, dir) {
		if !strings.Contains(b, `"decision_id":"`+d.ID+`"`) {
			t.Errorf("record %d lost its id: %.200s", i, b)
		}
	}
	if len(f.Files.Read) != 1000 || len(f.Files.Read[999]) != 2000 {
		t.Error("the caller's facts were changed")
	}
}

// Bodies written without reflection equal encoding/json's output for all values; no member is missing.
func TestBodies(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for n := range 200 {
		d, ok := quick.Value(reflect.TypeFor[Decided](), random)
		e, also := quick.Value(reflect.TypeFor[Ended](), random)
		if !ok || !also {
			t.Fatal("no bodies")
		}
		decided, ended := d.Interface().(Decided), e.Interface().(Ended)
		decided.Args = value(t, "{ \"a\": [1, \"é \\u2028\"] }").Raw()
		decided.Run = value(t, `{"template":"é"}`).Raw()
		decided.Effect, decided.Mode, ended.Trust = policy.Effect(n%3), contract.Mode(n%3), call.Trust(n%3)
		ended.Facts.Facts.Usage.WallMS, ended.Facts.Facts.Usage.CPUMS = float64(n)/8, 3
		switch n {
		case 0:
			decided, ended = Decided{}, Ended{}
		case 1:
			ended.Facts.Facts = facts.New()
		}
		for _, row := range []struct {
			got  []byte
			body any
		}{{decided.append(nil), decided}, {ended.append(nil), ended}} {
			want, err := json.Marshal(row.body)
			if err != nil {
				t.Fatal(err)
			}
			var a, b any
			if err := json.Unmarshal(row.got, &a); err != nil {
				t.Fatalf("%v: %s", err, row.got)
			}
			if err := json.Unmarshal(want, &b); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(a, b) {
				t.Fatalf("got  %s\nwant %s", row.got, want)
			}
		}
	}
}

// Text from outside is bounded in the log: the text of an enrolment, and of a call that its channel refused.
func TestRecordsHaveBounds(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, Options{Heads: &memory{}})
	r := &Recorder{Log: l, Args: func(d policy.Decision) strictjson.Value {
		if len(d.Call.Args.Raw()) > 1<<20 {
			t.Error("arguments that are too long for the log are read for it")
		}
		return d.Call.Args.Value()
	}}
	long := strings.Repeat("x", 1<<20)
	roles := make([]string, 1000)
	for i := range roles {
		roles[i] = long
	}
	if err := r.Approver(t.Context(), "os:1",
		approval.Enrolment{
			Action: "enrol", Approver: "ann", Key: "sha256:0", Roles: []string{"manager"}, By: "ann",
		}); err != nil {
		t.Fatal(err)
	}
	if err := r.Approver(t.Context(), "os:1",
		approval.Enrolment{Action: "enrol", Approver: long, Roles: roles, By: long, Failed: long}); err != nil {
		t.Fatal(err)
	}
	d := decision(t, `{"x":"`+long+long+`"}`)
	d.Effect, d.Contract, d.Reasons = policy.Deny, contract.Contract{}, []call.Reason{{Code: "args.schema", Text: long}}
	if err := r.Decision(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	all := bodies(t, dir)
	if all[0] != `{"action":"enrol","approver":"ann","key":"sha256:0","roles":["manager"],"by":"ann","principal":"os:1"}` {
		t.Errorf("an enrolment: %s", all[0])
	}
	var enrolled approval.Enrolment
	if err := json.Unmarshal([]byte(all[1]), &enrolled); err != nil || len(enrolled.Roles) != maxNames {
		t.Errorf("%d of %d roles, want %d: %v", len(enrolled.Roles), len(roles), maxNames, err)
	}
	for i, most := range []int{200, 100 << 10, 4 << 10} {
		if len(all[i]) > most || strings.Contains(all[i], "left_out") {
			t.Errorf("record %d has %d bytes: %.300s", i, len(all[i]), all[i])
		}
	}
}

// TestRunOfADecision: a decision records what the operator asks of the sandbox, and of its variables the names alone.
func TestRunOfADecision(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, Options{Heads: &memory{}})
	r := &Recorder{Log: l, Args: func(d policy.Decision) strictjson.Value { return d.Call.Args.Value() }}
	d := policy.Decision{
		ID: "d_1", Call: call.Call{
			ID: "c_1", Run: &call.Run{Template: "image@sha256:1", Input: "/srv", Env: []string{"TOKEN=hunter2"}},
		},
	}
	if err := r.Decision(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	d.Call.Run = nil
	if err := r.Decision(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	all := bodies(t, dir)
	if len(all) != 2 ||
		!strings.Contains(all[0], `"run":{"env":["TOKEN"],"input":"/srv","template":"image@sha256:1"},`+
			`"run_digest":"sha256:`) || strings.Contains(all[0], "hunter2") {
		t.Errorf("%q", all)
	}
	if len(all) == 2 && strings.Contains(all[1], `"run`) {
		t.Errorf("a call without a run: %s", all[1])
	}
}
