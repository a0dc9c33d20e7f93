package evidence

import (
	"bytes"
	"crypto/ed25519"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestStandalone: the verifier that shares no code with waldo agrees with it, on a receipt and on changed ones.
func TestStandalone(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "waldo-receipt")
	if out, err := exec.Command("go", "build", "-o", tool, "waldo/cmd/waldo-receipt").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
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
	if err := os.WriteFile(filepath.Join(dir, "policy"), policy, 0o600); err != nil {
		t.Fatal(err)
	}
	agree := func(name string, receipt []byte, want bool) {
		file := filepath.Join(dir, "receipt")
		if err := os.WriteFile(file, receipt, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := VerifyReceipt(receipt, policy)
		out, alone := exec.Command(tool, filepath.Join(dir, "policy"), file).CombinedOutput()
		if (err == nil) != want || (alone == nil) != want {
			t.Errorf("%s: waldo %v; alone %v: %s", name, err, alone, out)
		}
	}
	agree("control", receipt, true)
	agree("without the witness", own, false)
	agree("another index", bytes.Replace(receipt, []byte("index 20"), []byte("index 21"), 1), false)
	agree("an index in other words", bytes.Replace(receipt, []byte("index 20"), []byte("index 020"), 1), false)
	agree("a witness's other time", bytes.Replace(receipt, []byte("w.example "), []byte("w.example A"), 1), false)
	agree("no record", bytes.Replace(receipt, []byte("extra "), []byte("extra A"), 1), false)
	for i := 30; i < len(receipt); i += 97 {
		changed := bytes.Clone(receipt)
		changed[i] ^= 2
		agree("a changed byte", changed, false)
	}
}
