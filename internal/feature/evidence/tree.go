package evidence

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"waldo/internal/core/audit"
	"waldo/internal/model/secret"
	"waldo/internal/storage/safefile"
)

// Keys stores the key that signs checkpoints. *secretstore.Store implements it.
type Keys interface {
	Get(name string) (secret.Value, error)
	Set(name string, v secret.Value) error
	Has(name string) bool
}

// Tree is the Merkle tree (RFC 6962) over the records of a log. Its leaves are the hashes of the records. Its tiles
// (C2SP tlog-tiles) and its checkpoint (C2SP tlog-checkpoint) are files beside the log's segments.
type Tree struct {
	Dir  string // of the log
	Keys Keys
}

// Errors of a tree.
var (
	// ErrEmpty: the log has no record, or none that is on the disk for certain.
	ErrEmpty = errors.New("the log has no records yet")
	// ErrForked: the log is not the one of its checkpoint.
	ErrForked = errors.New("the log does not continue its checkpoint")
	// ErrNoKey: the key of the checkpoint is gone.
	ErrNoKey = errors.New("the key that signs this log's checkpoints is not in waldo's store")
)

// Checkpoint is the newest signed checkpoint, with what its origin names.
type Checkpoint struct {
	torchwood.Checkpoint
	First  uint64 // the number of the record that is leaf 0
	Signed []byte // as a signed note
}

const (
	checkpointFile = "checkpoint"
	lockFile       = "tree.lock"
	askLock        = "witness.lock" // one process at a time asks the witnesses
	batch          = 1 << 16        // records between two checkpoints while a tree is built
)

// begin names a log: by the hash of the first record in the tree, and its number.
func begin(r audit.Record) string { return fmt.Sprintf("waldo/%s/%d", r.Hash[:16], r.Seq) }

// firstOf returns the number of the first record from an origin.
func firstOf(origin string) (uint64, error) {
	parts := strings.Split(origin, "/")
	if len(parts) != 3 || parts[0] != "waldo" || len(parts[1]) != 16 {
		return 0, fmt.Errorf("%q is not the origin of a log of waldo", origin)
	}
	return strconv.ParseUint(parts[2], 10, 63)
}

// slot is the name of a log's key in waldo's store.
func slot(origin string) string { return "checkpoint-" + strings.Split(origin, "/")[1] }

