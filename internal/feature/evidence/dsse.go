package evidence

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"

	"waldo/internal/core/audit"
)

// payloadType is that of a record's line in a DSSE envelope.
const payloadType = "application/vnd.waldo.record+json"

// envelope is a DSSE envelope (github.com/secure-systems-lab/dsse, version 1.0) with one signature.
type envelope struct {
	Payload     []byte         `json:"payload"`
	PayloadType string         `json:"payloadType"`
	Signatures  [1]dsseWritten `json:"signatures"`
}

type dsseWritten struct {
	KeyID string `json:"keyid"` // the vkey, as waldo log policy prints it
	Sig   []byte `json:"sig"`   // Ed25519
}

// pae is the text that is signed. No checkpoint begins so: an origin begins with "waldo/".
func pae(payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}

// envelopes signs the records of a tree, each in an envelope. It refuses a record that is not the tree's: a line that
// somebody else wrote does not get a signature.
type envelopes struct {
	w      io.Writer
	t      *Tree
	at     *Checkpoint
	key    ed25519.PrivateKey
	id     string
	next   int64       // the leaf that follows; -1: any
	from   int64       // the first of leaves
	leaves []tlog.Hash // of one tile
}

func newEnvelopes(w io.Writer, t *Tree, at *Checkpoint) (*envelopes, error) {
	key, err := keyOf(t.Keys, slot(at.Origin), false)
	if err != nil {
		return nil, err
	}
	id, err := vkeyOf(at.Origin, key)
	return &envelopes{w: w, t: t, at: at, key: key, id: id, next: -1}, err
}

func (e *envelopes) record(r audit.Record) error {
	i := int64(r.Seq - e.at.First)
	if i >= e.at.N {
		return nil // written since
	}
	if i < 0 || e.next >= 0 && i != e.next {
		return fmt.Errorf("%w: record %d does not follow", ErrForked, r.Seq)
	}
	want, err := e.leaf(i)
	if err != nil {
		return err
	}
	if leaf, err := Leaf(r.Hash); err != nil || leaf != want {
		return fmt.Errorf("%w: record %d is another than the tree has", ErrForked, r.Seq)
	}
	e.next = i + 1
	payload, err := json.Marshal(r)
	if err != nil {
		return err
	}
	sig := ed25519.Sign(e.key, pae(payload))
	return line(e.w, envelope{payload, payloadType, [1]dsseWritten{{e.id, sig}}})
}

// leaf returns a leaf of the tree. It reads those of one tile together.
func (e *envelopes) leaf(i int64) (tlog.Hash, error) {
	if i < e.from || i >= e.from+int64(len(e.leaves)) {
		const tile = 1 << torchwood.TileHeight
		e.from = i - i%tile
		var indexes []int64
		for k := e.from; k < min(e.from+tile, e.at.N); k++ {
			indexes = append(indexes, tlog.StoredHashIndex(0, k))
		}
		var err error
		if e.leaves, err = e.t.hashes(e.at).ReadHashes(indexes); err != nil {
			return tlog.Hash{}, fmt.Errorf("the tiles do not fit the checkpoint: %w", err)
		}
	}
	return e.leaves[i-e.from], nil
}

func (e *envelopes) end() error {
	if e.next != e.at.N {
		return fmt.Errorf("%w: its last records are missing or damaged", ErrForked)
	}
	return nil
}
