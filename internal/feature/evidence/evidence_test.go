package evidence

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"waldo/internal/core/audit"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/database"
)

// ground is a state directory with a log.
type ground struct {
	t     *testing.T
	state string
	store *database.Store
	tree  *Tree
}

func newGround(t *testing.T, records int) *ground {
	t.Helper()
	state := t.TempDir()
	s, err := database.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	g := &ground{t, state, s, treeOf(s)}
	g.write(records)
	return g
}

// write appends records to the log, and closes it, so that its head is at its end.
func (g *ground) write(n int) {
	g.t.Helper()
	l, err := audit.Open(g.t.Context(), audit.Dir(g.state), audit.Options{Heads: g.store})
	if err != nil {
		g.t.Fatal(err)
	}
	for i := range n {
		if _, err := l.Append(g.t.Context(), "test", fmt.Appendf(nil, `{"n":%d}`, i), i == n-1); err != nil {
			g.t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		g.t.Fatal(err)
	}
}

func (g *ground) grow() *Checkpoint {
	g.t.Helper()
	at, err := g.tree.grown(g.t.Context(), g.store)
	if err != nil || at == nil {
		g.t.Fatalf("grown: %v, %v", at, err)
	}
	return at
}

func (g *ground) policy(witness string) []byte {
	g.t.Helper()
	at := g.grow()
	key, err := g.tree.Key(at.Origin)
	if err != nil {
		g.t.Fatal(err)
	}
	if witness == "" {
		return []byte("log " + key + "\nquorum none\n")
	}
	return []byte("log " + key + "\nwitness w " + witness + "\nquorum w\n")
}

func (g *ground) record(seq uint64) (r audit.Record) {
	g.t.Helper()
	err := audit.Range(g.t.Context(), g.tree.Dir, seq-1, seq, func(one audit.Record) error { r = one; return nil })
	if err != nil || r.Seq != seq {
		g.t.Fatalf("record %d: %v", seq, err)
	}
	return r
}

// TestTree: however a tree grew, its root is that of RFC 6962 over the hashes of the records, and every record has a
// receipt that torchwood's verifier takes.
func TestTree(t *testing.T) {
	g := newGround(t, 1)
	for _, more := range []int{0, 1, 255, 1, 300} {
		if more > 0 {
			g.write(more)
		}
		at := g.grow()
		var stored []tlog.Hash
		reader := tlog.HashReaderFunc(func(i []int64) (out []tlog.Hash, _ error) {
			for _, k := range i {
				out = append(out, stored[k])
			}
			return out, nil
		})
		for i := range at.N {
			leaf, _ := Leaf(g.record(at.First + uint64(i)).Hash)
			h, err := tlog.StoredHashesForRecordHash(i, leaf, reader)
			if err != nil {
				t.Fatal(err)
			}
			stored = append(stored, h...)
		}
		if root, err := tlog.TreeHash(at.N, reader); err != nil || root != at.Hash {
			t.Fatalf("%d records: root %v, want %v (%v)", at.N, at.Hash, root, err)
		}
		policy := g.policy("")
		for _, seq := range []uint64{at.First, at.First + uint64(at.N)/2, at.First + uint64(at.N) - 1} {
			receipt, err := g.tree.Receipt(at, g.record(seq))
			if err != nil {
				t.Fatal(err)
			}
			if v, err := VerifyReceipt(receipt, policy); err != nil || v.Size != at.N {
				t.Errorf("record %d of %d: %+v, %v", seq, at.N, v, err)
			}
		}
	}
}

// TestTampered: what was changed is found by the tree, or by a verifier of the receipt. The control changes nothing.
func TestTampered(t *testing.T) {
	segment := func(g *ground) string {
		all, _ := filepath.Glob(filepath.Join(g.tree.Dir, "*.jsonl"))
		return all[0]
	}
	rewrite := func(path string, f func([]byte) []byte) {
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, f(b), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		name, code string
		do         func(g *ground)
	}{
		{"control", "", func(*ground) {}},
		{"a tile's byte", "tree.differs", func(g *ground) {
			rewrite(filepath.Join(g.tree.Dir, "tile/0/000"), func(b []byte) []byte { b[40] ^= 1; return b })
		}},
		{"a tile removed", "tree.differs", func(g *ground) { _ = os.Remove(filepath.Join(g.tree.Dir, "tile/0/000")) }},
		{"a checkpoint's size", "checkpoint.damaged", func(g *ground) {
			rewrite(filepath.Join(g.tree.Dir, checkpointFile), func(b []byte) []byte {
				return bytes.Replace(b, []byte("\n301\n"), []byte("\n300\n"), 1)
			})
		}},
		{"another key's checkpoint", "checkpoint.damaged", func(g *ground) {
			at, _ := g.tree.Read()
			skey, _, _ := note.GenerateKey(nil, at.Origin)
			signer, _ := note.NewSigner(skey)
			b, _ := note.Sign(&note.Note{Text: at.String()}, signer)
			rewrite(filepath.Join(g.tree.Dir, checkpointFile), func([]byte) []byte { return b })
		}},
		{"the key removed", "checkpoint.key", func(g *ground) { _ = os.RemoveAll(filepath.Join(g.state, "secrets")) }},
		{"the log's end cut", "tree.longer", func(g *ground) {
			rewrite(segment(g), func(b []byte) []byte { return b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1] })
		}},
		{"the log rewritten as a whole", "tree.differs", func(g *ground) {
			other := newGround(g.t, 300)
			rewrite(segment(g), func([]byte) []byte { b, _ := os.ReadFile(segment(other)); return b })
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t, 300)
			g.grow()
			row.do(g)
			found := slices.DeleteFunc(Evidence{}.Check(t.Context(), g.store, &contract.Config{}, false),
				func(f audit.Finding) bool { return f.Code == "witness.none" })
			if row.code == "" && len(found) > 0 || row.code != "" && (len(found) != 1 || found[0].Code != row.code) {
				t.Errorf("found %+v, want %q", found, row.code)
			}
		})
	}
}

