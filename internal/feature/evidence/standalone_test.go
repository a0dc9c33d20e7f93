package evidence

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"waldo/internal/cli/exitcode"
	"waldo/internal/core/approval"
	"waldo/internal/core/approval/passkey"
	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/testing/passkeytest"
)

// TestStandalone: the verifier that shares no code with waldo agrees with it, on a receipt and on changed ones.
func TestStandalone(t *testing.T) {
	tool := standalone(t)
	g := newGround(t, 40)
	vkey, err := g.tree.Key(g.grow().Origin)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewServer(t.TempDir(), "w.example", ed25519.NewKeyFromSeed(make([]byte, 32)), []string{vkey})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(w)
	defer srv.Close()
	policy := g.policy(w.Key() + " " + srv.URL)
	if _, err := g.tree.Cosign(t.Context(), http.DefaultClient, policy, g.grow()); err != nil {
		t.Fatal(err)
	}
	at, err := g.tree.Cosigned(policy)
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := g.tree.Receipt(at, g.record(21))
	if err != nil {
		t.Fatal(err)
	}
	own, err := g.tree.Receipt(g.grow(), g.record(21))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	agree := func(name string, receipt []byte, want bool) {
		file := filepath.Join(dir, "receipt")
		err := os.WriteFile(file, receipt, 0o600)
		if err = errors.Join(err, os.WriteFile(filepath.Join(dir, "policy"), policy, 0o600)); err != nil {
			t.Fatal(err)
		}
		_, err = VerifyReceipt(receipt, policy)
		out, alone := exec.Command(tool, filepath.Join(dir, "policy"), file).CombinedOutput()
		if (err == nil) != want || (alone == nil) != want {
			t.Errorf("%s: waldo %v; alone %v: %s", name, err, alone, out)
		}
	}
	agree("control", receipt, true)
	agree("without the witness", own, false)
	one := policy
	for _, twice := range []string{"group g 2 w w\nquorum g\n", "group a any w\ngroup b any w\ngroup g all a b\nquorum g\n",
		"witness w " + w.Key() + "\nquorum w\n"} {
		policy = bytes.Replace(one, []byte("quorum w\n"), []byte(twice), 1)
		agree(twice, receipt, false)
	}
	policy = bytes.Replace(one, []byte("quorum w\n"), []byte("group g all w\nquorum g\n"), 1)
	agree("control: a group", receipt, true)
	policy = one
	agree("another index", bytes.Replace(receipt, []byte("index 20"), []byte("index 21"), 1), false)
	for _, index := range []string{"-1", "4611686018427387904", "9223372036854775807", "9223372036854775808"} {
		agree("the index "+index, bytes.Replace(receipt, []byte("index 20"), []byte("index "+index), 1), false)
	}
	agree("an index in other words", bytes.Replace(receipt, []byte("index 20"), []byte("index 020"), 1), false)
	agree("a witness's other time", bytes.Replace(receipt, []byte("w.example "), []byte("w.example A"), 1), false)
	agree("no record", bytes.Replace(receipt, []byte("extra "), []byte("extra A"), 1), false)
	for name, f := range map[string]forgery{"the control of what the keys sign": {1, 2, true}, "a second record 1": {0, 2, false},
		"a log without end": {1, 1<<63 - 1, false}, "a log at the end of trees": {1, 1 << 62, false},
		"beyond it": {1, 1<<62 + 1, false}, "a long log": {1, 1 << 53, false}} {
		agree(name, f.receipt(g, w, at.Origin), f.sound)
	}
	for i := 30; i < len(receipt); i += 97 {
		changed := bytes.Clone(receipt)
		changed[i] ^= 2
		agree("a changed byte", changed, false)
	}
}

// TestReceiptArguments: waldo writes no receipt of arguments that were not decided.
func TestReceiptArguments(t *testing.T) {
	g := newGround(t, 1)
	body := func(args string) []byte {
		return []byte(`{"decision_id":"d","args_digest":"` + digest(`{"a":1}`) + `","args":` + args + `}`)
	}
	g.recorder(func(_ *audit.Recorder, l *audit.Log) {
		for _, args := range []string{`{"a":1}`, `{"a":2}`} {
			if _, err := l.Append(t.Context(), audit.KindDecision, body(args), true); err != nil {
				t.Fatal(err)
			}
		}
	})
	at := g.grow()
	if _, err := g.tree.Receipt(at, g.record(3)); err != nil {
		t.Errorf("control: %v", err)
	}
	_, err := g.tree.Receipt(at, g.record(4))
	if err == nil || !strings.Contains(err.Error(), "not those that were decided") {
		t.Errorf("other arguments: %v", err)
	}
}

