// Command waldo-receipt verifies receipts of waldo's log (C2SP tlog-proof) against a policy (C2SP tlog-policy), and the
// approvers' signatures in them. It needs no part of waldo: the standard library and golang.org/x/mod.
package main

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: waldo-receipt POLICY RECEIPT..")
		os.Exit(2)
	}
	faults := run(os.Args[1], os.Args[2:])
	for _, fault := range faults {
		fmt.Fprintf(os.Stderr, "waldo-receipt: %v\n", fault)
	}
	os.Exit(min(len(faults), 1))
}

// run checks receipts, and then the records in the order of the log: enrolments bring the keys for later answers.
func run(policyFile string, files []string) (faults []error) {
	text, err := read(policyFile)
	p, perr := parsePolicy(text)
	if err = cmp.Or(err, perr); err != nil {
		return []error{fmt.Errorf("%s: %w", policyFile, err)}
	}
	var all []record
	for _, file := range files {
		r, err := p.verify(file)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", file, err))
			continue
		}
		fmt.Printf("%s: sound, in the log %s of %d records%s\n%s\n", file, p.log.Name(), r.of, map[bool]string{
			true: "; its arguments are redacted and not compared with their digest"}[r.Redacted], r.line)
		if r.alone {
			faults = append(faults, fmt.Errorf("%s: not checked: no witness cosigned the checkpoint", file))
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b record) int { return cmp.Compare(a.seq, b.seq) })
	l := ledger{root: p.root, keys: map[string]holder{}, about: map[string]string{}}
	for _, r := range all {
		if err := l.take(r); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", r.file, err))
		}
	}
	return faults
}

// read reads a file of at most 64 MiB.
func read(name string) (string, error) {
	f, err := os.Open(name)
	b, rerr := io.ReadAll(io.LimitReader(f, 64<<20+1))
	return string(b), cmp.Or(err, rerr, f.Close(), must(len(b) <= 64<<20, "it has more than 64 MiB"))
}

// must is nil where a check holds.
func must(holds bool, fault string) error {
	if holds {
		return nil
	}
	return errors.New(fault)
}

// policy has the keys of a log and of witnesses, whose signatures a checkpoint needs, and the first approver's key.
type policy struct {
	root   string
	log    note.Verifier
	keys   []note.Verifier
	quorum rule
}

// rule reports whether signatures, which hold, are enough.
type rule func([]note.Signature) bool

func signedBy(v note.Verifier) rule {
	return func(all []note.Signature) bool {
		return slices.ContainsFunc(all, func(s note.Signature) bool { return s.Name == v.Name() && s.Hash == v.KeyHash() })
	}
}

func parsePolicy(text string) (p policy, err error) {
	p.root = append(rootForm.FindStringSubmatch(text), "", "")[1]
	members := map[string]rule{"none": func([]note.Signature) bool { return true }}
	taken := func(name string) bool { return slices.Contains(slices.Collect(maps.Keys(members)), name) }
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		switch f := strings.Fields(line); {
		case len(f) == 0:
			continue
		case len(f) > 1 && f[0] == "log" && p.log == nil:
			p.log, err = note.NewVerifier(f[1])
			p.keys = append(p.keys, p.log)
		case len(f) > 2 && f[0] == "witness" && !taken(f[1]):
			key, kerr := newCosigner(f[2])
			p.keys, members[f[1]], err = append(p.keys, key), signedBy(key), kerr
		case len(f) > 3 && f[0] == "group" && !taken(f[1]):
			members[f[1]], err = group(f[2], f[3:], members)
		case len(f) == 2 && f[0] == "quorum" && p.quorum == nil && members[f[1]] != nil:
			p.quorum = members[f[1]]
		default:
			err = errors.New("it is no log, witness, group or quorum, names one that is not known, or one again")
		}
		if err != nil {
			return p, fmt.Errorf("the line %q of the policy: %w", line, err)
		}
	}
	return p, must(p.quorum != nil && p.log != nil, "a policy needs a log and a quorum")
}

// group is the rule that some members must sign. Each can be in one group, so that no key counts twice.
func group(some string, of []string, members map[string]rule) (rule, error) {
	var free []rule
	for _, one := range of {
		if one != "none" && members[one] != nil {
			free, members[one] = append(free, members[one]), nil
		}
	}
	n, _ := strconv.Atoi(some)
	n = cmp.Or(map[string]int{"all": len(of), "any": 1}[some], n)
	return func(all []note.Signature) bool {
		lacks := func(r rule) bool { return !r(all) }
		return len(slices.DeleteFunc(slices.Clone(free), lacks)) >= n
	}, must(1 <= n && n <= len(of) && len(free) == len(of), "a member is not free, or the number is out of range")
}

