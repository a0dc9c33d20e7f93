// Command waldo-receipt verifies receipts of waldo's log (C2SP tlog-proof) against a policy (C2SP tlog-policy). It
// needs no part of waldo: the standard library and golang.org/x/mod.
package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
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
	text, err := os.ReadFile(os.Args[1])
	var p *policy
	if err == nil {
		p, err = parsePolicy(string(text))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "waldo-receipt: %s: %v\n", os.Args[1], err)
		os.Exit(2)
	}
	code := 0
	for _, file := range os.Args[2:] {
		if err := run(os.Stdout, p, file); err != nil {
			fmt.Fprintf(os.Stderr, "waldo-receipt: %s: %v\n", file, err)
			code = 1
		}
	}
	os.Exit(code)
}

func run(w io.Writer, p *policy, file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	record, c, err := verify(p, b)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s: sound, in the log %s of %d records\n%s\n", file, c.origin, c.size, record)
	return err
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
	p := &policy{logs: map[string]note.Verifier{}, members: map[string]member{}}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if err := p.line(f); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if p.quorum == "" || len(p.logs) == 0 {
		return nil, errors.New("a policy needs a log and a quorum")
	}
	return p, nil
}

func (p *policy) line(f []string) error {
	switch {
	case f[0] == "log" && len(f) >= 2:
		v, err := note.NewVerifier(f[1])
		if err != nil {
			return err
		}
		p.logs[v.Name()] = v
		return nil
	case f[0] == "witness" && len(f) >= 3:
		c, err := newCosigner(f[2])
		if err != nil {
			return err
		}
		return p.add(f[1], member{key: c})
	case f[0] == "group" && len(f) >= 4:
		m := member{of: f[3:]}
		for _, one := range m.of {
			if _, ok := p.members[one]; !ok {
				return fmt.Errorf("the group %s has an unknown member %s", f[1], one)
			}
		}
		switch f[2] {
		case "any":
			m.n = 1
		case "all":
			m.n = len(m.of)
		default:
			n, err := strconv.Atoi(f[2])
			if err != nil || n < 1 || n > len(m.of) {
				return fmt.Errorf("the group %s wants any, all or 1 to %d", f[1], len(m.of))
			}
			m.n = n
		}
		return p.add(f[1], m)
	case f[0] == "quorum" && len(f) == 2 && p.quorum == "":
		if _, ok := p.members[f[1]]; !ok && f[1] != "none" {
			return fmt.Errorf("the quorum %s is unknown", f[1])
		}
		p.quorum = f[1]
		return nil
	}
	return fmt.Errorf("%q is not a line of a policy", strings.Join(f, " "))
}

func (p *policy) add(name string, m member) error {
	if _, ok := p.members[name]; ok || name == "none" {
		return fmt.Errorf("the name %s is taken", name)
	}
	p.members[name] = m
	return nil
}

// satisfied reports whether the signatures reach a member of the policy.
func (p *policy) satisfied(name string, signed map[*cosigner]bool) bool {
	if name == "none" {
		return true
	}
	m := p.members[name]
	if m.key != nil {
		return signed[m.key]
	}
	n := 0
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
	part := strings.SplitN(vkey, "+", 3)
	if len(part) != 3 {
		return nil, errors.New("the key of a witness is NAME+HASH+KEY")
	}
	hash, err := strconv.ParseUint(part[1], 16, 32)
	if err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(part[2])
	if err != nil || len(key) != 1+ed25519.PublicKeySize || key[0] != cosignatureV1 {
		return nil, errors.New("the key of a witness is an Ed25519 key of cosignatures")
	}
	sum := sha256.Sum256(append([]byte(part[0]+"\n"), key...))
	if uint64(binary.BigEndian.Uint32(sum[:])) != hash {
		return nil, errors.New("the hash of the key does not fit it")
	}
	return &cosigner{part[0], uint32(hash), key[1:]}, nil
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
	if !ok || len(lines) < 3 || lines[0] != "c2sp.org/tlog-proof@v1" {
		return "", c, errors.New("it is not a tlog-proof")
	}
	extra, ok := strings.CutPrefix(lines[1], "extra ")
	index, indexed := strings.CutPrefix(lines[2], "index ")
	if !ok || !indexed {
		return "", c, errors.New("it has no record or no index")
	}
	line, err := base64.StdEncoding.DecodeString(extra)
	if err != nil {
		return "", c, err
	}
	i, err := strconv.ParseInt(index, 10, 64)
	if err != nil || i < 0 || strconv.FormatInt(i, 10) != index {
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
	if err != nil {
		return "", c, err
	}
	if err := tlog.CheckRecord(proof, c.size, c.root, i, tlog.RecordHash(leaf)); err != nil {
		return "", c, fmt.Errorf("the record is not in the log: %w", err)
	}
	return string(line), c, nil
}

// hashOf returns the hash of a record's line, after a check that the line ends in it.
func hashOf(line string) ([]byte, error) {
	at := strings.LastIndex(line, `,"hash":"`)
	if at < 0 || len(line) != at+len(`,"hash":"`)+64+len(`"}`) || !strings.HasSuffix(line, `"}`) {
		return nil, errors.New("the record has no hash at its end")
	}
	sum := sha256.Sum256([]byte(line[:at]))
	if hex.EncodeToString(sum[:]) != line[at+len(`,"hash":"`):len(line)-2] {
		return nil, errors.New("the record was changed: its hash does not fit its bytes")
	}
	return sum[:], nil
}

// open checks the signatures of a checkpoint.
func (p *policy) open(signed []byte) (c checkpoint, err error) {
	origin, _, _ := strings.Cut(string(signed), "\n")
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
	n, err := note.Open(signed, note.VerifierList(known...))
	if err != nil {
		return c, fmt.Errorf("the checkpoint: %w", err)
	}
	byLog, by := false, map[*cosigner]bool{}
	for _, sig := range n.Sigs {
		byLog = byLog || sig.Name == own.Name() && sig.Hash == own.KeyHash()
		for _, m := range p.members {
			if m.key != nil && sig.Name == m.key.name && sig.Hash == m.key.hash {
				by[m.key] = true
			}
		}
	}
	if !byLog || !p.satisfied(p.quorum, by) {
		return c, errors.New("the checkpoint lacks signatures that the policy wants")
	}
	f := strings.Split(n.Text, "\n")
	if len(f) != 4 || f[3] != "" {
		return c, errors.New("the checkpoint is not origin, size and root")
	}
	size, err := strconv.ParseInt(f[1], 10, 64)
	root, rerr := base64.StdEncoding.DecodeString(f[2])
	if err != nil || rerr != nil || len(root) != tlog.HashSize {
		return c, errors.New("the checkpoint is not origin, size and root")
	}
	return checkpoint{f[0], size, tlog.Hash(root)}, nil
}
