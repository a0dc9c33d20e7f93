package main

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// spelled reports whether all readers take a body for the same: it is compact, and each name is there once, in small
// letters. Bodies with arguments of agents are looked at to one level.
func spelled(kind, body string) bool {
	var compact bytes.Buffer
	err := json.Compact(&compact, []byte(body))
	return err == nil && compact.String() == body &&
		names(json.NewDecoder(strings.NewReader(body)), body,
			slices.Contains([]string{"approver", "verdict", "answer", "trust"}, kind))
}

var plain = regexp.MustCompile(`^,?"[a-z0-9_-]+"$`)

func names(d *json.Decoder, text string, deep bool) bool {
	open, _ := d.Token()
	seen := map[any]bool{}
	for delim, nested := open.(json.Delim); nested && d.More(); {
		if delim == '{' {
			at := d.InputOffset()
			name, _ := d.Token()
			if seen[name] || !plain.MatchString(text[at:d.InputOffset()]) {
				return false
			}
			seen[name] = true
		}
		if rest := (json.RawMessage{}); !deep && d.Decode(&rest) != nil || deep && !names(d, text, deep) {
			return false
		}
	}
	if _, nested := open.(json.Delim); nested {
		_, _ = d.Token()
	}
	return true
}

// said is an answer as an approver gave it, and signed what is signed, in the order of RFC 8785.
type said struct {
	By, Key, Signature string
	Signed             json.RawMessage
}
type signed struct {
	ApprovalID string `json:"approval_id"`
	ArgsDigest string `json:"args_digest"`
	At         string `json:"at"`
	Binding    string `json:"binding"`
	By         string `json:"by"`
	Calls      string `json:"calls,omitempty"`
	Created    string `json:"created"`
	Expires    string `json:"expires"`
	Key        string `json:"key"`
	Need       int    `json:"need,omitempty"`
	Reason     string `json:"reason"`
	Root       string `json:"root,omitempty"`
	Shown      string `json:"shown"`
	Struck     []int  `json:"struck,omitempty"`
	Yes        bool   `json:"yes"`
}

// body has the members of an answer and of an enrolment that count.
type body struct {
	said
	Yes                                                                    bool
	Also                                                                   []said
	Refusal, Reason, Capability, From, Action, Approver, Failed, Principal string
	ApprovalID                                                             string `json:"approval_id"`
	ArgsDigest                                                             string `json:"args_digest"`
	Answered                                                               string `json:"answered_at"`
	DecisionID                                                             string `json:"decision_id"`
	CallID                                                                 string `json:"call_id"`
	Public                                                                 string `json:"public_key"`
	At                                                                     string `json:"signed_at"`
	Roles                                                                  []string
	Trusted                                                                []configuration
}

// approver is what an enrolment signs, in the order of RFC 8785.
type approver struct {
	At      string          `json:"at"`
	By      string          `json:"by"`
	Key     string          `json:"key"`
	Name    string          `json:"name"`
	Roles   []string        `json:"roles"`
	Trusted []configuration `json:"trusted,omitempty"`
}
type configuration struct {
	Accepted  string `json:"accepted,omitempty"`
	By        string `json:"by,omitempty"`
	Digest    string `json:"digest,omitempty"`
	File      string `json:"file"`
	Key       string `json:"key,omitempty"`
	Signature string `json:"signature,omitempty"`
	At        string `json:"signed_at,omitempty"`
}

// ledger has the keys of approvers, by fingerprint, and when the right of a name was last ended.
type ledger struct {
	keys  map[string]*holder
	ended map[string]string
}
type holder struct {
	name, public   string
	first, revoked bool
}

func (l ledger) take(r receipt) error {
	var b body
	switch {
	case !slices.Contains([]string{"approver", "verdict", "answer"}, r.kind):
		return nil
	case json.Unmarshal([]byte(r.body), &b) != nil:
		return errors.New("it is not a record of waldo")
	case r.kind == "approver":
		return l.enrol(b)
	case b.Refusal != "" && !b.Yes:
		fmt.Printf("%s: no answer of an approver: waldo refused (%s)\n", r.file, shown(b.Refusal))
		return nil
	}
	first, by, fps := signed{}, map[string]bool{}, map[string]bool{}
	for i, a := range append([]said{b.said}, b.Also...) {
		s, err := l.check(b, a)
		if err == nil && i == 0 {
			first = s
		}
		if err == nil && (s.Shown != first.Shown || s.Need != first.Need || s.Calls != first.Calls) {
			err = errors.New("the answers are to different questions")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", shown(a.By), err)
		}
		by[a.By], fps[a.Key] = true, true
		fmt.Printf("%s: %s signed yes=%v to the arguments %s, with the key %s\n", r.file, shown(a.By), b.Yes,
			shown(b.ArgsDigest), shown(a.Key))
	}
	if r.kind == "answer" && b.Yes && min(len(by), len(fps)) < first.Need {
		return fmt.Errorf("the yes needs %d approvers and bears the signatures of %d", first.Need, min(len(by), len(fps)))
	}
	return nil
}