// vouched is a policy with a witness and with the root of record 3, and the checkpoint that the witness cosigned.
func (g *ground) vouched() (policy []byte, at *Checkpoint) {
	g.t.Helper()
	policy, _ = g.witness(1)
	_, err := g.tree.Cosign(g.t.Context(), http.DefaultClient, policy, g.grow())
	at, aerr := g.tree.Cosigned(policy)
	if err != nil || aerr != nil {
		g.t.Fatal(err, aerr)
	}
	return fmt.Appendf(policy, "# root %s\n", audit.FirstApprover(g.record(3))), at
}

// TestReceiptTampered: a receipt with any byte changed proves nothing else than it did.
func TestReceiptTampered(t *testing.T) {
	g := newGround(t, 20)
	at, policy := g.grow(), g.policy("")
	receipt, err := g.tree.Receipt(at, g.record(7))
	if err != nil {
		t.Fatal(err)
	}
	want, err := VerifyReceipt(receipt, policy)
	if err != nil {
		t.Fatal(err)
	}
	for i := range receipt {
		changed := bytes.Clone(receipt)
		changed[i] ^= 1
		if got, err := VerifyReceipt(changed, policy); err == nil && string(got.Record) != string(want.Record) {
			t.Errorf("byte %d: it proves %s", i, got.Record)
		}
	}
	other := newGround(t, 20)
	if _, err := VerifyReceipt(receipt, other.policy("")); err == nil {
		t.Error("another log's policy takes it")
	}
}