// TestLongCheckpoint: a checkpoint of more records than a tree can count is refused before its tree is looked at, also
// where the log's key signs it.
func TestLongCheckpoint(t *testing.T) {
	g := newGround(t, 3)
	at := g.grow()
	signer, err := g.tree.signer(at.Origin, false)
	if err != nil {
		t.Fatal(err)
	}
	for size, sound := range map[int64]bool{maxRecords: true, maxRecords + 1: false, 1<<62 + 1: false, 1<<63 - 1: false} {
		c := torchwood.Checkpoint{Origin: at.Origin, Tree: tlog.Tree{N: size, Hash: at.Hash}}
		signed, err := note.Sign(&note.Note{Text: c.String()}, signer)
		if err == nil {
			err = os.WriteFile(filepath.Join(g.tree.Dir, checkpointFile), signed, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.tree.Read(); (err == nil) != sound || !sound && !strings.Contains(err.Error(), "no log is that long") {
			t.Errorf("%d records: %v", size, err)
		}
	}
}

// forgery is a receipt of the second place in a log of two records, signed by the keys of the log and the witness.
type forgery struct {
	record uint64 // 0: the second place has the first record
	size   int64  // of the checkpoint
	sound  bool
}

func (f forgery) receipt(g *ground, w *Server, origin string) []byte {
	g.t.Helper()
	one, two := g.record(1), g.record(1+f.record)
	a, errA := Leaf(one.Hash)
	b, errB := Leaf(two.Hash)
	line, err := json.Marshal(two)
	if err = errors.Join(err, errA, errB); err != nil {
		g.t.Fatal(err)
	}
	key, err := g.tree.signer(origin, false)
	if err != nil {
		g.t.Fatal(err)
	}
	c := torchwood.Checkpoint{Origin: origin, Tree: tlog.Tree{N: f.size, Hash: tlog.NodeHash(a, b)}}
	signed, err := note.Sign(&note.Note{Text: c.String()}, key, w.signer)
	if err != nil {
		g.t.Fatal(err)
	}
	return torchwood.FormatProofWithExtraData(1, line, tlog.RecordProof{a}, signed)
}

// standalone builds the verifier.
func standalone(t *testing.T) string {
	t.Helper()
	tool := filepath.Join(t.TempDir(), "waldo-receipt")
	if out, err := exec.Command("go", "build", "-o", tool, "waldo/cmd/waldo-receipt").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return tool
}

// TestStandaloneAnswer: the verifier checks an approver's yes to the exact arguments, with the key of the enrolment. The
// attacker has the log's key, and so receipts of records that say another thing than the approver signed.
func TestStandaloneAnswer(t *testing.T) {
	tool, g := standalone(t), newGround(t, 1)
	args, err := call.ParseArgs([]byte(`{"to":"b@example.com"}`))
	if err != nil {
		t.Fatal(err)
	}
	d := decided(1, "mail.send", policy.Ask, contract.Write)
	d.Call.Args, d.Contract.Approval = args, contract.Approval{When: contract.Always}
	pub, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	ann := approval.NewSigner("ann", private)
	g.recorder(func(r *audit.Recorder, l *audit.Log) {
		ctx := t.Context()
		desk := &approval.Service{Store: g.store, Witness: &audit.Witness{Dir: g.tree.Dir}, Records: audit.Desk{Recorder: r, User: "os:1000"}}
		_, err := desk.EnrollKey(ctx, "ann", nil, pub, ann)
		_, asked, aerr := desk.Ask(ctx, d)
		q, _, qerr := desk.Question(ctx, asked)
		if err = errors.Join(err, aerr, qerr); err != nil {
			t.Fatal(err)
		}
		if err := desk.Answer(ctx, ann, q, true, "the <address> is right: é"); err != nil {
			t.Fatal(err)
		}
	})
	enrolment, verdict := g.record(3), g.record(4)
	body := string(verdict.Body)
	swap := func(old, new string) string {
		if !strings.Contains(body, old) {
			t.Fatalf("%s has no %s", body, old)
		}
		return strings.Replace(body, old, new, 1)
	}
	g.recorder(func(_ *audit.Recorder, l *audit.Log) {
		for _, one := range []struct{ kind, body string }{
			{"verdict", swap(`"args_digest":"`+args.Digest(), `"args_digest":"sha256:00`)},
			{"verdict", swap(`is right`, `is wrong`)}, // of the record alone, which no approver signs
			{"verdict", strings.ReplaceAll(body, `is right`, `is wrong`)},
			{"verdict", swap(`"yes":true`, `"yes":false`)},
			{"verdict", regexp.MustCompile(`"key":.*`).ReplaceAllString(
				swap(`"args_digest":"`+args.Digest(), `"args_digest":"sha256:00`), `"x":1}`)},
			{"verdict", swap(`"args_digest":"`+args.Digest(), `"public_key":"x","args_digest":"sha256:00`)},
			{"verdict", swap(`"args_digest":"`+args.Digest(), `"refusal":"x","args_digest":"sha256:00`)},
			{"verdict", swap(`"args_digest":"`, `"args_digest":"sha256:00","Args_Digest":"`)},
			{"verdict", regexp.MustCompile(`"answered_at":"....`).ReplaceAllString(body, `"answered_at":"2020`)},
			{"approver", strings.Replace(string(enrolment.Body), `"approver":"ann"`, `"approver":"bob"`, 1)},
			{"change", string(enrolment.Body)},
		} {
			if _, err := l.Append(t.Context(), one.kind, []byte(one.body), true); err != nil {
				t.Fatal(err)
			}
		}
	})
	dir := t.TempDir()
	rules, at := g.vouched()
	file := func(name string, b []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	policy := file("policy", rules)
	receipt := func(seq uint64) string {
		b, err := g.tree.Receipt(at, g.record(seq))
		if err != nil {
			t.Fatal(err)
		}
		return file(strconv.FormatUint(seq, 10), b)
	}
	key := receipt(enrolment.Seq)
	for seq, want := range map[uint64]string{
		4: "approver:ann signed yes=true to the arguments " + args.Digest() + ", with the key " + digest(hexOf(pub)),
		5: "the record is not what was signed", 6: "the record is not what was signed",
		9:  "not checked: it bears no signature",
		10: "the record is not what was signed", 11: "the record is not what was signed",
		12: "with a record of waldo", 13: "the record is not what was signed",
		7: "the signature does not hold",
		8: "the record is not what was signed",
	} {
		out, err := exec.Command(tool, policy, receipt(seq), key).CombinedOutput()
		if sound := strings.Contains(want, "signed yes"); !strings.Contains(string(out), want) || (err == nil) != sound {
			t.Errorf("record %d: %v: %s", seq, err, out)
		}
		var said bytes.Buffer // waldo looks at the reason of the record, too
		err = Evidence{}.Receipt(&said, []string{receipt(seq), key}, policy, false)
		if (err == nil) != (seq == 4) {
			t.Errorf("record %d: waldo log verify --proof: %v: %s", seq, err, said.String())
		}
	}
	out, err := exec.Command(tool, policy, receipt(4)).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not checked: add the receipt of the enrolment of the key "+digest(hexOf(pub))) {
		t.Errorf("without the enrolment: %v: %s", err, out)
	}
	for _, seq := range []uint64{14, 15} { // another's enrolment, and a record that is none
		out, err := exec.Command(tool, policy, receipt(4), receipt(seq)).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "not checked: add the receipt of the enrolment") {
			t.Errorf("with the key of record %d: %v: %s", seq, err, out)
		}
	}
	var said bytes.Buffer
	var exit *exitcode.Exit
	if err := (Evidence{}).Receipt(&said, []string{receipt(4)}, policy, false); !errors.As(err, &exit) ||
		exit.Code != exitcode.Usage ||
		!strings.Contains(said.String(), "not checked: answer.key") {
		t.Errorf("waldo without the enrolment: %v: %s", err, said.String())
	}
	source, err := os.ReadFile("../../../cmd/waldo-receipt/main.go")
	if lines := bytes.Count(source, []byte("\n")); err != nil || lines > 460 { // as docs/evidence.md has it
		t.Errorf("the verifier has %d lines: %v", lines, err)
	}
}

// TestStandalonePasskey: the same with passkeys of both kinds. The attacker also has a browser that lies.
func TestStandalonePasskey(t *testing.T) {
	tool := standalone(t)
	for _, key := range []*passkeytest.Authenticator{
		passkeytest.New("http://localhost:7677", "localhost"), passkeytest.NewEdDSA("https://waldo.example", "waldo.example"),
	} {
		g := newGround(t, 1)
		credential, draft := passkeyYes(t, g, key)
		body := string(g.record(4).Body)
		original := body[strings.Index(body, `"signature":"`)+13:]
		original = original[:strings.Index(original, `"`)]
		with := func(change func(*passkeytest.Authenticator)) []byte {
			other := *key
			change(&other)
			return other.Sign(draft)
		}
		stranger := passkeytest.New(key.Origin, key.RPID)
		stranger.ID = key.ID
		rows := []struct {
			assertion []byte
			want      string
		}{
			{key.Sign(draft), ""},
			{key.Sign([]byte("waldo approval answer v3\n{}")), "the passkey signed another answer"},
			{stranger.Sign(draft), "the signature does not hold"},
			{with(func(a *passkeytest.Authenticator) { a.ID = []byte("another") }), "the passkey is another one"},
			{with(func(a *passkeytest.Authenticator) { a.Unverified = true }), "or did not verify its user"},
			{with(func(a *passkeytest.Authenticator) { a.Absent = true }), "or did not verify its user"},
			{with(func(a *passkeytest.Authenticator) { a.Origin = "https://evil.example" }), "signed elsewhere"},
			{with(func(a *passkeytest.Authenticator) { a.RPID = "evil.example" }), "signed elsewhere"},
			{with(func(a *passkeytest.Authenticator) { a.CrossOrigin = true }), "signed elsewhere"},
			{with(func(a *passkeytest.Authenticator) { a.Extra = map[string]any{"topOrigin": "https://evil.example"} }), "signed elsewhere"},
			{with(func(a *passkeytest.Authenticator) { a.Extra = map[string]any{"type": "webauthn.create"} }), "signed another answer"},
			{[]byte(`{}`), "it is not a passkey's assertion"},
		}
		bodies := []string{strings.ReplaceAll(body, `is right`, `is wrong`)}
		for _, row := range rows {
			bodies = append(bodies, strings.Replace(body, original, base64.StdEncoding.EncodeToString(row.assertion), 1))
		}
		g.recorder(func(_ *audit.Recorder, l *audit.Log) {
			for _, one := range bodies {
				if _, err := l.Append(t.Context(), "verdict", []byte(one), true); err != nil {
					t.Fatal(err)
				}
			}
		})
		dir := t.TempDir()
		rules, at := g.vouched()
		verify := func(seqs ...uint64) (string, error) {
			args := []string{filepath.Join(dir, "policy")}
			if err := os.WriteFile(args[0], rules, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, seq := range seqs {
				b, err := g.tree.Receipt(at, g.record(seq))
				file := filepath.Join(dir, strconv.FormatUint(seq, 10))
				if err = errors.Join(err, os.WriteFile(file, b, 0o600)); err != nil {
					t.Fatal(err)
				}
				args = append(args, file)
			}
			out, err := exec.Command(tool, args...).CombinedOutput()
			return string(out), err
		}
		yes := "approver:carol signed yes=true to the arguments sha256:"
		if out, err := verify(4, 3); err != nil || !strings.Contains(out, yes) || !strings.Contains(out, digest(credential)) {
			t.Errorf("control: %v: %s", err, out)
		}
		if out, err := verify(4); err == nil || !strings.Contains(out, "not checked: add the receipt of the enrolment") {
			t.Errorf("without the enrolment: %v: %s", err, out)
		}
		if out, err := verify(5, 3); err == nil || !strings.Contains(out, "the passkey signed another answer") {
			t.Errorf("a changed answer: %v: %s", err, out)
		}
		for i, row := range rows {
			out, err := verify(uint64(6+i), 3)
			if sound := row.want == ""; (err == nil) != sound || !strings.Contains(out, cmp.Or(row.want, yes)) {
				t.Errorf("row %d: %v: %s, want %q", i, err, out, row.want)
			}
		}
	}
}

// passkeyYes enrols carol's passkey as record 3 and records its yes as record 4. It returns the credential's text and
// the message that was signed.
func passkeyYes(t *testing.T, g *ground, key *passkeytest.Authenticator) (credential string, message []byte) {
	t.Helper()
	challenge := passkey.Challenge([]byte("new"))
	c, err := passkey.Register(key.Create(challenge), challenge, key.Origin)
	if err != nil {
		t.Fatal(err)
	}
	args, err := call.ParseArgs([]byte(`{"to":"b@example.com"}`))
	if err != nil {
		t.Fatal(err)
	}
	d := decided(1, "mail.send", policy.Ask, contract.Write)
	d.Call.Args, d.Contract.Approval = args, contract.Approval{When: contract.Always}
	g.recorder(func(r *audit.Recorder, l *audit.Log) {
		ctx := t.Context()
		desk := &approval.Service{Store: g.store, Witness: &audit.Witness{Dir: g.tree.Dir}, Records: audit.Desk{Recorder: r, User: "os:1000"}}
		a, err := desk.NewApprover("carol", nil, c.Text(), "carol")
		if err != nil {
			t.Fatal(err)
		}
		err = desk.EnrollSigned(ctx, a, key.Sign(a.Message()))
		_, asked, aerr := desk.Ask(ctx, d)
		q, _, qerr := desk.Question(ctx, asked)
		draft, derr := desk.Draft(ctx, "carol", q, true, "it is right")
		if err = errors.Join(err, aerr, qerr, derr); err != nil {
			t.Fatal(err)
		}
		message = draft.Message()
		if err := desk.Settle(ctx, draft, key.Sign(message)); err != nil {
			t.Fatal(err)
		}
	})
	return c.Text(), message
}

func hexOf(b []byte) string     { return hex.EncodeToString(b) }
func digest(text string) string { return strictjson.Digest([]byte(text)) }