// shown is a text of a record for a terminal: it moves no cursor and begins no line.
func shown(text string) string { return strings.Trim(strconv.Quote(text), `"`) }

// enrol takes in an enrolment or a revocation, which a first approver signs.
func (l ledger) enrol(b body) error {
	of := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(b.Public)))
	roles := append([]string{}, b.Roles...)
	text := canonical("waldo approver v1\n", approver{b.At, b.By, b.Public, b.Approver, roles, b.Trusted})
	own := holder{b.Approver, b.Public, b.By == b.Approver, b.At < l.ended[b.Approver]}
	by := []*holder{&own}
	if b.Action == "revoke" {
		text = []byte("waldo approver revoked v1\n" + b.Approver + "\n" + b.At)
	}
	if b.Action == "revoke" || !own.first {
		by = slices.Collect(maps.Values(l.keys))
	}
	signs := func(h *holder) bool { return h.first && h.name == b.By && holds(h.public, text, b.Signature) == nil }
	switch {
	case b.Failed != "":
	case b.Action != "revoke" && (b.Action != "enrol" || b.Key != of) || !slices.ContainsFunc(by, signs):
		return errors.New("not checked: no first approver signs it; add the receipts of the enrolments before it")
	case b.Action == "revoke":
		l.ended[b.Approver] = max(l.ended[b.Approver], b.At)
		for _, h := range by {
			h.revoked = h.revoked || h.name == b.Approver
		}
	case l.keys[of] == nil:
		l.keys[of] = &own
	}
	return nil
}

// check checks an answer in a record, signed over its RFC 8785 form. No approver signs the record's capability.
func (l ledger) check(b body, a said) (s signed, err error) {
	d := json.NewDecoder(bytes.NewReader(a.Signed))
	d.DisallowUnknownFields()
	if a.Signature == "" || d.Decode(&s) != nil {
		return s, errors.New("not checked: it bears no signature")
	}
	at, reason := b.Answered, b.Reason
	if a.Signature != b.Signature { // one of several: the record repeats the first alone
		at, reason = "", ""
	}
	switch h := l.keys[a.Key]; {
	case s.ApprovalID != b.ApprovalID || s.ArgsDigest != b.ArgsDigest || s.Yes != b.Yes || s.Key != a.Key ||
		"approver:"+s.By != a.By || !slices.Contains([]string{"", s.At}, at) ||
		!slices.Contains([]string{"", short(s.Reason)}, reason):
		return s, errors.New("the record is not what was signed")
	case h == nil || h.name != s.By:
		return s, fmt.Errorf("not checked: add the receipt of the enrolment of the key %s", shown(a.Key))
	case h.revoked:
		return s, errors.New("the key was revoked before")
	default:
		return s, holds(h.public, canonical("waldo approval answer v3\n", s), a.Signature)
	}
}

// short is how a record has a text of over 2 KiB.
func short(s string) string {
	if len(s) <= 2<<10 {
		return s
	}
	return fmt.Sprintf("… (%d bytes, sha256 %x)", len(s), sha256.Sum256([]byte(s)))
}

// canonical returns what is signed. The members of v are in the order of RFC 8785.
func canonical(prefix string, v any) []byte {
	var message bytes.Buffer
	e := json.NewEncoder(&message)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // texts, bools and numbers
	return append([]byte(prefix), bytes.TrimSuffix(message.Bytes(), []byte("\n"))...)
}

// holds checks the signature of a key over a text.
func holds(public string, text []byte, base string) error {
	signature, err := base64.StdEncoding.DecodeString(base)
	if credential, is := strings.CutPrefix(public, "passkey:v1:"); is && err == nil {
		return passkey(credential, text, signature)
	}
	key, kerr := hex.DecodeString(public)
	if cmp.Or(err, kerr) != nil || len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, text, signature) {
		return errors.New("the signature of the answer does not hold")
	}
	return nil
}

// The COSE keys of passkeys as CTAP 2 spells them, before their numbers: ES256 and EdDSA.
const (
	cosePoint, coseY = "\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20", "\x22\x58\x20" // before x and y
	coseEd25519      = "\xa4\x01\x01\x03\x27\x20\x06\x21\x58\x20"
)

// passkey checks an assertion over a text (WebAuthn, section 7.2): of the enrolment's origin, user verified, no frame.
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
