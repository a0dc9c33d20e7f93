// Command waldo-receipt verifies receipts of waldo's log (C2SP tlog-proof) against a policy (C2SP tlog-policy), and the
// approvers' signatures in them. It needs no part of waldo: the standard library and golang.org/x/mod.
package main

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: waldo-receipt POLICY RECEIPT..")
		os.Exit(2)
	}
	faults := run(os.Stdout, os.Args[1], os.Args[2:])
	for _, fault := range faults {
		fmt.Fprintf(os.Stderr, "waldo-receipt: %v\n", fault)
	}
	os.Exit(min(len(faults), 1))
}

// run checks receipts. Receipts of enrolments bring the keys for the answers in the others.
func run(w io.Writer, policyFile string, files []string) (faults []error) {
	text, err := os.ReadFile(policyFile)
	p, perr := parsePolicy(string(text))
	if err = cmp.Or(err, perr); err != nil {
		return []error{fmt.Errorf("%s: %w", policyFile, err)}
	}
	keys, bodies := map[string]string{}, make([]answer, len(files))
	for i, file := range files {
		b, err := os.ReadFile(file)
		record, c, verr := verify(p, b)
		if err = cmp.Or(err, verr); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", file, err))
			continue
		}
		fmt.Fprintf(w, "%s: sound, in the log %s of %d records\n%s\n", file, c.origin, c.size, record)
		var r struct{ Body answer }
		_ = json.Unmarshal([]byte(record), &r) // other records have no answer
		sum := sha256.Sum256([]byte(r.Body.Public))
		keys["sha256:"+hex.EncodeToString(sum[:])] = r.Body.Public
		bodies[i] = r.Body
	}
	for i, body := range bodies {
		for _, a := range append(body.Also, body) {
			if len(a.Signature) == 0 || a.Public != "" || body.Refusal != "" {
				continue // no answer of an approver
			}
			a.Approval, a.Args, a.Yes = body.Approval, body.Args, body.Yes
			if err := a.check(keys); err != nil {
				faults = append(faults, fmt.Errorf("%s: %s: %w", files[i], a.By, err))
				continue
			}
			fmt.Fprintf(w, "%s: %s signed yes=%t to the arguments %s, with the key %s\n", files[i], a.By, a.Yes, a.Args, a.Key)
		}
	}
	return faults
}

// answer is the body of a record, as far as it is about an approver.
type answer struct {
	Public    string         `json:"public_key"`
	Approval  string         `json:"approval_id"`
	Args      string         `json:"args_digest"`
	Yes       bool           `json:"yes"`
	Refusal   string         `json:"refusal"` // waldo's own
	By        string         `json:"by"`
	Key       string         `json:"key"`
	Signed    map[string]any `json:"signed"`
	Signature []byte         `json:"signature"`
	Also      []answer       `json:"also"`
}

// check checks the signature of an answer, over the RFC 8785 form of what was signed. A signed text with U+2028 or
// U+2029, which encoding/json escapes, does not verify.
func (a answer) check(keys map[string]string) error {
	s := a.Signed
	if s["approval_id"] != a.Approval || s["args_digest"] != a.Args || s["yes"] != a.Yes || s["key"] != a.Key ||
		fmt.Sprint("approver:", s["by"]) != a.By {
		return errors.New("the record is not what was signed")
	}
	public, known := keys[a.Key]
	if strings.HasPrefix(public, "passkey:") {
		return errors.New("not checked: it is a passkey's signature; waldo log verify checks it")
	}
	if !known {
		return fmt.Errorf("not checked: add the receipt of the enrolment of the key %s", a.Key)
	}
	message := bytes.NewBufferString("waldo approval answer v3\n")
	e := json.NewEncoder(message)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // texts, a bool and a number
	key, err := hex.DecodeString(public)
	if err != nil || len(key) != ed25519.PublicKeySize ||
		!ed25519.Verify(key, bytes.TrimSuffix(message.Bytes(), []byte("\n")), a.Signature) {
		return errors.New("the signature of the answer does not hold")
	}
	return nil
}

// policy lists whose signatures a checkpoint needs.
type policy struct {
	logs    map[string]note.Verifier // by origin
	members map[string]member
	quorum  string
}

// member is a witness, or a group of members of which n must sign.
type member struct {
	key *cosigner
	n   int
	of  []string
}

func parsePolicy(text string) (*policy, error) {
	p := &policy{logs: map[string]note.Verifier{}, members: map[string]member{"none": {}}}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if f := strings.Fields(line); len(f) == 1 || len(f) > 1 && !p.line(f) {
			return nil, fmt.Errorf("%q is not a line of a policy", line)
		}
	}
	if p.quorum == "" || len(p.logs) == 0 {
		return nil, errors.New("a policy needs a log and a quorum")
	}
	return p, nil
}

func (p *policy) line(f []string) bool {
	_, taken := p.members[f[1]]
	switch {
	case f[0] == "log":
		v, err := note.NewVerifier(f[1])
		if err == nil {
			p.logs[v.Name()] = v
		}
		return err == nil
	case f[0] == "witness" && len(f) >= 3 && !taken:
		c, err := newCosigner(f[2])
		p.members[f[1]] = member{key: c}
		return err == nil
	case f[0] == "group" && len(f) >= 4 && !taken:
		m := member{n: 1, of: f[3:]}
		if f[2] == "all" {
			m.n = len(m.of)
		} else if f[2] != "any" {
			m.n, _ = strconv.Atoi(f[2])
		}
		unknown := func(one string) bool { _, ok := p.members[one]; return !ok || one == "none" }
		p.members[f[1]] = m
		return m.n >= 1 && m.n <= len(m.of) && !slices.ContainsFunc(m.of, unknown) && !slices.Contains(m.of, f[1])
	case f[0] == "quorum" && len(f) == 2 && taken && p.quorum == "":
		p.quorum = f[1]
		return true
	}
	return false
}

