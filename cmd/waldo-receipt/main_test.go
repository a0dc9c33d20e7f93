package main

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"waldo/internal/feature/evidence"
	"waldo/internal/model/call"
)

// ground is a log whose key the attacker has, and its policy. The keys of approvers are their own.
type ground struct {
	testing.TB
	dir, policy string
	signers     []note.Signer
	at          map[int]string // times of records, by their place; else 05:00
}

const origin = "waldo/0123456789abcdef/1"

func newGround(t testing.TB) *ground {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		t.Fatal(err)
	}
	log, err := note.NewSigner(private)
	w, werr := torchwood.NewCosignatureSigner("w.example", ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil || werr != nil {
		t.Fatal(err, werr)
	}
	g := &ground{TB: t, dir: t.TempDir(), signers: []note.Signer{log, w}}
	g.policy = g.file("policy", fmt.Appendf(nil, "log %s\nwitness w %s\n# root %s\nquorum w\n", public, w.Verifier(),
		newPerson("ann", 0).fingerprint()))
	return g
}

func (g *ground) file(name string, b []byte) string {
	name = filepath.Join(g.dir, name)
	if err := os.WriteFile(name, b, 0o600); err != nil {
		g.Fatal(err)
	}
	return name
}

// receipts are those of the records of a log, each "KIND BODY".
func (g *ground) receipts(records ...string) (files []string) {
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(at []int64) (out []tlog.Hash, _ error) {
		for _, i := range at {
			out = append(out, stored[i])
		}
		return out, nil
	})
	var lines [][]byte
	for i, one := range records {
		kind, body, _ := strings.Cut(one, " ")
		head := fmt.Sprintf(`{"v":1,"seq":%d,"id":"e_%s","at":"%s","prev":"%064d","kind":"%s","body":%s`, i+1,
			strings.Repeat("a", 26), cmp.Or(g.at[i], "2026-11-28T05:00:00.000Z"), 0, kind, body)
		leaf := sha256.Sum256([]byte(head))
		lines = append(lines, fmt.Appendf(nil, `%s,"hash":"%x"}`, head, leaf))
		more, err := tlog.StoredHashesForRecordHash(int64(i), tlog.RecordHash(leaf[:]), reader)
		if err != nil {
			g.Fatal(err)
		}
		stored = append(stored, more...)
	}
	n := int64(len(records))
	root, err := tlog.TreeHash(n, reader)
	if err != nil {
		g.Fatal(err)
	}
	signed, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n%d\n%v\n", origin, n, root)}, g.signers...)
	if err != nil {
		g.Fatal(err)
	}
	for i, line := range lines {
		proof, err := tlog.ProveRecord(n, int64(i), reader)
		if err != nil {
			g.Fatal(err)
		}
		b := torchwood.FormatProofWithExtraData(int64(i), line, proof, signed)
		files = append(files, g.file(fmt.Sprint(i+1), b))
	}
	return files
}

// agree runs both verifiers. What this one takes, waldo takes.
func (g *ground) agree(name string, files ...string) (alone, waldo bool) {
	g.Helper()
	faults := run(g.policy, files)
	err := evidence.Evidence{}.Receipt(io.Discard, files, g.policy, false)
	if len(faults) == 0 && err != nil {
		g.Errorf("%s: waldo refuses it: %v", name, err)
	}
	return len(faults) == 0, err == nil
}

// person is an approver with a key of the test.
type person struct {
	name string
	key  ed25519.PrivateKey
}

func newPerson(name string, n byte) person {
	return person{name, ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune('a'+n)), ed25519.SeedSize)))}
}

func (p person) public() string { return hex.EncodeToString(p.key.Public().(ed25519.PublicKey)) }
func (p person) fingerprint() string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(p.public())))
}
func (p person) sign(text []byte) string {
	return base64.StdEncoding.EncodeToString(ed25519.Sign(p.key, text))
}

const signedAt = "2026-11-28T04:00:00Z"

// enrols is the record of an enrolment that p signs.
func (p person) enrols(who person, at string) string {
	text := canonical("waldo approver v1\n", map[string]any{"at": at, "by": p.name, "key": who.public(),
		"name": who.name, "roles": []string{}})
	return encode("approver", map[string]any{"action": "enrol", "approver": who.name, "key": who.fingerprint(),
		"public_key": who.public(), "by": p.name, "signed_at": at, "signature": p.sign(text), "principal": "os:1"})
}

func (p person) revokes(who person, at string) string {
	text := []byte("waldo approver revoked v1\n" + who.name + "\n" + at)
	return encode("approver", map[string]any{"action": "revoke", "approver": who.name, "by": p.name, "signed_at": at,
		"signature": p.sign(text), "principal": "os:1"})
}