// keyOf returns the key of a name in waldo's store. create: it is made where there is none.
func keyOf(keys Keys, name string, create bool) (ed25519.PrivateKey, error) {
	if !keys.Has(name) {
		if !create {
			return nil, ErrNoKey
		}
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		return private, keys.Set(name, secret.NewValue(base64.StdEncoding.EncodeToString(private.Seed())))
	}
	v, err := keys.Get(name)
	if err != nil {
		return nil, err
	}
	seed, err := base64.StdEncoding.DecodeString(v.Reveal())
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("%w: the secret %s is not a key", ErrNoKey, name)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// signer returns the signer of an origin's checkpoints.
func (t *Tree) signer(origin string, create bool) (note.Signer, error) {
	private, err := keyOf(t.Keys, slot(origin), create)
	if err != nil {
		return nil, err
	}
	vkey, err := vkeyOf(origin, private)
	if err != nil {
		return nil, err
	}
	hash := strings.Split(vkey, "+")[1] // NAME+HASH+KEY; no origin has a "+"
	return note.NewSigner("PRIVATE+KEY+" + origin + "+" + hash + "+" +
		base64.StdEncoding.EncodeToString(append([]byte{1}, private.Seed()...)))
}

func vkeyOf(origin string, private ed25519.PrivateKey) (string, error) {
	return note.NewEd25519VerifierKey(origin, private.Public().(ed25519.PublicKey))
}

// Key returns the public key of the checkpoints as a vkey of a signed note.
func (t *Tree) Key(origin string) (string, error) {
	private, err := keyOf(t.Keys, slot(origin), false)
	if err != nil {
		return "", err
	}
	return vkeyOf(origin, private)
}

// Read returns the stored checkpoint, which waldo's key signed; nil: there is none.
func (t *Tree) Read() (*Checkpoint, error) {
	b, err := safefile.Read(filepath.Join(t.Dir, checkpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	origin, _, _ := strings.Cut(string(b), "\n")
	first, err := firstOf(origin)
	if err != nil {
		return nil, err
	}
	vkey, err := t.Key(origin)
	if err != nil {
		return nil, err
	}
	own, err := note.NewVerifier(vkey)
	if err != nil {
		return nil, err
	}
	c, _, err := verified(b, torchwood.ThresholdPolicy(2, torchwood.OriginPolicy(origin),
		torchwood.SingleVerifierPolicy(own)))
	if err != nil {
		return nil, fmt.Errorf("the checkpoint: %w", err)
	}
	return &Checkpoint{c, first, b}, nil
}

// verified checks the signatures of a checkpoint, and its size before any arithmetic of trees.
func verified(signed []byte, rules torchwood.Policy) (torchwood.Checkpoint, *note.Note, error) {
	c, n, err := torchwood.VerifyCheckpoint(signed, rules)
	if err == nil && c.N > maxRecords {
		err = fmt.Errorf("the checkpoint is of %d records: no log is that long", c.N)
	}
	return c, n, err
}

// Advance takes the records up to number through into the tree, and signs a checkpoint where there are new ones.
func (t *Tree) Advance(ctx context.Context, through uint64) (*Checkpoint, error) {
	unlock, err := t.lock(ctx, lockFile)
	if err != nil {
		return nil, err
	}
	defer unlock()
	at, err := t.Read()
	if err != nil {
		return nil, err
	}
	g := &growth{t: t, at: at, added: map[int64]tlog.Hash{}}
	after := uint64(0)
	if at != nil {
		after, g.n, g.origin, g.first = at.First+uint64(at.N)-1, at.N, at.Origin, at.First
		if g.last, err = t.leaf(at, at.N-1); err != nil {
			return nil, err
		}
		if through < after {
			return nil, fmt.Errorf("%w: it has %d records, and its head says %d", ErrForked, after, through)
		}
	}
	if err := audit.Range(ctx, t.Dir, after, through, g.add); err != nil {
		return nil, err
	}
	if g.n == 0 {
		return nil, ErrEmpty
	}
	if g.next() != through+1 {
		return nil, fmt.Errorf("%w: record %d is missing or damaged", ErrForked, g.next())
	}
	return g.at, g.sign()
}

// lock takes a lock when it is free, or returns an error when the context ends.
func (t *Tree) lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(t.Dir, name), os.O_RDWR|os.O_CREATE|safefile.NoFollow, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrEmpty
	}
	if err != nil {
		return nil, err
	}
	if err := safefile.LockWithin(ctx, f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = errors.Join(safefile.Unlock(f), f.Close()) }, nil
}

// growth is a tree that grows by the records of a log.
type growth struct {
	t      *Tree
	at     *Checkpoint // signed last; nil: none
	origin string
	first  uint64 // the number of leaf 0
	n      int64
	last   tlog.Hash // the leaf hash of the last record
	added  map[int64]tlog.Hash
}

func (g *growth) next() uint64 { return g.first + uint64(g.n) }

// Leaf returns the hash of the leaf of a record, by the record's hash in hexadecimal.
func Leaf(hash string) (tlog.Hash, error) {
	b, err := hex.DecodeString(hash)
	if err != nil || len(b) != sha256.Size {
		return tlog.Hash{}, fmt.Errorf("%q is not the hash of a record", hash)
	}
	return tlog.RecordHash(b), nil
}

// ReadHashes reads hashes of the tree: new ones, else those of the tiles.
func (g *growth) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out, stored := make([]tlog.Hash, len(indexes)), []int64{}
	for _, i := range indexes {
		if _, ok := g.added[i]; !ok {
			stored = append(stored, i)
		}
	}
	var old []tlog.Hash
	if len(stored) > 0 {
		if g.at == nil {
			return nil, fmt.Errorf("hash %d is not there", stored[0])
		}
		var err error
		if old, err = g.t.hashes(g.at).ReadHashes(stored); err != nil {
			return nil, err
		}
	}
	for k, i := range indexes {
		h, ok := g.added[i]
		if !ok {
			h, old = old[0], old[1:]
		}
		out[k] = h
	}
	return out, nil
}

