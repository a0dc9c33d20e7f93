// Command waldo-receipt verifies receipts of waldo's log (C2SP tlog-proof) against a policy (C2SP tlog-policy), and the
// approvers' signatures in them. It needs no part of waldo: the standard library and golang.org/x/mod.
package main

import (
	"bytes"
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
	"net/url"
	"os"
	"regexp"
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
	faults := run(os.Args[1], os.Args[2:])
	for _, fault := range faults {
		fmt.Fprintf(os.Stderr, "waldo-receipt: %v\n", fault)
	}
	os.Exit(min(len(faults), 1))
}

// run checks receipts. Those of enrolments bring the keys for the answers in the others.
func run(policyFile string, files []string) (faults []error) {
	text, err := os.ReadFile(policyFile)
	p, perr := parsePolicy(string(text))
	if err = cmp.Or(err, perr); err != nil {
		return []error{fmt.Errorf("%s: %w", policyFile, err)}
	}
	layout := regexp.MustCompile(`^{"v":1,"seq":\d+,"id":"\w+","at":"[\w:.-]+","prev":"\w+","kind":"([a-z_]+)","body":({[ -~]*}),"hash":"\w+"}$`)
	keys, bodies := map[string]string{}, make([]map[string]any, len(files)) // keys by action, name and fingerprint
	for i, file := range files {
		b, err := os.ReadFile(file)
		record, origin, tree, verr := verify(p, b)
		if err = cmp.Or(err, verr); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", file, err))
			continue
		}
		parts, body := append(layout.FindStringSubmatch(record), "", "", ""), map[string]any{} // as jq reads equal names
		fmt.Printf("%s: sound, in the log %s of %d records\n%s\n", file, origin, tree.N, parts[0])
		switch kind := parts[1]; {
		case kind != "" && !slices.Contains([]string{"approver", "verdict", "answer"}, kind):
		case json.Unmarshal([]byte(parts[2]), &body) != nil:
			faults = append(faults, fmt.Errorf("%s: it is not a record of waldo", file))
		case kind == "approver":
			public := fmt.Sprint(body["public_key"])
			keys[fmt.Sprintf("%v %v sha256:%x", body["action"], body["approver"], sha256.Sum256([]byte(public)))] = public
		case body["refusal"] != nil && body["yes"] != true:
			fmt.Printf("%s: no answer of an approver: waldo refused (%v)\n", file, body["refusal"])
		default:
			bodies[i] = body
		}
	}
	for i, body := range bodies {
		also, _ := body["also"].([]any)
		for _, one := range append(also, body) {
			a, _ := one.(map[string]any)
			if err := check(body, a, keys); err != nil {
				faults = append(faults, fmt.Errorf("%s: %v: %w", files[i], a["by"], err))
			} else if body != nil {
				fmt.Printf("%s: %v signed yes=%v to the arguments %v, with the key %v\n", files[i], a["by"], body["yes"],
					body["args_digest"], a["key"])
			}
		}
	}
	return faults
}

// check checks an answer in a record, signed over its RFC 8785 form. No approver signs the record's capability.
func check(body, a map[string]any, keys map[string]string) error {
	s, _ := a["signed"].(map[string]any)
	signature, err := base64.StdEncoding.DecodeString(fmt.Sprint(a["signature"]))
	public := keys[fmt.Sprintf("enrol %v %v", s["by"], a["key"])]
	switch {
	case body == nil: // no answer
		return nil
	case err != nil || a["signature"] == nil:
		return errors.New("not checked: it bears no signature")
	case s["approval_id"] != body["approval_id"] || s["args_digest"] != body["args_digest"] || s["yes"] != body["yes"] ||
		s["key"] != a["key"] || fmt.Sprint("approver:", s["by"]) != a["by"] || !slices.Contains([]any{nil, s["at"]}, a["answered_at"]):
		return errors.New("the record is not what was signed")
	case public == "":
		return fmt.Errorf("not checked: add the receipt of the enrolment of the key %v", a["key"])
	}
	var message bytes.Buffer
	e := json.NewEncoder(&message)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // texts, a bool and a number
	text := append([]byte("waldo approval answer v3\n"), bytes.TrimSuffix(message.Bytes(), []byte("\n"))...)
	if credential, is := strings.CutPrefix(public, "passkey:v1:"); is {
		return passkey(credential, text, signature)
	}
	key, err := hex.DecodeString(public)
	if err != nil || len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, text, signature) {
		return errors.New("the signature of the answer does not hold")
	}
	return nil
}

// The COSE keys of passkeys as CTAP 2 spells them, before their numbers: ES256 and EdDSA.
const (
	cosePoint, coseY = "\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20", "\x22\x58\x20" // before x and y
	coseEd25519      = "\xa4\x01\x01\x03\x27\x20\x06\x21\x58\x20"
)

