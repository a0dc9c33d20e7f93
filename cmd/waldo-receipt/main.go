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
		fmt.Printf("%s: sound, in the log %s of %d records\n%s\n", file, p.log.Name(), r.of, r.line)
		if r.alone {
			faults = append(faults, fmt.Errorf("%s: not checked: no witness cosigned the checkpoint", file))
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b record) int { return cmp.Compare(a.seq, b.seq) })
	l := ledger{root: p.root, keys: map[string]holder{}, ended: map[string]string{}, about: map[string]string{}}
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
	file, line, kind, body string
	seq, of                int64
	alone                  bool // no witness cosigned
}

var (
	receiptForm = regexp.MustCompile(`^c2sp\.org/tlog-proof@v1\nextra (\S+)\nindex (0|[1-9]\d*)((?:\n\S{44})*)\n\n`)
	recordForm  = regexp.MustCompile(`^({"v":1,"seq":(\d+),"id":"e_[a-z2-7]{26}","at":"(.{10}T.{8}\.\d{3}Z)",` +
		`"prev":"[0-9a-f]{64}","kind":"([a-z_]{1,32})","body":({[ -~]*})),"hash":"([0-9a-f]{64})"}$`)
	rootForm   = regexp.MustCompile(`(?m)^# root (sha256:[0-9a-f]{64})$`)
	memberForm = regexp.MustCompile(`^[a-z0-9_-]+$`)
	answerForm = regexp.MustCompile(`^approval_id args_digest at binding by (calls )?created expires key (need )?` +
		`reason (root )?shown (struck )?yes$`)
	coseForm = regexp.MustCompile(`^(?:a5010203262001215820(.{64})225820(.{64})|a4010103272006215820(.{64}))$`)
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
	leaf := sha256.Sum256([]byte(m[1]))
	return record{file, string(line), m[4], m[5], first + index, tree.N, len(n.Sigs) == 1}, cmp.Or(
		must(signedBy(p.log)(n.Sigs) && p.quorum(n.Sigs), "the checkpoint lacks signatures that the policy needs"),
		must(m[6] == hex.EncodeToString(leaf[:]), "the record was changed: its hash does not fit its bytes"),
		must(ferr == nil && m[2] == fmt.Sprint(first+index), "the record's number is not its place in the log"),
		tlog.CheckRecord(proof, tree.N, tree.Hash, index, tlog.RecordHash(leaf[:])))
}

// judged are the kinds of records without arguments of agents.
var judged = []string{"approver", "verdict", "answer", "trust"}

// spelled reports whether all readers take JSON for the same: it is compact, and each name in an object is there once,
// in small letters. With deep, so is what is in it.
func spelled(text json.RawMessage, deep bool) bool {
	var object map[string]json.RawMessage
	var values []json.RawMessage
	if strings.HasPrefix(string(text), "{") {
		err := json.Unmarshal(text, &object)
		if err != nil || len(canonical("", object)) != len(text) { // shorter: a name was there twice, or had an escape
			return false
		}
	} else {
		_ = json.Unmarshal(text, &values) // other values than arrays have nothing in them
	}
	for name, value := range object {
		if values = append(values, value); !memberForm.MatchString(name) {
			return false
		}
	}
	return !deep || !slices.ContainsFunc(values, func(one json.RawMessage) bool { return !spelled(one, deep) })
}

// said is an answer as an approver gave it.
type said struct {
	By, Key, Signature string
	Signed             map[string]any
}

// body has the members of an answer and of an enrolment that count.
type body struct {
	said
	Yes                                                                    bool
	Also                                                                   []said
	Refusal, Reason, Capability, From, Action, Approver, Failed, Principal string
	Effect                                                                 string
	DryRun                                                                 bool   `json:"dry_run"`
	ApprovalID                                                             string `json:"approval_id"`
	ArgsDigest                                                             string `json:"args_digest"`
	Answered                                                               string `json:"answered_at"`
	DecisionID                                                             string `json:"decision_id"`
	CallID                                                                 string `json:"call_id"`
	Public                                                                 string `json:"public_key"`
	At                                                                     string `json:"signed_at"`
	Roles                                                                  []string
	Trusted                                                                []map[string]string
}

// ledger has the keys of approvers, by fingerprint, when the right of a name was last ended, and what decisions and
// approvals, by their ids, are about.
type ledger struct {
	root         string
	keys         map[string]holder
	ended, about map[string]string
}
type holder struct {
	name, public   string
	first, revoked bool
}

