package evidence

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"waldo/internal/app"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// recorder opens the log for a recorder.
func (g *ground) recorder(write func(r *audit.Recorder, l *audit.Log)) {
	g.t.Helper()
	l, err := audit.Open(g.t.Context(), audit.Dir(g.state), audit.Options{Heads: g.store})
	if err != nil {
		g.t.Fatal(err)
	}
	write(&audit.Recorder{Log: l}, l)
	if err := l.Close(); err != nil {
		g.t.Fatal(err)
	}
}

// export writes the whole log.
func (g *ground) export(x exporter) {
	g.t.Helper()
	if _, err := audit.All(g.t.Context(), g.tree.Dir, x.record); err != nil {
		g.t.Fatal(err)
	}
	if err := x.end(); err != nil {
		g.t.Fatal(err)
	}
}

func decided(n int, name string, effect policy.Effect, mode contract.Mode) policy.Decision {
	return policy.Decision{
		ID: fmt.Sprintf("d_%026d", n), Effect: effect, Danger: 2, Reasons: []call.Reason{{Code: "mode." + mode.String(), Text: "why"}},
		Call: call.Call{ID: fmt.Sprintf("c_%026d", n), Capability: call.Capability(name), Principal: "os:1000",
			Session: "n_a",
			Channel: "mcp", Agent: "claude-code/2"},
		Contract: contract.Contract{Pattern: name, Mode: mode},
	}
}

// story writes records of every kind that has a place in OCSF, each by the function that waldo writes it with.
func (g *ground) story() {
	g.t.Helper()
	ctx := g.t.Context()
	g.recorder(func(r *audit.Recorder, l *audit.Log) {
		must := func(err error) {
			if err != nil {
				g.t.Fatal(err)
			}
		}
		ended := func(d policy.Decision, status facts.Status, f facts.Facts) {
			_, err := r.Outcome(ctx, d, call.Result{Status: status, Facts: f})
			must(err)
		}
		read, no := decided(1, "notes.read", policy.Allow, contract.Read), decided(2, "notes.drop", policy.Deny,
			contract.Write)
		run, wait := decided(3, "run_python", policy.Ask, contract.HighRisk), decided(4, "mail.send", policy.Ask,
			contract.Write)
		for _, d := range []policy.Decision{read, no, run, wait} {
			must(r.Decision(ctx, d))
		}
		ended(read, facts.OK, facts.New())
		ended(no, facts.Denied, facts.New())
		ended(wait, facts.Waiting, facts.New())
		f, code := facts.New(), 3
		f.Sandbox, f.ExitCode = facts.Sandbox{ID: "s_1", Driver: "namespace"}, &code
		f.Network.Attempts = []facts.Attempt{{Host: "api.example.com", Port: 443, Allowed: true, Times: 2, Sent: 10,
			Received: 20},
			{Host: "169.254.169.254", Port: 80, Why: "host.private"},
			{Host: "api.example.com", Port: 443, Allowed: true, Method: "POST", Times: 1},
			{Host: "api.example.com", Port: 443, Why: "egress.request", Method: "DELETE", Times: 1},
			{Host: "api.example.com", Port: 443, Allowed: true, Why: "egress.connect", Method: "OTHER", Times: 1}}
		said := approval.Answer{ApprovalID: "a_1", DecisionID: run.ID, Capability: "run_python", Yes: true,
			By: "approver:ann"}
		must(r.Verdict(ctx, said))
		said.Yes, said.Refusal, said.Reason = false, "approval.expired", "it expired"
		must(r.Answer(ctx, run, said))
		said.Refusal, said.Reason = "approval.forged", "the row was changed"
		must(r.Answer(ctx, run, said))
		ended(run, facts.Failed, f)
		must(r.Approver(ctx, "os:1000", approval.Enrolment{Action: "enrol", Approver: "ann", By: "ann"}))
		must(r.Approver(ctx, "os:1000", approval.Enrolment{Action: "revoke", Approver: "bob", By: "ann", Failed: "no disk"}))
		must(r.Configuration(ctx, "os:1000", approval.Configuration{File: "/home/a/waldo.yaml", Digest: "sha256:1"}, ""))
		must(l.Change(ctx, audit.Change{Action: "secret.set", Object: "TOKEN", User: "os:1000"}))
		body, err := json.Marshal(app.EgressBody{Server: "notes", Sandbox: "s_2",
			Attempts: []facts.Attempt{{Host: "n.example.com", Port: 443, Allowed: true, Why: "connect.refused", Times: 1}}})
		must(err)
		_, err = l.Append(ctx, audit.KindEgress, body, true)
		must(err)
	})
}