// TestWitness: a witness cosigns a log that grows, and refuses one that was rolled back or rewritten, also by the
// holder of the log's key.
func TestWitness(t *testing.T) {
	g := newGround(t, 10)
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	vkey, err := g.tree.Key(g.grow().Origin)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewServer(filepath.Join(t.TempDir(), "w"), "w.example", key, []string{vkey})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(w)
	defer srv.Close()
	policy := g.policy(w.Key() + " " + srv.URL)
	ask := func() error {
		failed, err := g.tree.Cosign(t.Context(), http.DefaultClient, policy, g.grow())
		return errors.Join(append(failed, err)...)
	}
	keep := t.TempDir()
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(keep, "log"), os.DirFS(g.tree.Dir)); err != nil {
		t.Fatal(err)
	}
	g.write(500)
	_ = os.Remove(g.tree.seenFile(Witnesses(policy)[0])) // the witness answers with the size that it has seen
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	at, err := g.tree.Cosigned(policy)
	if err != nil || at.N < 500 {
		t.Fatalf("cosigned %+v, %v", at, err)
	}
	receipt, err := g.tree.Receipt(at, g.record(400))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyReceipt(receipt, policy); err != nil {
		t.Error(err)
	}
	unwitnessed, _ := g.tree.Receipt(g.grow(), g.record(400))
	if _, err := VerifyReceipt(unwitnessed, policy); err == nil {
		t.Error("a receipt without the witness's cosignature is taken")
	}
	rolled := &Tree{Dir: filepath.Join(keep, "log"), Keys: g.tree.Keys}
	old, err := rolled.Read()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rolled.Cosign(t.Context(), http.DefaultClient, policy, old); !errors.Is(err, ErrRefused) {
		t.Errorf("rolled back: %v", err)
	}
	// The same origin and key over another log of more records.
	signer, err := g.tree.signer(at.Origin, false)
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int64]int{at.N + 5: http.StatusUnprocessableEntity, 1<<63 - 1: http.StatusBadRequest} {
		forged := torchwood.Checkpoint{Origin: at.Origin, Tree: tlog.Tree{N: size, Hash: tlog.Hash{1}}}
		signed, _ := note.Sign(&note.Note{Text: forged.String()}, signer)
		body := fmt.Sprintf("old %d\n%s\n\n%s", at.N, tlog.Hash{2}, signed)
		resp, err := http.Post(srv.URL+"/add-checkpoint", "text/plain", strings.NewReader(body))
		if err != nil || resp.StatusCode != want {
			t.Fatalf("rewritten, of %d records: %v, %v", size, resp, err)
		}
		_ = resp.Body.Close()
	}
}

// TestHostileWitness: a witness that signs another text, repeats itself, or sends waldo elsewhere takes nothing
// from the
// cosignature of an honest one. Its true cosignature is the control.
func TestHostileWitness(t *testing.T) {
	g := newGround(t, 10)
	vkey, err := g.tree.Key(g.grow().Origin)
	if err != nil {
		t.Fatal(err)
	}
	reached := 0
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	defer inside.Close()
	bad, err := torchwood.NewCosignatureSigner("bad.example", ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	sign := func(text string) string { // also what torchwood's signer refuses to
		key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, ed25519.SeedSize))
		stamp := make([]byte, 8)
		signature := ed25519.Sign(key, []byte("cosignature/v1\ntime 0\n"+text))
		hash := binary.BigEndian.AppendUint32(nil, bad.Verifier().KeyHash())
		return "— bad.example " + base64.StdEncoding.EncodeToString(slices.Concat(hash, stamp, signature)) + "\n"
	}
	for why, answer := range map[string]func(w http.ResponseWriter, r *http.Request, signed string){
		"control": func(w http.ResponseWriter, _ *http.Request, signed string) {
			text, _, _ := strings.Cut(signed, "\n\n")
			_, _ = io.WriteString(w, sign(text+"\n"))
		},
		"the signatures as text": func(w http.ResponseWriter, _ *http.Request, signed string) {
			_, _ = io.WriteString(w, "\n"+sign(signed))
		},
		"more text": func(w http.ResponseWriter, _ *http.Request, signed string) {
			_, _ = io.WriteString(w, "\nx\n\n"+sign(signed+"\nx\n"))
		},
		"another log": func(w http.ResponseWriter, _ *http.Request, _ string) {
			_, _ = io.WriteString(w, sign("other\n1\nAA==\n"))
		},
		"nothing": func(http.ResponseWriter, *http.Request, string) {},
		"endless": func(w http.ResponseWriter, _ *http.Request, _ string) {
			_, _ = io.WriteString(w, strings.Repeat("— x AAAA\n", maxAnswer))
		},
		"elsewhere": func(w http.ResponseWriter, r *http.Request, _ string) {
			http.Redirect(w, r, inside.URL, http.StatusTemporaryRedirect)
		},
		"another size each time": func(w http.ResponseWriter, r *http.Request, _ string) {
			w.Header().Set("Content-Type", "text/x.tlog.size")
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, strconv.Itoa(1+int(time.Now().UnixNano()%7))+"\n")
		},
	} {
		_, honest := g.witness(7)
		hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			_, signed, _ := strings.Cut(string(body), "\n\n")
			answer(w, r, signed)
		}))
		good, err := torchwood.NewCosignatureSigner("w.example", ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)))
		if err != nil {
			t.Fatal(err)
		}
		policy := fmt.Appendf(nil, "log %s\nwitness good %s %s\nwitness bad %s %s\ngroup both any good bad\nquorum both\n", vkey,
			good.Verifier(), honest.URL, bad.Verifier(), hostile.URL)
		failed, err := g.tree.Cosign(t.Context(), http.DefaultClient, policy, g.grow())
		if err != nil || len(failed) != map[bool]int{true: 0, false: 1}[why == "control"] || reached > 0 {
			t.Errorf("%s: %v, failed %v, reached %d", why, err, failed, reached)
		}
		hostile.Close()
	}
}