// says is a signed yes to a question that needs some approvers.
func (p person) says(need int, shown string) map[string]any {
	s := map[string]any{"approval_id": "q", "args_digest": "sha256:a", "at": signedAt, "binding": "b", "by": p.name,
		"created": signedAt, "expires": signedAt, "key": p.fingerprint(), "reason": "it is right", "shown": shown, "yes": true}
	if need > 0 {
		s["need"] = need
	}
	return map[string]any{"by": "approver:" + p.name, "key": p.fingerprint(), "signed": s,
		"signature": p.sign(canonical("waldo approval answer v3\n", s))}
}

func answers(kind string, first map[string]any, also ...map[string]any) string {
	body := map[string]any{"decision_id": "d", "call_id": "c", "approval_id": "q", "capability": "x.y",
		"args_digest": "sha256:a", "yes": true, "reason": "it is right", "answered_at": signedAt}
	for name, v := range first {
		body[name] = v
	}
	if len(also) > 0 {
		body["also"] = also
	}
	return encode(kind, body)
}

func encode(kind string, body any) string {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return kind + " " + string(b)
}

// TestApprovers: the verifier counts the approvers that an answer needs, and looks at who enrolled and revoked them, as
// waldo log verify --proof does.
func TestApprovers(t *testing.T) {
	ann, bob, eve := newPerson("ann", 0), newPerson("bob", 1), newPerson("eve", 2)
	root, second := ann.enrols(ann, signedAt), ann.enrols(bob, signedAt)
	const later = "2026-11-28T04:30:00Z"
	decided := func(id, args, effect string) string {
		return encode("decision", map[string]any{"decision_id": id, "call_id": "c", "capability": "x.y", "args_digest": args,
			"effect": effect})
	}
	yes := answers("answer", ann.says(0, "s"))
	for _, row := range []struct {
		why     string
		sound   bool
		records []string
	}{
		{"control: one of one", true, []string{root, answers("answer", ann.says(0, "s"))}},
		{"control: two of two", true, []string{root, second, answers("answer", ann.says(2, "s"), bob.says(2, "s"))}},
		{"control: a first yes of two", true, []string{root, answers("verdict", ann.says(2, "s"))}},
		{"one of two", false, []string{root, second, answers("answer", ann.says(2, "s"))}},
		{"one of two, twice", false, []string{root, answers("answer", ann.says(2, "s"), ann.says(2, "s"))}},
		{"one of two, whose other is to another question", false,
			[]string{root, second, answers("answer", ann.says(2, "s"), bob.says(2, "other"))}},
		{"one of three, whose other says two", false,
			[]string{root, second, answers("answer", ann.says(2, "s"), bob.says(3, "s"))}},
		{"enrolled by nobody", false, []string{root, eve.enrols(bob, signedAt), answers("answer", bob.says(0, "s"))}},
		{"enrolled by who is no first approver", false,
			[]string{root, second, bob.enrols(eve, signedAt), answers("answer", eve.says(0, "s"))}},
		{"revoked before", false, []string{root, second, ann.revokes(bob, later), answers("answer", bob.says(0, "s"))}},
		{"control: revoked after", true,
			[]string{root, second, answers("answer", bob.says(0, "s")), ann.revokes(bob, later)}},
		{"enrolled again as it was", false,
			[]string{root, second, ann.revokes(bob, later), second, answers("answer", bob.says(0, "s"))}},
		{"enrolled late, and revoked since", false,
			[]string{root, ann.revokes(bob, later), second, answers("answer", bob.says(0, "s"))}},
		{"control: its decision", true, []string{root, decided("d", "sha256:a", "ask"), yes}},
		{"the decision was about other arguments", false, []string{root, decided("d", "sha256:b", "ask"), yes}},
		{"the decision was a denial", false, []string{root, decided("d", "sha256:a", "deny"), yes}},
		{"another decision under the id", false,
			[]string{root, decided("d", "sha256:b", "ask"), decided("d", "sha256:a", "ask"), yes}},
		{"another call of the decision", false,
			[]string{root, decided("d", "sha256:a", "ask"), strings.Replace(yes, `"call_id":"c"`, `"call_id":"e"`, 1)}},
		{"used twice", false, []string{root, yes, strings.Replace(yes, `"decision_id":"d"`, `"decision_id":"e"`, 1)}},
		{"used for another capability", false,
			[]string{root, answers("verdict", ann.says(0, "s")), strings.Replace(yes, `"x.y"`, `"x.z"`, 1)}},
		{"more than was signed", false, []string{root, strings.Replace(yes, `"signed":{`, `"signed":{"args":"all",`, 1)}},
		{"a second root", false, []string{root, eve.enrols(eve, signedAt), answers("answer", eve.says(0, "s"))}},
		{"another root alone", false, []string{eve.enrols(eve, signedAt)}},
		{"another key with the root's name", false, []string{newPerson("ann", 2).enrols(newPerson("ann", 2), signedAt)}},
		{"another root that claims the root's key", false, []string{strings.Replace(eve.enrols(eve, signedAt),
			eve.fingerprint(), ann.fingerprint(), 1)}},
		{"revoked by nobody", false, []string{root, second, eve.revokes(bob, later), answers("answer", bob.says(0, "s"))}},
	} {
		g := newGround(t)
		alone, waldo := g.agree(row.why, g.receipts(row.records...)...)
		if alone != row.sound || waldo != row.sound {
			t.Errorf("%s: alone %t, waldo %t", row.why, alone, waldo)
		}
	}
}