// passkey checks an assertion over a text (WebAuthn, section 7.2): of the origin of the enrolment, user verified, no frame.
func passkey(credential string, text, assertion []byte) error {
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
		return errors.New("it is not a passkey's assertion")
	}
	challenge, site, hash := sha256.Sum256(text), sha256.Sum256([]byte(at.Hostname())), sha256.Sum256(client)
	framed := said["topOrigin"] != nil || !slices.Contains([]any{nil, false}, said["crossOrigin"])
	signed := slices.Concat(data, hash[:])
	switch x, ed := strings.CutPrefix(string(c.Key), coseEd25519); {
	case said["type"] != "webauthn.get" || said["challenge"] != b64.EncodeToString(challenge[:]):
		return errors.New("the passkey signed another answer")
	case a.RawID != b64.EncodeToString(c.ID) || said["origin"] != c.Origin || framed || [32]byte(data) != site || data[32]&5 != 5:
		return errors.New("the passkey is another one, signed elsewhere, or did not verify its user")
	case ed && len(x) == ed25519.PublicKeySize && ed25519.Verify([]byte(x), signed, signature):
		return nil
	case ed || len(c.Key) != 77 || string(c.Key[:10]) != cosePoint || string(c.Key[42:45]) != coseY:
		return errors.New("the passkey's signature does not hold, or its key is neither ES256 nor Ed25519")
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, c.Key[10:42], c.Key[45:]))
	digest := sha256.Sum256(signed)
	if err != nil || !ecdsa.VerifyASN1(key, digest[:], signature) {
		return errors.New("the passkey's signature does not hold")
	}
	return nil
}

// policy lists whose signatures a checkpoint needs.
type policy struct {
	keys    []note.Verifier          // of logs and witnesses
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
		p.logs[strings.Split(f[1], "+")[0]], p.keys = v, append(p.keys, v)
		return err == nil
	case f[0] == "witness" && len(f) >= 3 && !taken:
		c, ok := newCosigner(f[2])
		p.members[f[1]], p.keys = member{key: c}, append(p.keys, c)
		return ok
	case f[0] == "group" && len(f) >= 4 && !taken:
		n, _ := strconv.Atoi(f[2])
		m := member{n: cmp.Or(map[string]int{"all": len(f) - 3, "any": 1}[f[2]], n), of: f[3:]}
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
	m := p.members[name]
	rest := slices.DeleteFunc(slices.Clone(m.of), func(one string) bool { return p.satisfied(one, signed) })
	return len(m.of)-len(rest) >= m.n && (m.key == nil || signed(m.key))
}

// cosigner verifies the cosignatures of a witness (C2SP tlog-cosignature, cosignature/v1).
type cosigner struct {
	name string
	key  []byte // its type, 4, and an Ed25519 key
}

func newCosigner(vkey string) (c *cosigner, ok bool) {
	f := append(strings.SplitN(vkey, "+", 3), "", "")
	key, err := base64.StdEncoding.DecodeString(f[2])
	c = &cosigner{f[0], key}
	return c, err == nil && len(key) == 1+ed25519.PublicKeySize && key[0] == 4 && f[1] == fmt.Sprintf("%08x", c.KeyHash())
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

// verify checks a receipt, and returns the line of the record that it proves, in which tree of which log.
func verify(p *policy, receipt []byte) (record, origin string, tree tlog.Tree, err error) {
	head, signed, _ := bytes.Cut(receipt, []byte("\n\n"))
	const form = "c2sp.org/tlog-proof@v1\nextra %s\nindex %d"
	extra, i := "", int64(0)
	_, _ = fmt.Sscanf(string(head), form, &extra, &i)
	path, ok := strings.CutPrefix(string(head), fmt.Sprintf(form, extra, i))
	line, err := base64.StdEncoding.DecodeString(extra)
	hashes := strings.Split(path, "\n")
	proof := make(tlog.RecordProof, len(hashes)-1)
	for n := range proof {
		proof[n], _ = tlog.ParseHash(hashes[n+1]) // a hash of zeros proves nothing
	}
	if err != nil || !ok || i < 0 || hashes[0] != "" {
		return "", "", tree, errors.New("it is not a tlog-proof with a record")
	}
	at := max(bytes.LastIndex(line, []byte(`,"hash":"`)), 0)
	leaf := sha256.Sum256(line[:at])
	if string(line[at:]) != fmt.Sprintf(`,"hash":"%x"}`, leaf) {
		return "", "", tree, errors.New("the record was changed: its hash does not fit its bytes")
	}
	origin, tree, err = p.open(signed)
	first, _ := strconv.ParseInt(origin[strings.LastIndex(origin, "/")+1:], 10, 64)
	if err == nil && !bytes.HasPrefix(line, fmt.Appendf(nil, `{"v":1,"seq":%d,`, first+i)) {
		err = errors.New("the record's number is not its place in the log")
	}
	return string(line), origin, tree, cmp.Or(err, tlog.CheckRecord(proof, tree.N, tree.Hash, i, tlog.RecordHash(leaf[:])))
}

// open checks the signatures of a checkpoint: origin, size and root.
func (p *policy) open(text []byte) (origin string, tree tlog.Tree, err error) {
	if origin, _, _ = strings.Cut(string(text), "\n"); p.logs[origin] == nil {
		return "", tree, fmt.Errorf("the policy does not know the log %q", origin)
	}
	n, err := note.Open(text, note.VerifierList(p.keys...))
	if err != nil {
		return "", tree, fmt.Errorf("the checkpoint: %w", err)
	}
	signed := func(v note.Verifier) bool {
		return slices.ContainsFunc(n.Sigs, func(s note.Signature) bool { return s.Name == v.Name() && s.Hash == v.KeyHash() })
	}
	if !signed(p.logs[origin]) || !p.satisfied(p.quorum, signed) {
		return "", tree, errors.New("the checkpoint lacks signatures that the policy needs")
	}
	root := ""
	_, _ = fmt.Sscanf(strings.TrimPrefix(n.Text, origin), "\n%d\n%s", &tree.N, &root)
	tree.Hash, err = tlog.ParseHash(root)
	if err != nil || n.Text != fmt.Sprintf("%s\n%d\n%v\n", origin, tree.N, tree.Hash) || tree.N > 1<<53 {
		return "", tlog.Tree{}, errors.New("the checkpoint is not origin, size and root")
	}
	return origin, tree, nil
}