// TestCSV: a row has what the columns promise, and no cell is a formula of a spreadsheet, whatever a caller sends.
func TestCSV(t *testing.T) {
	g := newGround(t, 1)
	g.story()
	starts := "=+-@\t\r"
	g.recorder(func(r *audit.Recorder, _ *audit.Log) {
		for i, c := range starts {
			if err := r.Decision(t.Context(), decided(10+i, string(c)+`cmd|' /C calc'!A0`, policy.Deny, contract.Write)); err != nil {
				t.Fatal(err)
			}
		}
	})
	var out bytes.Buffer
	x, err := newExporter(t.Context(), &cli.Context{}, "csv", &out)
	if err != nil {
		t.Fatal(err)
	}
	g.export(x)
	rows, err := csv.NewReader(bytes.NewReader(out.Bytes())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if names := strings.Join(rows[0], ","); names != "seq,time,kind,id,principal,host,capability,effect,status,reasons,side_effect,"+
		"hash,call_id,decision_id,approval_id,session,agent" {
		t.Errorf("columns: %s", names)
	}
	said := map[string]string{}
	for i, row := range rows[1:] {
		r := g.record(uint64(i + 1))
		if row[0] != strconv.Itoa(i+1) || row[1] != r.At || row[2] != r.Kind || row[3] != r.ID || row[11] != r.Hash {
			t.Errorf("row %d: %q", i+1, row)
		}
		for _, cell := range row {
			if cell != "" && strings.Contains(starts, cell[:1]) {
				t.Errorf("a formula: %q", cell)
			}
		}
		said[row[2]+" "+row[6]] = strings.Join(append(row[4:6:6], row[7:11]...), ",")
	}
	for key, want := range map[string]string{
		"decision notes.read":           "os:1000,,allow,,mode.read,",
		"outcome notes.read":            "os:1000,,,ok,,unknown",
		"outcome run_python":            "os:1000,api.example.com:443 169.254.169.254:80,,failed,,unknown",
		"verdict run_python":            "approver:ann,,,,,",
		"egress ":                       ",n.example.com:443,,,,",
		`decision '=cmd|' /C calc'!A0`:  "os:1000,,deny,,mode.write,",
		`decision '\tcmd|' /C calc'!A0`: "os:1000,,deny,,mode.write,",
		`decision '-cmd|' /C calc'!A0`:  "os:1000,,deny,,mode.write,",
		`answer run_python`:             "os:1000,,,,approval.forged,",
	} {
		if said[key] != want {
			t.Errorf("%s: %q, want %q", key, said[key], want)
		}
	}
	var plain bytes.Buffer
	g.export(lines{&plain})
	if !strings.Contains(plain.String(), `"capability":"=cmd|`) {
		t.Error("control: no capability begins with =")
	}
}

// TestDSSE: each envelope holds a record's line, and verifies as the DSSE protocol says. A line that is not the tree's
// gets no signature.
func TestDSSE(t *testing.T) {
	g := newGround(t, 300)
	g.story()
	at := g.grow()
	vkey, err := g.tree.Key(at.Origin)
	if err != nil {
		t.Fatal(err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.SplitN(vkey, "+", 3)[2])
	if err != nil {
		t.Fatal(err)
	}
	envelopesOf := func(w io.Writer) *envelopes {
		x, err := newEnvelopes(w, g.tree, at)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	var out, plain bytes.Buffer
	g.write(2) // since the checkpoint
	g.export(envelopesOf(&out))
	g.export(lines{&plain})
	envelopes, records := strings.Split(out.String(), "\n"), strings.Split(plain.String(), "\n")
	if len(envelopes) != int(at.N)+1 || len(records) != int(at.N)+3 {
		t.Fatalf("%d envelopes of %d records", len(envelopes)-1, at.N)
	}
	for i, text := range envelopes[:at.N] {
		payload, err := opened(text, vkey, key[1:])
		if err != nil || payload != records[i] {
			t.Fatalf("record %d: %v: %s", i+1, err, payload)
		}
	}
	changed := strings.Replace(envelopes[1], `"payload":"e`, `"payload":"f`, 1)
	if _, err := opened(changed, vkey, key[1:]); changed == envelopes[1] || err == nil {
		t.Errorf("a changed envelope: %v", err)
	}

	// somebody rewrites a record with all that follow, and asks for signatures
	segment := filepath.Join(g.tree.Dir, "0000000000000001.jsonl")
	if err := os.Rename(segment, segment+".old"); err != nil {
		t.Fatal(err)
	}
	other := newGround(t, 310)
	b, err := os.ReadFile(filepath.Join(other.tree.Dir, "0000000000000001.jsonl"))
	if err == nil {
		err = os.WriteFile(segment, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out.Reset()
	_, err = audit.All(t.Context(), g.tree.Dir, envelopesOf(&out).record)
	if !errors.Is(err, ErrForked) || !strings.Contains(err.Error(), "record 1 is another than the tree has") ||
		out.Len() > 0 {
		t.Errorf("a rewritten log: %v, %s", err, out.String())
	}

	// and a line is cut out, or the end
	x := envelopesOf(io.Discard)
	if err := os.Rename(segment+".old", segment); err != nil {
		t.Fatal(err)
	}
	for _, seq := range []uint64{1, 2} {
		if err := x.record(g.record(seq)); err != nil {
			t.Fatal("control: ", err)
		}
	}
	if err := x.record(g.record(4)); err == nil || !strings.HasSuffix(err.Error(), "record 4 does not follow") {
		t.Errorf("without record 3: %v", err)
	}
	if err := x.end(); err == nil || !strings.HasSuffix(err.Error(), "its last records are missing or damaged") {
		t.Errorf("without an end: %v", err)
	}
}

// opened verifies an envelope as github.com/secure-systems-lab/dsse describes it, and returns its payload.
func opened(text, keyid string, key ed25519.PublicKey) (string, error) {
	var e struct {
		Payload, PayloadType string
		Signatures           []struct{ KeyID, Sig string }
	}
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return "", err
	}
	payload, err := base64.StdEncoding.DecodeString(e.Payload)
	if err != nil || len(e.Signatures) != 1 {
		return "", fmt.Errorf("%d signatures, %v", len(e.Signatures), err)
	}
	sig, err := base64.StdEncoding.DecodeString(e.Signatures[0].Sig)
	if err != nil {
		return "", err
	}
	if e.PayloadType != "application/vnd.waldo.record+json" || e.Signatures[0].KeyID != keyid ||
		!ed25519.Verify(key, []byte(encoded(e.PayloadType, string(payload))), sig) {
		return "", errors.New("the signature does not hold")
	}
	return string(payload), nil
}

// encoded is the Pre-Authentication Encoding of DSSE.
func encoded(kind, payload string) string {
	return strings.Join([]string{"DSSEv1", strconv.Itoa(len(kind)), kind, strconv.Itoa(len(payload)), payload}, " ")
}

// TestPAE: the encoding of the test is the one of the protocol's own example, and waldo's is the test's.
func TestPAE(t *testing.T) {
	if got := encoded("http://example.com/HelloWorld", "hello world"); got != "DSSEv1 29 http://example.com/HelloWorld 11 hello world" {
		t.Error(got)
	}
	for _, text := range []string{"", "é", strings.Repeat("x", 1000)} {
		if got := string(pae([]byte(text))); got != encoded(payloadType, text) {
			t.Error(got)
		}
	}
}

// TestExportRefuses: envelopes hold exact bytes, so they cannot be redacted.
func TestExportRefuses(t *testing.T) {
	for _, one := range []struct {
		g        cli.Context
		as, want string
	}{
		{cli.Context{Redact: true}, "dsse", "a signed record cannot be redacted"},
		{cli.Context{}, "xml", `unknown format "xml"`},
	} {
		_, err := newExporter(t.Context(), &one.g, one.as, io.Discard)
		if exit := exitcode.Of(err); exit == nil || exit.Code != exitcode.Usage || exit.Text != one.want {
			t.Errorf("%s: %v", one.as, err)
		}
	}
	if _, err := newExporter(t.Context(), &cli.Context{Redact: true}, "jsonl", io.Discard); err != nil {
		t.Error("control: ", err)
	}
}

// TestExportStreams: an export holds no more than the calls that have not ended.
func TestExportStreams(t *testing.T) {
	c := calls{}
	for i := range 1000 {
		id := fmt.Sprintf(`{"call_id":"c_%d","principal":"os:1"}`, i)
		if f := c.read(audit.Record{Kind: audit.KindDecision, Body: []byte(id)}); f.Principal != "os:1" {
			t.Fatal(f)
		}
		id = fmt.Sprintf(`{"call_id":"c_%d"}`, i)
		if f := c.read(audit.Record{Kind: audit.KindOutcome, Body: []byte(id)}); f.Principal != "os:1" || len(c) != 0 {
			t.Fatal(f, len(c))
		}
	}
}