// TestArguments: both verifiers hold the arguments in the record of a decision against their digest, each byte of the
// RFC 8785 form. Redacted ones are named.
func TestArguments(t *testing.T) {
	const args = "{\"a\":\"é\U0001f600\\u0001\\\\u00e9 \u007f\u2028\",\"b\":10000000000000000001}"
	const ascii = `{"a":"\u00e9\ud83d\ude00\u0001\\u00e9 \u007f\u2028","b":10000000000000000001}`
	parsed, err := call.ParseArgs([]byte(args))
	if err != nil || parsed.Digest() != digest(args) {
		t.Fatalf("%v: %s is not the digest of the canonical form", err, parsed.Digest())
	}
	decided := func(members string) string {
		return `decision {"decision_id":"d","args_digest":"` + digest(args) + `"` + members + `}`
	}
	for _, row := range []struct {
		why     string
		sound   bool
		members string
	}{
		{"control", true, `,"args":` + ascii},
		{"control: none", true, ""},
		{"control: left out", true, `,"args":null`},
		{"control: redacted", true, `,"args":{"a":"[secret]"},"args_redacted":true`},
		{"others", false, `,"args":` + strings.Replace(ascii, "01}", "02}", 1)},
		{"others, of which it says that they are whole", false, `,"args":{"a":"[secret]"},"args_redacted":false`},
		{"a word for redacted", false, `,"args":{"a":"[secret]"},"args_redacted":"true"`},
		{"an escape more", false, `,"args":` + strings.Replace(ascii, "a", `\u0061`, 1)},
		{"a name twice", false, `,"args":` + strings.Replace(ascii, "{", `{"b":1,`, 1)},
		{"empty", false, `,"args":{}`},
		{"a text", false, `,"args":""`},
	} {
		g := newGround(t)
		files := g.receipts(decided(row.members))
		alone, waldo := g.agree(row.why, files...)
		if alone != row.sound || waldo != row.sound {
			t.Errorf("%s: alone %t, waldo %t", row.why, alone, waldo)
		}
		if got := fmt.Sprint(run(g.policy, files)); !row.sound && !strings.Contains(got, "not those that were decided") {
			t.Errorf("%s: %s", row.why, got)
		}
	}
}

// TestTimes: an approver signs when they answer. Both verifiers hold that against the question, the record and the end
// of the call, within two minutes.
func TestTimes(t *testing.T) {
	ann := newPerson("ann", 0)
	says := func(created, at, expires string) string {
		one := ann.says(0, "s")
		s := one["signed"].(map[string]any)
		s["created"], s["at"], s["expires"] = created, at, expires
		one["signature"], one["answered_at"] = ann.sign(canonical("waldo approval answer v3\n", s)), at
		return answers("answer", one)
	}
	const end, late = "2026-11-28T05:01:59.000Z", "2026-11-28T05:02:01.000Z" // records are of 05:00
	ended := `outcome {"decision_id":"d","status":"ok"}`
	for _, row := range []struct {
		why     string
		sound   bool
		records []string
	}{
		{"control", true, []string{says(signedAt, signedAt, signedAt), ended}},
		{"control: two minutes before the question", true, []string{says(signedAt, "2026-11-28T03:58:00Z", signedAt)}},
		{"before the question", false, []string{says(signedAt, "2026-11-28T03:57:59Z", signedAt)}},
		{"control: two minutes after its end", true, []string{says(signedAt, "2026-11-28T04:02:00Z", signedAt)}},
		{"after its end", false, []string{says(signedAt, "2026-11-28T04:02:01Z", signedAt)}},
		{"control: a clock ahead of the log's", true, []string{says(signedAt, end, end), ended}},
		{"after its record", false, []string{says(signedAt, late, late)}},
		{"no time", false, []string{says(signedAt, "", signedAt)}},
		{"no time of the question", false, []string{says("", signedAt, signedAt)}},
	} {
		g := newGround(t)
		alone, waldo := g.agree(row.why, g.receipts(append([]string{ann.enrols(ann, signedAt)}, row.records...)...)...)
		if alone != row.sound || waldo != row.sound {
			t.Errorf("%s: alone %t, waldo %t", row.why, alone, waldo)
		}
	}
	for at, sound := range map[string]bool{signedAt: true, "2026-11-28T03:57:59Z": false} {
		g := newGround(t)
		g.at = map[int]string{2: at[:len(at)-1] + ".000Z"}
		root, yes := ann.enrols(ann, signedAt), says(signedAt, signedAt, signedAt)
		alone, waldo := g.agree("ended", g.receipts(root, yes, ended)...)
		if alone != sound || waldo != sound {
			t.Errorf("a call that ended at %s: alone %t, waldo %t", at, alone, waldo)
		}
	}
}