// cosigner verifies the cosignatures of a witness (C2SP tlog-cosignature, cosignature/v1).
type cosigner struct {
	name string
	key  []byte // its type, 4, and an Ed25519 key
}

func newCosigner(vkey string) (*cosigner, error) {
	f := append(strings.SplitN(vkey, "+", 3), "", "")
	key, err := base64.StdEncoding.DecodeString(f[2])
	c := &cosigner{f[0], key}
	ok := len(key) == 1+ed25519.PublicKeySize && key[0] == 4 && f[1] == fmt.Sprintf("%08x", c.KeyHash())
	return c, cmp.Or(err, must(ok, "it is not the key of a witness"))
}

func (c *cosigner) Name() string { return c.name }
func (c *cosigner) KeyHash() uint32 {
	sum := sha256.Sum256(append([]byte(c.name+"\n"), c.key...))
	return binary.BigEndian.Uint32(sum[:])
}
func (c *cosigner) Verify(msg, sig []byte) bool {
	return len(sig) == 8+ed25519.SignatureSize && ed25519.Verify(c.key[1:],
		fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", binary.BigEndian.Uint64(sig), msg), sig[8:])
}

// record is one that a receipt proves, in a log of so many.
type record struct {
	file, line, kind, at string
	body
	seq, of int64
	alone   bool // no witness cosigned
}

var (
	receiptForm = regexp.MustCompile(`^c2sp\.org/tlog-proof@v1\nextra (\S+)\nindex (0|[1-9]\d*)((?:\n\S{44})*)\n\n`)
	recordForm  = regexp.MustCompile(`^({"v":1,"seq":(\d+),"id":"e_[a-z2-7]{26}","at":"(.{10}T.{8}\.\d{3}Z)",` +
		`"prev":"[0-9a-f]{64}","kind":"([a-z_]{1,32})","body":({[ -~]*})),"hash":"([0-9a-f]{64})"}$`)
	rootForm   = regexp.MustCompile(`(?m)^# root (sha256:[0-9a-f]{64})$`)
	namesForm  = regexp.MustCompile(`^[a-z0-9_-]*$`)
	answerForm = regexp.MustCompile(`^approval_id args_digest at binding by (calls )?created expires key (need )?` +
		`reason (root )?shown (struck )?yes$`)
	plainForm = regexp.MustCompile(`\\ud[89ab]..\\ud[c-f]..|\\u....|\\.`)
	coseForm  = regexp.MustCompile(`^(?:a5010203262001215820(.{64})225820(.{64})|a4010103272006215820(.{64}))$`)
)

// verify checks a receipt: the record, its place in the tree, and the checkpoint with its signatures.
func (p policy) verify(file string) (r record, err error) {
	receipt, err := read(file)
	f := append(receiptForm.FindStringSubmatch(receipt), "", "", "", "")
	line, lerr := base64.StdEncoding.DecodeString(f[1])
	m := append(recordForm.FindStringSubmatch(string(line)), "", "", "", "", "", "", "")
	index, ierr := strconv.ParseInt(f[2], 10, 64)
	_, aerr := time.Parse(time.RFC3339, m[3])
	if cmp.Or(err, lerr, ierr, aerr) != nil || !spelled([]byte(m[5]), slices.Contains(judged, m[4])) {
		return r, cmp.Or(err, errors.New("it is not a tlog-proof with a record of waldo"))
	}
	n, err := note.Open([]byte(receipt[len(f[0]):]), note.VerifierList(p.keys...))
	if err != nil {
		return r, fmt.Errorf("the checkpoint: %w", err)
	}
	origin, proof := p.log.Name(), tlog.RecordProof{}
	for _, text := range strings.Fields(f[3]) {
		hash, _ := tlog.ParseHash(text) // a hash of zeros proves nothing
		proof = append(proof, hash)
	}
	tree, terr := tlog.ParseTree([]byte("go.sum database tree" + strings.TrimPrefix(n.Text, origin)))
	if terr != nil || n.Text != fmt.Sprintf("%s\n%d\n%v\n", origin, tree.N, tree.Hash) || tree.N > 1<<53 {
		return r, errors.New("the checkpoint is not origin, size and root of the policy's log")
	}
	first, ferr := strconv.ParseInt(origin[strings.LastIndex(origin, "/")+1:], 10, 64)
	leaf, b := sha256.Sum256([]byte(m[1])), body{}
	berr := json.Unmarshal([]byte(m[5]), &b)
	return record{file, string(line), m[4], m[3], b, first + index, tree.N, len(n.Sigs) == 1}, cmp.Or(
		must(signedBy(p.log)(n.Sigs) && p.quorum(n.Sigs), "the checkpoint lacks signatures that the policy needs"),
		must(m[6] == hex.EncodeToString(leaf[:]), "the record was changed: its hash does not fit its bytes"),
		must(berr == nil || !slices.Contains(judged[1:], m[4]), "it is not a record of waldo"),
		must(m[4] != "decision" || b.Redacted || slices.Contains([]string{"", "null"}, string(b.Args)) ||
			digest(plainForm.ReplaceAllStringFunc(string(b.Args), plain)) == b.ArgsDigest,
			"the arguments of the record are not those that were decided: their digest is another"),
		must(ferr == nil && m[2] == fmt.Sprint(first+index), "the record's number is not its place in the log"),
		tlog.CheckRecord(proof, tree.N, tree.Hash, index, tlog.RecordHash(leaf[:])))
}

// plain is the character of an escape, from U+007F on: RFC 8785 has no such escape, and a record no other form.
func plain(escape string) (c string) {
	_ = json.Unmarshal([]byte(`"`+escape+`"`), &c)
	if c < "\x7f" {
		return escape
	}
	return c
}

// ordered reports whether two times are in this order. Clocks of hosts can differ by two minutes.
func ordered(first, second any) bool {
	a, err := time.Parse(time.RFC3339, fmt.Sprint(first))
	b, berr := time.Parse(time.RFC3339, fmt.Sprint(second))
	return cmp.Or(err, berr) == nil && !a.After(b.Add(2*time.Minute))
}

// judged are the kinds of records without arguments of agents.
var judged = []string{"trust", "approver", "verdict", "answer"}

// spelled reports whether all readers take JSON, in judged kinds what is in it, too, for the same: compact, names once.
func spelled(text json.RawMessage, deep bool) bool {
	var object map[string]json.RawMessage
	var values []json.RawMessage
	_, _ = json.Unmarshal(text, &object), json.Unmarshal(text, &values)
	if !json.Valid(text) || object != nil && len(canonical("", object)) != len(text) { // a name twice, or an escape
		return false
	}
	values = append(values, slices.Collect(maps.Values(object))...)
	return namesForm.MatchString(strings.Join(slices.Collect(maps.Keys(object)), "")) &&
		(!deep || !slices.ContainsFunc(values, func(one json.RawMessage) bool { return !spelled(one, deep) }))
}

// said is an answer as an approver gave it.
type said struct {
	By, Key, Signature string
	Signed             map[string]any
}

// body has the members of an answer and of an enrolment that count.
type body struct {
	said
	Yes                                                                            bool
	Also                                                                           []said
	Refusal, Reason, Capability, From, Action, Approver, Failed, Principal, Effect string
	Args                                                                           json.RawMessage
	Redacted                                                                       bool   `json:"args_redacted"`
	DryRun                                                                         bool   `json:"dry_run"`
	ApprovalID                                                                     string `json:"approval_id"`
	ArgsDigest                                                                     string `json:"args_digest"`
	Answered                                                                       string `json:"answered_at"`
	DecisionID                                                                     string `json:"decision_id"`
	CallID                                                                         string `json:"call_id"`
	Public                                                                         string `json:"public_key"`
	At                                                                             string `json:"signed_at"`
	Roles                                                                          []string
	Trusted                                                                        []map[string]string
}

// ledger has keys by fingerprint, and by ids and names what decisions and approvals are about and when a right ended.
type ledger struct {
	root  string
	keys  map[string]holder
	about map[string]string
}
type holder struct {
	name, public   string
	first, revoked bool
}

// take takes in an enrolment, or checks the signatures of an answer.
func (l ledger) take(r record) error {
	b, about := r.body, r.Capability+" "+r.ArgsDigest
	switch {
	case r.kind == "outcome":
		at := l.about["answer of "+b.DecisionID]
		return must(at == "" || ordered(at, r.at), "the call ended before its answer was signed, at "+shown(at))
	case r.kind == "decision":
		return cmp.Or(l.hold(b.DecisionID, about, true), l.hold(b.DecisionID+" call", b.CallID, true),
			l.hold(b.DecisionID+" permits", fmt.Sprint(!b.DryRun && (b.Effect == "ask" || b.Effect == "allow")), true))
	case r.kind == "approver":
		return l.enrol(b)
	case !slices.Contains(judged[2:], r.kind):
		return nil
	case b.Refusal != "" && !b.Yes:
		fmt.Printf("%s: no answer of an approver: waldo refused (%s)\n", r.file, shown(b.Refusal))
		return nil
	}
	by, keys, question, n := map[string]bool{}, map[string]bool{}, "", 0
	need, _ := b.Signed["need"].(float64)
	for _, a := range append([]said{b.said}, b.Also...) {
		asked := fmt.Sprintf("%q %q %v", a.Signed["shown"], a.Signed["calls"], a.Signed["need"])
		question = cmp.Or(question, asked)
		if err := cmp.Or(l.check(r, b, a), must(asked == question, "the answers are to different questions")); err != nil {
			return fmt.Errorf("%s: %w", shown(a.By), err)
		}
		by[a.By], keys[a.Key] = true, true
		n = min(len(by), len(keys))
		l.about[r.kind+" of "+b.DecisionID] = max(l.about[r.kind+" of "+b.DecisionID], fmt.Sprint(a.Signed["at"]))
		fmt.Printf("%s signed yes=%v to the arguments %s, with the key %s, %d of %v who must agree; waldo's refusal: %s\n",
			r.file+": "+shown(a.By), b.Yes, shown(b.ArgsDigest), shown(a.Key), n, max(need, 1), shown(cmp.Or(b.Refusal, "none")))
	}
	used := r.kind == "answer" && b.Yes
	return cmp.Or(l.hold(b.DecisionID, about, true), l.hold(b.ApprovalID, about, true),
		l.hold(b.DecisionID+" permits", "true", b.Yes), l.hold(b.DecisionID+" call", b.CallID, r.kind == "answer"),
		l.hold(b.ApprovalID+" used", fmt.Sprint(r.seq), used && b.Refusal == ""),
		must(!used || n >= int(need), fmt.Sprintf("the yes needs %v approvers and bears the signatures of %d", need, n)))
}

// hold compares what a record is about, where that applies, with the records before it.
func (l ledger) hold(id, what string, applies bool) error {
	if !applies {
		return nil
	}
	l.about[id] = cmp.Or(l.about[id], what)
	return must(l.about[id] == what, "another record contradicts it about "+shown(id))
}

// shown is a text of a record for a terminal: it moves no cursor and begins no line.
func shown(text string) string  { return strings.Trim(strconv.Quote(text), `"`) }
func digest(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }

// enrol takes in an enrolment or a revocation, which a first approver signs.
func (l ledger) enrol(b body) error {
	key := digest(b.Public)
	own := holder{b.Approver, b.Public, b.By == b.Approver && key == l.root, b.At < l.about["ended "+b.Approver]}
	roles := append([]string{}, b.Roles...)
	members := map[string]any{"at": b.At, "by": b.By, "key": b.Public, "name": b.Approver, "roles": roles}
	if len(b.Trusted) > 0 {
		members["trusted"] = b.Trusted
	}
	text, signers := canonical("waldo approver v1\n", members), append(slices.Collect(maps.Values(l.keys)), own)
	if b.Action == "revoke" {
		text, key = []byte("waldo approver revoked v1\n"+b.Approver+"\n"+b.At), b.Key
	}
	signed := func(h holder) bool { return h.first && h.name == b.By && holds(h.public, text, b.Signature) == nil }
	switch {
	case b.Failed != "":
	case b.By == b.Approver && l.root == "":
		return errors.New("not checked: the policy names no root to compare the first approver's key with: " + shown(key))
	case b.Action != "revoke" && b.Action != "enrol" || key != b.Key || !slices.ContainsFunc(signers, signed):
		return errors.New("not checked: no first approver signs it; add the receipts of the enrolments before it")
	case b.Action == "enrol":
		l.keys[key] = cmp.Or(l.keys[key], own)
	default:
		l.about["ended "+b.Approver] = max(l.about["ended "+b.Approver], b.At)
		for of, h := range l.keys {
			h.revoked = h.revoked || h.name == b.Approver
			l.keys[of] = h
		}
	}
	return nil
}

// check checks an answer in a record, signed over its RFC 8785 form. No approver signs the record's capability.
func (l ledger) check(r record, b body, a said) error {
	s, h := a.Signed, l.keys[a.Key]
	reason, _ := s["reason"].(string)
	if len(reason) > 2<<10 { // a record has a longer text so
		reason = fmt.Sprintf("… (%d bytes, sha256 %x)", len(reason), sha256.Sum256([]byte(reason)))
	}
	repeats := a.Signature != b.Signature || // of several answers, the record repeats the first alone
		slices.Contains([]any{"", s["at"]}, any(b.Answered)) && slices.Contains([]string{"", reason}, b.Reason)
	same := s["approval_id"] == b.ApprovalID && s["args_digest"] == b.ArgsDigest && s["yes"] == b.Yes && s["key"] == a.Key
	return cmp.Or(must(a.Signature != "" && answerForm.MatchString(strings.Join(slices.Sorted(maps.Keys(s)), " ")),
		"not checked: it bears no signature over its members"),
		must(same && repeats && fmt.Sprint("approver:", s["by"]) == a.By, "the record is not what was signed"),
		must(h.name == s["by"], "not checked: add the receipt of the enrolment of the key "+shown(a.Key)),
		must(!h.revoked, "the key was revoked before"),
		must(ordered(s["created"], s["at"]) && ordered(s["at"], s["expires"]) && ordered(s["at"], r.at),
			"it was signed before the question, after its end or after the record"),
		holds(h.public, canonical("waldo approval answer v3\n", s), a.Signature))
}

// canonical is a text to sign: maps, texts, bools and small numbers become what RFC 8785 has.
func canonical(prefix string, v any) []byte {
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return []byte(prefix + strings.TrimSuffix(text.String(), "\n"))
}

// holds checks the signature over a text of a key: Ed25519, or a passkey of Ed25519 or ES256.
func holds(public string, text []byte, base string) error {
	signature, err := base64.StdEncoding.DecodeString(base)
	credential, isPasskey := strings.CutPrefix(public, "passkey:v1:")
	if isPasskey && err == nil {
		public, text, signature, err = passkey(credential, text, signature)
	}
	key, kerr := hex.DecodeString(public)
	plain := kerr == nil && len(key) == ed25519.PublicKeySize && ed25519.Verify(key, text, signature)
	point, perr := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), key)
	sum := sha256.Sum256(text)
	return cmp.Or(err, must(plain || isPasskey && cmp.Or(kerr, perr) == nil && ecdsa.VerifyASN1(point, sum[:], signature),
		"the signature does not hold, or its key is neither Ed25519 nor ES256"))
}

