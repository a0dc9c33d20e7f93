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
	"errors"
	"fmt"
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

// layout is a record: its time, kind and body.
var layout = regexp.MustCompile(`^{"v":1,"seq":\d+,"id":"e_[a-z2-7]{26}","at":"([^"]+)","prev":"[0-9a-f]{64}",` +
	`"kind":"([a-z_]{1,32})","body":({[ -~]*}),"hash":"[0-9a-f]{64}"}$`)

// receipt is one that holds.
type receipt struct {
	file, kind, body string
	seq              int64
}

// run checks receipts. Those of enrolments bring the keys for the answers in the others.
func run(policyFile string, files []string) (faults []error) {
	text, err := os.ReadFile(policyFile)
	p, perr := parsePolicy(string(text))
	if err = cmp.Or(err, perr); err != nil {
		return []error{fmt.Errorf("%s: %w", policyFile, err)}
	}
	var all []receipt
	for _, file := range files {
		b, err := os.ReadFile(file)
		record, origin, tree, seq, verr := verify(p, b)
		parts := append(layout.FindStringSubmatch(record), "", "", "", "")
		const form = "2006-01-02T15:04:05.000Z"
		at, terr := time.Parse(form, parts[1])
		if err = cmp.Or(err, verr, terr); err == nil && (at.Format(form) != parts[1] || !spelled(parts[2], parts[3])) {
			err = errors.New("it is not a record of waldo")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", file, err))
			continue
		}
		fmt.Printf("%s: sound, in the log %s of %d records\n%s\n", file, origin, tree.N, record)
		all = append(all, receipt{file, parts[2], parts[3], seq})
	}
	slices.SortStableFunc(all, func(a, b receipt) int { return cmp.Compare(a.seq, b.seq) })
	l := ledger{keys: map[string]*holder{}, ended: map[string]string{}}
	for _, r := range all {
		if err := l.take(r); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", r.file, err))
		}
	}
	return faults
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

// verify checks a receipt, and returns the line of the record that it proves, its number, and the tree of its log.
func verify(p *policy, receipt []byte) (record, origin string, tree tlog.Tree, seq int64, err error) {
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
		return "", "", tree, 0, errors.New("it is not a tlog-proof with a record")
	}
	at := max(bytes.LastIndex(line, []byte(`,"hash":"`)), 0)
	leaf := sha256.Sum256(line[:at])
	if string(line[at:]) != fmt.Sprintf(`,"hash":"%x"}`, leaf) {
		return "", "", tree, 0, errors.New("the record was changed: its hash does not fit its bytes")
	}
	origin, tree, err = p.open(signed)
	first, _ := strconv.ParseInt(origin[strings.LastIndex(origin, "/")+1:], 10, 64)
	if err == nil && !bytes.HasPrefix(line, fmt.Appendf(nil, `{"v":1,"seq":%d,`, first+i)) {
		err = errors.New("the record's number is not its place in the log")
	}
	return string(line), origin, tree, first + i, cmp.Or(err, tlog.CheckRecord(proof, tree.N, tree.Hash, i, tlog.RecordHash(leaf[:])))
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