// witness starts a witness of this log, and returns the policy that needs it.
func (g *ground) witness(seed byte) (policy []byte, srv *httptest.Server) {
	g.t.Helper()
	vkey, err := g.tree.Key(g.grow().Origin)
	if err != nil {
		g.t.Fatal(err)
	}
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	w, err := NewServer(filepath.Join(g.t.TempDir(), "w"), "w.example", key, []string{vkey})
	if err != nil {
		g.t.Fatal(err)
	}
	srv = httptest.NewServer(w)
	g.t.Cleanup(srv.Close)
	return g.policy(w.Key() + " " + srv.URL), srv
}

// witnessed returns a log of ten records that a witness has cosigned.
func witnessed(t *testing.T) (*ground, *contract.Config, *httptest.Server) {
	t.Helper()
	g := newGround(t, 10)
	policy, srv := g.witness(0)
	config := &contract.Config{Log: contract.Log{Policy: filepath.Join(g.state, "policy"), Accepted: strictjson.Digest(policy)}}
	if err := os.WriteFile(config.Log.Policy, policy, 0o600); err != nil {
		t.Fatal(err)
	}
	g.cosigned(config.Log.Policy)
	return g, config, srv
}

// cosigned has the witness cosign the log as it is.
func (g *ground) cosigned(policy string) {
	g.t.Helper()
	b, err := os.ReadFile(policy)
	if err != nil {
		g.t.Fatal(err)
	}
	config := &contract.Config{Log: contract.Log{Policy: policy, Accepted: strictjson.Digest(b)}}
	if why := (witness{tree: g.tree, store: g.store, config: config}).Cosigned(g.t.Context()); why != nil {
		g.t.Fatal("control: ", why)
	}
}

// copied copies the state directory, has the witness see more records of the first one, and makes the copy the one that
// runs, with records of its own.
func (g *ground) copied(policy string, more, own int) {
	g.t.Helper()
	kept := g.t.TempDir()
	if err := os.CopyFS(kept, os.DirFS(g.state)); err != nil {
		g.t.Fatal(err)
	}
	g.write(more)
	g.cosigned(policy)
	s, err := database.Open(kept)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = s.Close() })
	g.state, g.store, g.tree = kept, s, &Tree{Dir: audit.Dir(kept), Keys: g.tree.Keys}
	if own > 0 {
		g.write(own)
	}
}

// headAt puts the head in waldo.db back.
func (g *ground) headAt(seq uint64) {
	g.t.Helper()
	if err := g.store.ResetHead(g.t.Context(), audit.Name, database.Head{Seq: seq, Hash: g.record(seq).Hash}); err != nil {
		g.t.Fatal(err)
	}
}