// take takes in an enrolment, or checks the signatures of an answer.
func (l ledger) take(r record) error {
	var b body
	switch {
	case r.kind == "trust" || !slices.Contains(judged, r.kind) && r.kind != "decision":
		return nil
	case json.Unmarshal([]byte(r.body), &b) != nil && r.kind != "decision":
		return errors.New("it is not a record of waldo")
	case r.kind == "decision":
		return l.hold(map[string]string{b.DecisionID: b.Capability + " " + b.ArgsDigest, b.DecisionID + " call": b.CallID,
			b.DecisionID + " permits": fmt.Sprint(!b.DryRun && (b.Effect == "ask" || b.Effect == "allow"))})
	case r.kind == "approver":
		return l.enrol(b)
	case b.Refusal != "" && !b.Yes:
		fmt.Printf("%s: no answer of an approver: waldo refused (%s)\n", r.file, shown(b.Refusal))
		return nil
	}
	by, keys, question := map[string]bool{}, map[string]bool{}, ""
	need, _ := b.Signed["need"].(float64)
	for _, a := range append([]said{b.said}, b.Also...) {
		asked := fmt.Sprintf("%q %q %v", a.Signed["shown"], a.Signed["calls"], a.Signed["need"])
		question = cmp.Or(question, asked)
		if err := cmp.Or(l.check(b, a), must(asked == question, "the answers are to different questions")); err != nil {
			return fmt.Errorf("%s: %w", shown(a.By), err)
		}
		by[a.By], keys[a.Key] = true, true
		fmt.Printf("%s: %s signed yes=%v to the arguments %s, with the key %s, as one of %v; waldo's refusal: %s\n", r.file,
			shown(a.By), b.Yes, shown(b.ArgsDigest), shown(a.Key), max(need, 1), shown(cmp.Or(b.Refusal, "none")))
	}
	about := map[string]string{b.DecisionID: b.Capability + " " + b.ArgsDigest, b.ApprovalID: b.Capability + " " + b.ArgsDigest}
	if b.Yes {
		about[b.DecisionID+" permits"] = "true"
	}
	if r.kind == "answer" {
		about[b.DecisionID+" call"] = b.CallID
	}
	if r.kind == "answer" && b.Yes && b.Refusal == "" {
		about[b.ApprovalID+" used"] = fmt.Sprint(r.seq)
	}
	return cmp.Or(l.hold(about), must(r.kind != "answer" || !b.Yes || min(len(by), len(keys)) >= int(need),
		fmt.Sprintf("the yes needs %v approvers and bears the signatures of %d", need, min(len(by), len(keys)))))
}

// hold compares what a record is about with the records before it.
func (l ledger) hold(about map[string]string) (err error) {
	for id, what := range about {
		err = cmp.Or(err, must(cmp.Or(l.about[id], what) == what, "another record contradicts it about "+shown(id)))
		l.about[id] = cmp.Or(l.about[id], what)
	}
	return err
}

// shown is a text of a record for a terminal: it moves no cursor and begins no line.
func shown(text string) string { return strings.Trim(strconv.Quote(text), `"`) }

// enrol takes in an enrolment or a revocation, which a first approver signs.
func (l ledger) enrol(b body) error {
	key := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(b.Public)))
	own := holder{b.Approver, b.Public, b.By == b.Approver && key == l.root, b.At < l.ended[b.Approver]}
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
		l.ended[b.Approver] = max(l.ended[b.Approver], b.At)
		for of, h := range l.keys {
			h.revoked = h.revoked || h.name == b.Approver
			l.keys[of] = h
		}
	}
	return nil
}

// check checks an answer in a record, signed over its RFC 8785 form. No approver signs the record's capability.
func (l ledger) check(b body, a said) error {
	s, h := a.Signed, l.keys[a.Key]
	reason, _ := s["reason"].(string)
	if len(reason) > 2<<10 { // a record has a longer text so
		reason = fmt.Sprintf("… (%d bytes, sha256 %x)", len(reason), sha256.Sum256([]byte(reason)))
	}
	repeats := a.Signature != b.Signature || // of several answers, the record repeats the first alone
		slices.Contains([]any{"", s["at"]}, any(b.Answered)) && slices.Contains([]string{"", reason}, b.Reason)
	same := s["approval_id"] == b.ApprovalID && s["args_digest"] == b.ArgsDigest && s["yes"] == b.Yes && s["key"] == a.Key
	named := answerForm.MatchString(strings.Join(slices.Sorted(maps.Keys(s)), " "))
	return cmp.Or(must(a.Signature != "" && named, "not checked: it bears no signature over its members"),
		must(same && repeats && fmt.Sprint("approver:", s["by"]) == a.By, "the record is not what was signed"),
		must(h.name == s["by"], "not checked: add the receipt of the enrolment of the key "+shown(a.Key)),
		must(!h.revoked, "the key was revoked before"),
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
	if err != nil || kerr == nil && len(key) == ed25519.PublicKeySize && ed25519.Verify(key, text, signature) {
		return err
	}
	point, perr := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), key)
	digest := sha256.Sum256(text)
	return must(isPasskey && cmp.Or(kerr, perr) == nil && ecdsa.VerifyASN1(point, digest[:], signature),
		"the signature does not hold, or its key is neither Ed25519 nor ES256")
}

// passkey checks what an assertion is for (WebAuthn, section 7.2): the text, at the enrolment's origin, in no frame, by
// a verified user. It returns the key in hexadecimal, and what it signed.
func passkey(credential string, text, assertion []byte) (key string, signed, signature []byte, err error) {
	var c struct {
		Origin  string
		ID, Key []byte
	}
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
	var said map[string]any
	if cmp.Or(err, cerr, derr, serr, uerr, json.Unmarshal(client, &said)) != nil || len(data) < 37 {
		return "", nil, nil, errors.New("it is not a passkey's assertion")
	}
	challenge, site, hash := sha256.Sum256(text), sha256.Sum256([]byte(at.Hostname())), sha256.Sum256(client)
	framed := said["topOrigin"] != nil || !slices.Contains([]any{nil, false}, said["crossOrigin"])
	other := a.RawID != b64.EncodeToString(c.ID) || said["origin"] != c.Origin || [32]byte(data) != site || data[32]&5 != 5
	m := append(coseForm.FindStringSubmatch(hex.EncodeToString(c.Key)), "", "", "", "")
	key = cmp.Or(m[3], "04"+m[1]+m[2])
	return key, slices.Concat(data, hash[:]), signature, cmp.Or(
		must(said["type"] == "webauthn.get" && said["challenge"] == b64.EncodeToString(challenge[:]),
			"the passkey signed another answer"),
		must(!framed && !other, "the passkey is another one, signed elsewhere, or did not verify its user"))
}