// add takes one record, which must continue the last.
func (g *growth) add(r audit.Record) error {
	if g.n == 0 {
		g.origin, g.first = begin(r), r.Seq
	} else {
		prev, err := Leaf(r.Prev)
		if err != nil {
			return err
		}
		if r.Seq != g.next() || prev != g.last {
			return fmt.Errorf("%w: record %d does not follow record %d", ErrForked, r.Seq, g.next()-1)
		}
	}
	leaf, err := Leaf(r.Hash)
	if err != nil {
		return err
	}
	more, err := tlog.StoredHashesForRecordHash(g.n, leaf, g)
	if err != nil {
		return err
	}
	start := tlog.StoredHashIndex(0, g.n)
	for i, h := range more {
		g.added[start+int64(i)] = h
	}
	g.n++
	g.last = leaf
	if len(g.added) >= 2*batch {
		return g.sign()
	}
	return nil
}

// sign writes the tiles of the new records, then the checkpoint.
func (g *growth) sign() error {
	if g.at != nil && g.at.N == g.n {
		return nil
	}
	old := int64(0)
	if g.at != nil {
		old = g.at.N
	}
	for _, tile := range tlog.NewTiles(torchwood.TileHeight, old, g.n) {
		data, err := tlog.ReadTileData(tile, g)
		if err != nil {
			return err
		}
		if err := g.t.save(tile, data); err != nil {
			return err
		}
	}
	root, err := tlog.TreeHash(g.n, g)
	if err != nil {
		return err
	}
	signer, err := g.t.signer(g.origin, g.at == nil)
	if err != nil {
		return err
	}
	c := torchwood.Checkpoint{Origin: g.origin, Tree: tlog.Tree{N: g.n, Hash: root}}
	signed, err := note.Sign(&note.Note{Text: c.String()}, signer)
	if err != nil {
		return err
	}
	if err := safefile.Replace(filepath.Join(g.t.Dir, checkpointFile), signed, 0o600); err != nil {
		return err
	}
	g.at, g.added = &Checkpoint{c, g.first, signed}, map[int64]tlog.Hash{}
	return nil
}

func (t *Tree) save(tile tlog.Tile, data []byte) error {
	path := filepath.Join(t.Dir, filepath.FromSlash(torchwood.TilePath(tile)))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return safefile.Replace(path, data, 0o600)
}

// hashes reads hashes of a signed tree. It checks each against the root.
func (t *Tree) hashes(at *Checkpoint) tlog.HashReader {
	return tlog.TileHashReader(at.Tree, tiles{t})
}

// leaf returns the hash of leaf i of a signed tree.
func (t *Tree) leaf(at *Checkpoint, i int64) (tlog.Hash, error) {
	h, err := t.hashes(at).ReadHashes([]int64{tlog.StoredHashIndex(0, i)})
	if err != nil {
		return tlog.Hash{}, fmt.Errorf("the tiles do not fit the checkpoint: %w", err)
	}
	return h[0], nil
}

// tiles reads the tiles of a tree from its folder.
type tiles struct{ t *Tree }

func (tiles) Height() int                     { return torchwood.TileHeight }
func (tiles) SaveTiles([]tlog.Tile, [][]byte) {}
func (s tiles) ReadTiles(all []tlog.Tile) (out [][]byte, err error) {
	for _, tile := range all {
		path := filepath.Join(s.t.Dir, filepath.FromSlash(torchwood.TilePath(tile)))
		b, err := safefile.Read(path)
		if errors.Is(err, fs.ErrNotExist) && tile.W < 1<<torchwood.TileHeight { // the whole tile has its beginning
			whole := tile
			whole.W = 1 << torchwood.TileHeight
			b, err = safefile.Read(filepath.Join(s.t.Dir, filepath.FromSlash(torchwood.TilePath(whole))))
		}
		if err != nil {
			return nil, err
		}
		if want := tile.W * tlog.HashSize; len(b) >= want {
			b = b[:want]
		}
		out = append(out, b)
	}
	return out, nil
}