// TestWitnessed: waldo's tree or a witness finds what the chain and its heads cannot show. A checkpoint that is put back
// alone, and tiles that are built anew, are no other log.
func TestWitnessed(t *testing.T) {
	for _, row := range []struct {
		name, want string
		do         func(g *ground, policy string)
	}{
		{"control", "witness.seen", func(*ground, string) {}},
		{"control: more records", "witness.seen", func(g *ground, _ string) { g.write(5) }},
		{"waldo.db put back", "tree.differs", func(g *ground, _ string) { g.headAt(5) }},
		{"all put back", "witness.refused", func(g *ground, policy string) { g.copied(policy, 3, 0) }},
		{"all put back, and fewer records added", "witness.refused", func(g *ground, policy string) { g.copied(policy, 9, 2) }},
		{"two waldos on a copied state directory, as long", "witness.refused", func(g *ground, policy string) {
			g.copied(policy, 3, 3)
		}},
		{"two waldos on a copied state directory, longer", "witness.refused", func(g *ground, policy string) {
			g.copied(policy, 3, 30)
		}},
		{"a checkpoint replayed alone", "witness.seen", func(g *ground, policy string) {
			old, _ := os.ReadFile(filepath.Join(g.tree.Dir, checkpointFile))
			g.write(3)
			g.cosigned(policy)
			if err := os.WriteFile(filepath.Join(g.tree.Dir, checkpointFile), old, 0o600); err != nil {
				g.t.Fatal(err)
			}
		}},
		{"the tree removed", "witness.seen", func(g *ground, _ string) {
			_ = os.Remove(filepath.Join(g.tree.Dir, checkpointFile))
			_ = os.RemoveAll(filepath.Join(g.tree.Dir, "tile"))
		}},
		{"another log from its start", "witness.missing", func(g *ground, _ string) {
			other := newGround(g.t, 12)
			g.state, g.store, g.tree = other.state, other.store, other.tree
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			g, config, _ := witnessed(t)
			row.do(g, config.Log.Policy)
			var codes []string
			for _, f := range g.tree.check(t.Context(), g.store, config) {
				codes = append(codes, f.Code)
			}
			if got := strings.Join(codes, " "); got != row.want {
				t.Errorf("found %q, want %q", got, row.want)
			}
		})
	}
}

// TestRequired: a call whose contract requires a witness acts while the witness cosigns, and is refused with a code
// where it saw another log, cannot be reached, or is not asked for.
func TestRequired(t *testing.T) {
	for _, row := range []struct {
		name, want string
		do         func(g *ground, file string, srv *httptest.Server)
	}{
		{"control", "", func(g *ground, _ string, _ *httptest.Server) { g.write(3) }},
		{"a witness of the agent's own", "witness.policy", func(g *ground, file string, _ *httptest.Server) {
			policy, _ := g.witness(2)
			if err := os.WriteFile(file, policy, 0o600); err != nil {
				g.t.Fatal(err)
			}
			g.cosigned(file) // control: it would do, if it were accepted
		}},
		{"rolled back", "witness.refused", func(g *ground, file string, _ *httptest.Server) { g.copied(file, 3, 0) }},
		{"the head is put back", "tree.differs", func(g *ground, _ string, _ *httptest.Server) {
			g.headAt(5)
		}},
		{"no witness answers", "witness.missing", func(_ *ground, _ string, srv *httptest.Server) { srv.Close() }},
		{"no policy", "witness.policy", func(_ *ground, file string, _ *httptest.Server) { _ = os.Remove(file) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			g, config, srv := witnessed(t)
			row.do(g, config.Log.Policy, srv)
			why := witness{tree: g.tree, store: g.store, config: config}.Cosigned(t.Context())
			if row.want == "" && why != nil || row.want != "" && (why == nil || why.Code != row.want) {
				t.Errorf("%+v, want %q", why, row.want)
			}
		})
	}
}

// TestQuorum: a policy that the log's own signature satisfies is refused, however it is written.
func TestQuorum(t *testing.T) {
	for quorum, want := range map[string]string{
		"quorum w": "", "quorum w # none": "", // the controls
		"quorum none": "witness.policy", "quorum\tnone": "witness.policy", "quorum none # x": "witness.policy",
		"quorum none w": "witness.policy", "quorum none#w": "witness.policy", "": "witness.policy",
	} {
		g, config, _ := witnessed(t)
		b, err := os.ReadFile(config.Log.Policy)
		if err != nil {
			t.Fatal(err)
		}
		b = bytes.Replace(b, []byte("quorum w"), []byte(quorum), 1)
		if err := os.WriteFile(config.Log.Policy, b, 0o600); err != nil {
			t.Fatal(err)
		}
		config.Log.Accepted = strictjson.Digest(b)
		why := witness{tree: g.tree, store: g.store, config: config}.Cosigned(t.Context())
		if want == "" && why != nil || want != "" && (why == nil || why.Code != want) {
			t.Errorf("%q: %+v, want %q", quorum, why, want)
		}
	}
}

