package evidence

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	_ "modernc.org/sqlite"

	"waldo/internal/testing/repo"
)

// judge returns a program that scripts/setup-judges.sh built. Where it is missing, the test fails in CI and skips
// elsewhere.
func judge(t *testing.T, name string) string {
	t.Helper()
	path, found := repo.Cache(t, "judges", name)
	if !found {
		if os.Getenv("CI") == "true" {
			t.Fatal(name + " is missing: run scripts/setup-judges.sh")
		}
		t.Skip(name + " is missing: run scripts/setup-judges.sh")
	}
	return path
}

// litewitness starts torchwood's witness, which knows one log, and returns its key and address.
func litewitness(t *testing.T, origin, vkey string) (key, url string) {
	t.Helper()
	program, dir := judge(t, "litewitness"), t.TempDir()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	ring := agent.NewKeyring()
	if err := ring.Add(agent.AddedKey{PrivateKey: private}); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "agent"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	go func() {
		for {
			c, err := socket.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(ring, c) }()
		}
	}()
	known(t, filepath.Join(dir, "db"), origin, vkey)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "-name", "lite.example/w", "-db", filepath.Join(dir, "db"), "-listen", address,
		"-ssh-agent", filepath.Join(dir, "agent"), "-key", ssh.FingerprintSHA256(public))
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	for range 100 {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			cosigner, err := torchwood.NewCosignatureSigner("lite.example/w", private)
			if err != nil {
				t.Fatal(err)
			}
			return cosigner.Verifier().String(), "http://" + address
		}
		time.Sleep(50 * time.Millisecond)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	t.Fatalf("litewitness does not listen: %s", &said)
	return "", ""
}

// known makes litewitness's database with one log. Its own tool for that needs a module that the proxy lacks.
func known(t *testing.T, file, origin, vkey string) {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	empty, err := tlog.TreeHash(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, do := range []struct {
		text string
		args []any
	}{
		{`CREATE TABLE log (origin TEXT PRIMARY KEY, tree_size INTEGER NOT NULL, tree_hash TEXT NOT NULL)`, nil},
		{`CREATE TABLE key (origin TEXT NOT NULL, key TEXT NOT NULL, FOREIGN KEY(origin) REFERENCES log(origin))`, nil},
		{`INSERT INTO log VALUES (?, 0, ?)`, []any{origin, empty.String()}},
		{`INSERT INTO key VALUES (?, ?)`, []any{origin, vkey}},
	} {
		if _, err := db.ExecContext(t.Context(), do.text, do.args...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLitewitness: torchwood's own witness cosigns a log of waldo while it grows, its receipt verifies, and the witness
// refuses the log after a roll back or a rewrite with the log's own key.
func TestLitewitness(t *testing.T) {
	g := newGround(t, 10)
	at := g.grow()
	vkey, err := g.tree.Key(at.Origin)
	if err != nil {
		t.Fatal(err)
	}
	key, url := litewitness(t, at.Origin, vkey)
	policy := g.policy(key + " " + url)
	ask := func(tree *Tree, at *Checkpoint) error {
		failed, err := tree.Cosign(t.Context(), http.DefaultClient, policy, at)
		return errors.Join(append(failed, err)...)
	}
	if err := ask(g.tree, at); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "log")
	if err := os.CopyFS(old, os.DirFS(g.tree.Dir)); err != nil {
		t.Fatal(err)
	}
	for _, more := range []int{1, 300, 700} {
		g.write(more)
		if err := ask(g.tree, g.grow()); err != nil {
			t.Fatalf("%d more records: %v", more, err)
		}
	}
	at, err = g.tree.Cosigned(policy)
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := g.tree.Receipt(at, g.record(500))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyReceipt(receipt, policy); err != nil {
		t.Error(err)
	}
	rolled := &Tree{Dir: old, Keys: g.tree.Keys}
	before, err := rolled.Read()
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(rolled, before); !errors.Is(err, ErrRefused) {
		t.Errorf("rolled back: %v", err)
	}
	signer, err := g.tree.signer(at.Origin, false)
	if err != nil {
		t.Fatal(err)
	}
	forged := torchwood.Checkpoint{Origin: at.Origin, Tree: tlog.Tree{N: at.N, Hash: tlog.Hash{1}}}
	signed, err := note.Sign(&note.Note{Text: forged.String()}, signer)
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(g.tree, &Checkpoint{forged, at.First, signed}); !errors.Is(err, ErrRefused) {
		t.Errorf("rewritten, of the same size: %v", err)
	}
}

// bundles serves a log's folder, and the hashes of its records as the entries of C2SP tlog-tiles.
func (g *ground) bundles(at *Checkpoint) http.Handler {
	all := http.FileServer(http.Dir(g.tree.Dir))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/tile/entries/") {
			all.ServeHTTP(w, r)
			return
		}
		tile, err := torchwood.ParseTilePath(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		for i := range tile.W {
			b, _ := hex.DecodeString(g.record(at.First + uint64(tile.N)<<torchwood.TileHeight + uint64(i)).Hash)
			_, _ = w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...))
		}
	})
}

// TestFsck: tessera's checker finds the tiles and the checkpoint sound for the hashes of the records in the segments,
// and finds a changed tile and a changed record.
func TestFsck(t *testing.T) {
	program := judge(t, "fsck")
	for _, row := range []struct {
		name string
		do   func(g *ground)
		want string // in what it says
	}{
		{"control", func(*ground) {}, ""},
		{"a changed tile", func(g *ground) {
			path := filepath.Join(g.tree.Dir, "tile", "0", "000")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[40] ^= 1
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "fsck failed"},
		{"other records", func(g *ground) { g.tree = &Tree{Dir: newGround(t, 600).tree.Dir, Keys: g.tree.Keys} }, "fsck failed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t, 600)
			at := g.grow()
			vkey, err := g.tree.Key(at.Origin)
			if err != nil {
				t.Fatal(err)
			}
			served := *g
			row.do(&served)
			tiles := g.bundles(at)
			entries := served.bundles(at)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/tile/entries/") {
					entries.ServeHTTP(w, r)
					return
				}
				tiles.ServeHTTP(w, r)
			}))
			defer srv.Close()
			file := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(file, []byte(vkey), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			// With one worker, fsck hangs once that worker has found a fault.
			out, err := exec.CommandContext(ctx, program, "-ui=false", "-v=1", "-N=8", "-storage_url", srv.URL+"/",
				"-public_key", file).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if failed := strings.Contains(string(out), "fsck failed"); failed != (row.want != "") ||
				!failed && !strings.Contains(string(out), "Successfully fsck'd") {
				t.Errorf("it said: %s", out)
			}
		})
	}
}