// TestPolicies: no key of a witness counts twice, and no name is given twice.
func TestPolicies(t *testing.T) {
	log, err := os.ReadFile(newGround(t).policy)
	if err != nil {
		t.Fatal(err)
	}
	head := strings.TrimSuffix(string(log), "quorum w\n")
	for text, sound := range map[string]bool{
		"quorum w\n": true, "group g all w\nquorum g\n": true, "group g 2 w w\nquorum g\n": false,
		"group a any w\ngroup b any w\ngroup g all a b\nquorum g\n": false, "group none any w\nquorum none\n": false,
		"group g any v\nquorum g\n": false, "group w any w\nquorum w\n": false, "quorum v\n": false, "": false,
	} {
		if _, err := parsePolicy(head + text); (err == nil) != sound {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestUnchecked: what a policy does not let a verifier check is a line and an exit code of both.
func TestUnchecked(t *testing.T) {
	ann := newPerson("ann", 0)
	for _, row := range []struct{ why, from, to, want, code string }{
		{"control", "quorum", "quorum", "", ""},
		{"no witness", "quorum w", "quorum none", "no witness cosigned", "witness.none"},
		{"no witness, by its name", "quorum w", "group none any w\nquorum none", "", ""},
		{"no root", "# root", "# roots", "the policy names no root", "approver.root"},
	} {
		g := newGround(t)
		policy, err := os.ReadFile(g.policy)
		if err != nil {
			t.Fatal(err)
		}
		if row.why == "no witness" {
			g.signers = g.signers[:1]
		}
		g.file("policy", []byte(strings.Replace(string(policy), row.from, row.to, 1)))
		files := g.receipts(ann.enrols(ann, signedAt))
		var said strings.Builder
		err = evidence.Evidence{}.Receipt(&said, files, g.policy, false)
		if got := fmt.Sprint(run(g.policy, files)); !strings.Contains(got, row.want) || (got == "[]") != (row.why == "control") {
			t.Errorf("%s: alone: %s", row.why, got)
		}
		if row.code != "" && (err == nil || !strings.Contains(said.String(), "not checked: "+row.code)) ||
			row.why == "control" && err != nil {
			t.Errorf("%s: waldo: %v: %s", row.why, err, said.String())
		}
	}
	if _, err := read("/dev/zero"); err == nil && runtime.GOOS != "windows" {
		t.Error("a file without an end is read")
	}
}

// TestShown: what a record says reaches the terminal without control characters and lines of its own.
func TestShown(t *testing.T) {
	g := newGround(t)
	ann := newPerson("ann", 0)
	files := g.receipts(ann.enrols(ann, signedAt), `verdict {"refusal":"\u001b[2J\nx: sound","yes":false}`,
		`verdict {"by":"approver:\u009b2J\u0007","yes":true,"signature":"x","signed":{}}`)
	text, faults := printed(t, g.policy, files)
	text += fmt.Sprint(faults)
	if len(faults) != 1 || !strings.Contains(text, `waldo refused (\x1b[2J\nx: sound)`) ||
		strings.ContainsFunc(text, func(c rune) bool { return c != '\n' && !strconv.IsPrint(c) }) {
		t.Errorf("%q", text)
	}
	if shown("approver:anné") != "approver:anné" {
		t.Error("control: a name is shown as it is")
	}
}

// TestOneOfTwo: where two approvers must agree, both verifiers say how many of them a record has.
func TestOneOfTwo(t *testing.T) {
	g := newGround(t)
	ann, bob := newPerson("ann", 0), newPerson("bob", 1)
	files := g.receipts(ann.enrols(ann, signedAt), ann.enrols(bob, signedAt), answers("verdict", ann.says(2, "s")),
		answers("verdict", bob.says(2, "s")), answers("answer", ann.says(2, "s"), bob.says(2, "s")))
	var waldo strings.Builder
	if err := (evidence.Evidence{}).Receipt(&waldo, files, g.policy, false); err != nil {
		t.Fatal(err)
	}
	alone, faults := printed(t, g.policy, files)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	for _, want := range []string{"approver:ann (1 of 2 who must agree)", "approver:bob (1 of 2 who must agree)",
		"yes by approver:ann and approver:bob\n"} {
		if strings.Count(waldo.String(), want) != 1 {
			t.Errorf("%q is not there once: %s", want, waldo.String())
		}
	}
	if strings.Count(alone, ", 1 of 2 who must agree") != 3 || strings.Count(alone, ", 2 of 2 who must agree") != 1 {
		t.Errorf("%s", alone)
	}
}

// printed is what the verifier prints about receipts.
func printed(t *testing.T, policy string, files []string) (string, []error) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stdout
	os.Stdout = out
	faults := run(policy, files)
	os.Stdout = was
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text), faults
}

// TestOtherTypes: no value of another type, in the place of any in a record, ends the verifier or makes it take what
// waldo refuses. Arrays did: they are not comparable.
func TestOtherTypes(t *testing.T) {
	g := newGround(t)
	ann, bob := newPerson("ann", 0), newPerson("bob", 1)
	root, second := ann.enrols(ann, signedAt), ann.enrols(bob, signedAt)
	two := answers("answer", ann.says(2, "s"), bob.says(2, "s"))
	for _, record := range []string{two, second, ann.revokes(bob, signedAt)} {
		kind, text, _ := strings.Cut(record, " ")
		var body any
		if err := json.Unmarshal([]byte(text), &body); err != nil {
			t.Fatal(err)
		}
		try := func() bool {
			alone, _ := g.agree(record, g.receipts(root, second, encode(kind, body))...)
			return alone
		}
		if !try() {
			t.Fatalf("control: %s", record)
		}
		n := 0
		each(body, func(set func(any), was any) {
			for _, v := range []any{nil, true, 1, "", []any{}, []any{"a"}, map[string]any{},
				[]any{map[string]any{"by": was}}} {
				set(v)
				_ = try()
				n++
			}
			set(was)
		})
		if n < 40 || !try() {
			t.Errorf("control: %d values", n)
		}
	}
}

// each calls fn for each value within one, with what sets it.
func each(v any, fn func(set func(any), was any)) {
	switch v := v.(type) {
	case map[string]any:
		for name, was := range v {
			fn(func(now any) { v[name] = now }, was)
			each(was, fn)
		}
	case []any:
		for i, was := range v {
			fn(func(now any) { v[i] = now }, was)
			each(was, fn)
		}
	}
}

// FuzzAgrees: whatever record the key of the log has signed, and whatever bytes a receipt has, this verifier agrees
// with waldo log verify --proof, or refuses.
func FuzzAgrees(f *testing.F) {
	g := newGround(f)
	ann, bob := newPerson("ann", 0), newPerson("bob", 1)
	root, second := ann.enrols(ann, signedAt), ann.enrols(bob, signedAt)
	two := answers("answer", ann.says(2, "s"), bob.says(2, "s"))
	for _, record := range []string{two, answers("verdict", ann.says(0, "s")), second, ann.revokes(bob, signedAt),
		strings.Replace(two, `"q"`, `["q"]`, 2), strings.Replace(two, `"yes"`, `"Yes":false,"yes"`, 1),
		strings.Replace(two, `"d"`, `"\u0064","\ud800":{}`, 1), `trust {"key":[]}`, `outcome {"decision_id":"d"}`,
		`decision {"args":{},"args_digest":"` + digest("{}") + `"}`, `decision {"args":{"A":1,"A":2}}`} {
		f.Add(record, 0, byte(0))
		f.Add(record, 300, byte(2))
	}
	f.Fuzz(func(t *testing.T, record string, at int, with byte) {
		g := &ground{TB: t, dir: g.dir, policy: g.policy, signers: g.signers}
		files := g.receipts(root, second, record)
		b, err := os.ReadFile(files[2])
		if err != nil {
			t.Fatal(err)
		}
		if at >= 0 && at < len(b) {
			b[at] ^= with
		}
		g.file("3", b)
		g.agree(record, files...)
	})
}