// TestWitnessAway: a witness that did not answer is named, also where the policy holds without it.
func TestWitnessAway(t *testing.T) {
	g, config, _ := witnessed(t)
	b, err := os.ReadFile(config.Log.Policy)
	if err != nil {
		t.Fatal(err)
	}
	other, srv := g.witness(2)
	_, second, _ := strings.Cut(string(other), "witness w ")
	second, _, _ = strings.Cut(second, "\n")
	b = bytes.Replace(b, []byte("quorum w"), []byte("witness v "+second+"\ngroup g any w v\nquorum g"), 1)
	if err := os.WriteFile(config.Log.Policy, b, 0o600); err != nil {
		t.Fatal(err)
	}
	config.Log.Accepted = strictjson.Digest(b)
	for _, want := range []string{"witness.seen", "witness.away witness.seen"} {
		g.write(1)
		var codes []string
		for _, f := range g.tree.check(t.Context(), g.store, config) {
			codes = append(codes, f.Code)
		}
		if got := strings.Join(codes, " "); got != want {
			t.Errorf("found %q, want %q", got, want)
		}
		srv.Close()
	}
}

// TestSeenBeyond: a log that was put back without what waldo knows of its witness is named as rolled back.
func TestSeenBeyond(t *testing.T) {
	g, config, _ := witnessed(t)
	policy, err := os.ReadFile(config.Log.Policy)
	if err != nil {
		t.Fatal(err)
	}
	first := g.tree
	g.copied(config.Log.Policy, 9, 0)
	w := Witnesses(policy)[0]
	newer, err := os.ReadFile(first.seenFile(w))
	if err == nil {
		err = os.WriteFile(g.tree.seenFile(w), newer, 0o600)
	}
	if err != nil || g.tree.seen(w) <= g.grow().N {
		t.Fatal("control: the witness has seen more: ", err)
	}
	if _, err := g.tree.Ask(t.Context(), http.DefaultClient, w, g.grow()); !errors.Is(err, ErrRefused) {
		t.Errorf("%v", err)
	}
}

// TestJunk: what a witness sends beside its signature spoils no quorum of others.
func TestJunk(t *testing.T) {
	junk := strings.Repeat("— junk.example AAAAAAAA\n", 98)
	for _, row := range []struct {
		name  string
		write func(w http.ResponseWriter, g *ground, signer *torchwood.CosignatureSigner)
	}{
		{"control: an error", func(w http.ResponseWriter, _ *ground, _ *torchwood.CosignatureSigner) { w.WriteHeader(500) }},
		{"lines of others", func(w http.ResponseWriter, g *ground, signer *torchwood.CosignatureSigner) {
			_, _ = w.Write([]byte(strings.TrimPrefix(g.cosign(g.grow().String(), signer), g.grow().String()+"\n") + junk))
		}},
	} {
		g := newGround(t, 10)
		good, _ := g.witness(0)
		hostile, err := torchwood.NewCosignatureSigner("hostile.example", ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, 32)))
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { row.write(w, g, hostile) }))
		defer srv.Close()
		policy := strings.Replace(string(good), "quorum w",
			"witness h "+hostile.Verifier().String()+" "+srv.URL+"\ngroup one any w h\nquorum one", 1)
		if _, err := g.tree.Cosign(t.Context(), http.DefaultClient, []byte(policy), g.grow()); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

// TestTurn: a call waits for the turn of another only as long as it lives, and does not ask again what was cosigned for it
// meanwhile. What was cosigned before is asked again: it may have been put back with the log.
func TestTurn(t *testing.T) {
	g := newGround(t, 10)
	_, inner := g.witness(0)
	asks := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asks++
		inner.Config.Handler.ServeHTTP(w, r)
	}))
	defer srv.Close()
	policy := g.policy(inner.Config.Handler.(*Server).Key() + " " + srv.URL)
	current := func(ctx context.Context) error {
		_, failed, err := g.tree.current(ctx, g.store, policy)
		return errors.Join(append(failed, err)...)
	}
	if err := errors.Join(current(t.Context()), current(t.Context())); err != nil || asks != 2 {
		t.Fatalf("control: %v, asked %d times", err, asks)
	}
	unlock, err := g.tree.lock(t.Context(), askLock)
	if err != nil {
		t.Fatal(err)
	}
	const lockPause = 50 * time.Millisecond
	short, cancel := context.WithTimeout(t.Context(), 3*lockPause)
	defer cancel()
	if err := current(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that ended waits on: %v", err)
	}
	g.write(2)
	ended := make(chan error, 1)
	go func() { ended <- current(t.Context()) }()
	time.Sleep(5 * lockPause) // it has seen the head, and waits
	_, err = g.tree.Cosign(t.Context(), http.DefaultClient, policy, g.grow())
	unlock()
	if err := errors.Join(err, <-ended); err != nil || asks != 3 {
		t.Errorf("%v, asked %d times", err, asks)
	}
}