// satisfied reports whether those who signed reach a member of the policy.
func (p *policy) satisfied(name string, signed func(note.Verifier) bool) bool {
	m, n := p.members[name], 0
	if m.key != nil {
		return signed(m.key)
	}
	for _, one := range m.of {
		if p.satisfied(one, signed) {
			n++
		}
	}
	return n >= m.n
}

// cosigner verifies the cosignatures of a witness (C2SP tlog-cosignature, cosignature/v1).
type cosigner struct {
	name string
	hash uint32
	key  ed25519.PublicKey
}

const cosignatureV1 = 4

func newCosigner(vkey string) (*cosigner, error) {
	name, rest, _ := strings.Cut(vkey, "+")
	hash, text, _ := strings.Cut(rest, "+")
	key, err := base64.StdEncoding.DecodeString(text)
	sum := sha256.Sum256(append([]byte(name+"\n"), key...))
	if err != nil || len(key) != 1+ed25519.PublicKeySize || key[0] != cosignatureV1 || hash != hex.EncodeToString(sum[:4]) {
		return nil, errors.New("the key of a witness is NAME+HASH+KEY, an Ed25519 key of cosignatures")
	}
	return &cosigner{name, binary.BigEndian.Uint32(sum[:]), key[1:]}, nil
}

func (c *cosigner) Name() string    { return c.name }
func (c *cosigner) KeyHash() uint32 { return c.hash }
func (c *cosigner) Verify(msg, sig []byte) bool {
	if len(sig) != 8+ed25519.SignatureSize {
		return false
	}
	text := fmt.Sprintf("cosignature/v1\ntime %d\n%s", binary.BigEndian.Uint64(sig), msg)
	return ed25519.Verify(c.key, []byte(text), sig[8:])
}

// checkpoint is what a log signs: its origin, its size and its root.
type checkpoint struct {
	origin string
	size   int64
	root   tlog.Hash
}

// verify checks a receipt, and returns the line of the record that it proves.
func verify(p *policy, receipt []byte) (record string, c checkpoint, err error) {
	head, signed, ok := bytes.Cut(receipt, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	if !ok || len(lines) < 3 || lines[0] != "c2sp.org/tlog-proof@v1" || !strings.HasPrefix(lines[1], "extra ") {
		return "", c, errors.New("it is not a tlog-proof with a record")
	}
	line, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(lines[1], "extra "))
	if err != nil {
		return "", c, err
	}
	i, err := strconv.ParseInt(strings.TrimPrefix(lines[2], "index "), 10, 64)
	if err != nil || i < 0 || lines[2] != fmt.Sprintf("index %d", i) {
		return "", c, errors.New("its index is not a number")
	}
	var proof tlog.RecordProof
	for _, text := range lines[3:] {
		h, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(h) != tlog.HashSize {
			return "", c, errors.New("its path has a line that is not a hash")
		}
		proof = append(proof, tlog.Hash(h))
	}
	leaf, err := hashOf(string(line))
	if err == nil {
		c, err = p.open(signed)
	}
	if err == nil {
		err = tlog.CheckRecord(proof, c.size, c.root, i, tlog.RecordHash(leaf))
	}
	return string(line), c, err
}

// hashOf returns the hash of a record's line, after a check that the line ends in it.
func hashOf(line string) ([]byte, error) {
	at := max(strings.LastIndex(line, `,"hash":"`), 0)
	sum := sha256.Sum256([]byte(line[:at]))
	if line[at:] != `,"hash":"`+hex.EncodeToString(sum[:])+`"}` {
		return nil, errors.New("the record was changed: its hash does not fit its bytes")
	}
	return sum[:], nil
}

// open checks the signatures of a checkpoint.
func (p *policy) open(text []byte) (c checkpoint, err error) {
	origin, _, _ := strings.Cut(string(text), "\n")
	own := p.logs[origin]
	if own == nil {
		return c, fmt.Errorf("the policy does not know the log %q", origin)
	}
	known := []note.Verifier{own}
	for _, m := range p.members {
		if m.key != nil {
			known = append(known, m.key)
		}
	}
	n, err := note.Open(text, note.VerifierList(known...))
	if err != nil {
		return c, fmt.Errorf("the checkpoint: %w", err)
	}
	signed := func(v note.Verifier) bool {
		return slices.ContainsFunc(n.Sigs, func(s note.Signature) bool { return s.Name == v.Name() && s.Hash == v.KeyHash() })
	}
	if !signed(own) || !p.satisfied(p.quorum, signed) {
		return c, errors.New("the checkpoint lacks signatures that the policy needs")
	}
	_, rest, _ := strings.Cut(n.Text, "\n")
	count, hash, _ := strings.Cut(rest, "\n")
	size, err := strconv.ParseInt(count, 10, 64)
	root, rerr := base64.StdEncoding.DecodeString(hash)
	if err != nil || rerr != nil || len(root) != tlog.HashSize || strings.Count(n.Text, "\n") != 3 {
		return c, errors.New("the checkpoint is not origin, size and root")
	}
	return checkpoint{origin, size, tlog.Hash(root)}, nil
}