// passkey checks what an assertion is for (WebAuthn, 7.2), and returns the key in hexadecimal and what it signed.
func passkey(credential string, text, assertion []byte) (key string, signed, signature []byte, err error) {
	var c struct{ Origin, ID, Key string }
	var a struct {
		RawID    string
		Response struct{ ClientDataJSON, AuthenticatorData, Signature string }
	}
	b64 := base64.RawURLEncoding
	public, err := b64.DecodeString(credential)
	err = cmp.Or(err, json.Unmarshal(public, &c), json.Unmarshal(assertion, &a))
	client, cerr := b64.DecodeString(a.Response.ClientDataJSON)
	data, derr := b64.DecodeString(a.Response.AuthenticatorData)
	signature, serr := b64.DecodeString(a.Response.Signature)
	at, uerr := url.Parse(c.Origin)
	id, ierr := base64.StdEncoding.DecodeString(c.ID)
	cose, kerr := base64.StdEncoding.DecodeString(c.Key)
	var said map[string]any
	if cmp.Or(err, cerr, derr, serr, uerr, ierr, kerr, json.Unmarshal(client, &said)) != nil || len(data) < 37 {
		return "", nil, nil, errors.New("it is not a passkey's assertion")
	}
	challenge, site, hash := sha256.Sum256(text), sha256.Sum256([]byte(at.Hostname())), sha256.Sum256(client)
	framed := said["topOrigin"] != nil || !slices.Contains([]any{nil, false}, said["crossOrigin"])
	other := a.RawID != b64.EncodeToString(id) || said["origin"] != c.Origin || [32]byte(data) != site || data[32]&5 != 5
	m := append(coseForm.FindStringSubmatch(hex.EncodeToString(cose)), "", "", "", "")
	return cmp.Or(m[3], "04"+m[1]+m[2]), slices.Concat(data, hash[:]), signature, cmp.Or(
		must(said["type"] == "webauthn.get" && said["challenge"] == b64.EncodeToString(challenge[:]),
			"the passkey signed another answer"),
		must(!framed && !other, "the passkey is another one, signed elsewhere, or did not verify its user"))
}