func (g *ground) cosign(text string, signer note.Signer) string {
	b, err := note.Sign(&note.Note{Text: text}, signer)
	if err != nil {
		g.t.Error(err)
	}
	return string(b)
}

// TestWitnessAnswers are the answers of C2SP tlog-witness to requests that it must not cosign.
func TestWitnessAnswers(t *testing.T) {
	g := newGround(t, 3)
	at := g.grow()
	vkey, _ := g.tree.Key(at.Origin)
	w, err := NewServer(t.TempDir(), "w.example", ed25519.NewKeyFromSeed(make([]byte, 32)), []string{vkey})
	if err != nil {
		t.Fatal(err)
	}
	strange := strings.Replace(string(at.Signed), "waldo/", "other/", 1)
	for _, row := range []struct {
		name, body string
		code       int
	}{
		{"no old size", string(at.Signed), 400},
		{"a size that is no number", "old 01\n\n" + string(at.Signed), 400},
		{"an unknown log", "old 0\n\n" + strange, 404},
		{"a key that is not the log's", "old 0\n\n" + strings.Replace(string(at.Signed), "\n\n", "\nmore\n\n", 1), 403},
		{"an old size beyond", fmt.Sprintf("old %d\n\n%s", at.N+1, at.Signed), 400},
		{"an old size that it did not see", fmt.Sprintf("old 1\n\n%s", at.Signed), 409},
		{"a proof from nothing", "old 0\n" + tlog.Hash{}.String() + "\n\n" + string(at.Signed), 422},
		{"control", "old 0\n\n" + string(at.Signed), 200},
		{"the same again", fmt.Sprintf("old %d\n\n%s", at.N, at.Signed), 200},
		{"from nothing again", "old 0\n\n" + string(at.Signed), 409},
		{"64 hashes", "old 1\n" + strings.Repeat(tlog.Hash{}.String()+"\n", 64) + "\n" + string(at.Signed), 400},
	} {
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/add-checkpoint", strings.NewReader(row.body)))
		if rec.Code != row.code {
			t.Errorf("%s: %d %q, want %d", row.name, rec.Code, rec.Body, row.code)
		}
	}
}

// TestForked: a log that does not continue its checkpoint gets no other one.
func TestForked(t *testing.T) {
	g := newGround(t, 10)
	g.grow()
	other := newGround(t, 30)
	for _, f := range []string{checkpointFile, "tile"} {
		_ = os.RemoveAll(filepath.Join(other.tree.Dir, f))
	}
	if err := os.CopyFS(other.tree.Dir, os.DirFS(filepath.Join(g.tree.Dir))); err == nil {
		t.Fatal("the segments have the same name")
	}
	for _, f := range []string{checkpointFile, "tile/0/000.p/11"} {
		b, err := os.ReadFile(filepath.Join(g.tree.Dir, f))
		if err != nil {
			t.Fatal(err)
		}
		_ = os.MkdirAll(filepath.Dir(filepath.Join(other.tree.Dir, f)), 0o700)
		if err := os.WriteFile(filepath.Join(other.tree.Dir, f), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other.tree.Keys = g.tree.Keys
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := other.tree.grown(ctx, other.store); !errors.Is(err, ErrForked) {
		t.Errorf("%v", err)
	}
}

// FuzzRequest: a witness reads any request without failing, and cosigns none that the log's key did not sign.
func FuzzRequest(f *testing.F) {
	f.Add("old 0\n\nwaldo/0000000000000000/1\n3\nAAAA\n\n— x y\n")
	skey, vkey, _ := note.GenerateKey(nil, "waldo/0000000000000000/1")
	_ = skey
	w, err := NewServer(f.TempDir(), "w", ed25519.NewKeyFromSeed(make([]byte, 32)), []string{vkey})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body string) {
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/add-checkpoint", strings.NewReader(body)))
		if rec.Code == http.StatusOK {
			t.Errorf("%q was cosigned", body)
		}
	})
}
