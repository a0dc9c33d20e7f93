package template

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"
)

// ErrDigest is the error for a part of an image that does not match its digest.
var ErrDigest = errors.New("the content is not what its digest says")

// maxDocument is how many bytes a manifest, an index or a configuration may have.
const maxDocument = 8 << 20

// maxWindow is how much memory a zstd layer may ask for.
const maxWindow = 128 << 20

// image is an image whose manifest is known. Every part is checked here against its digest,
// wherever it comes from.
type image struct {
	layers []part
	config []byte
}

// part is one layer. digest and size are those of the stored bytes, and empty for an archive that states none.
// The configuration holds the digest of the unpacked bytes.
type part struct {
	digest string
	size   int64
	open   func() (io.ReadCloser, error)
}

// opener opens a part of an image by its descriptor.
type opener func(d v1.Descriptor) (io.ReadCloser, error)

// readImage reads what the manifest names. It refuses layers that lie elsewhere than in the image's
// own repository, and more layers than the bounds allow.
func readImage(manifest []byte, open opener, b Bounds) (*image, error) {
	var m v1.Manifest
	if err := json.Unmarshal(manifest, &m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if len(m.Layers) > b.Layers {
		return nil, fmt.Errorf("%d layers: %w", len(m.Layers), ErrTooMuch)
	}
	config, err := document(m.Config, open)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	i := &image{config: config}
	for _, d := range m.Layers {
		if len(d.URLs) > 0 || !d.MediaType.IsLayer() {
			return nil, fmt.Errorf("layer %s of type %q: only layers of the image's own repository are taken", d.Digest,
				d.MediaType)
		}
		i.layers = append(i.layers, part{digest: d.Digest.String(), size: d.Size,
			open: func() (io.ReadCloser, error) { return open(d) }})
	}
	return i, nil
}

// document reads a small part of an image and checks its digest.
func document(d v1.Descriptor, open opener) ([]byte, error) {
	r, err := open(d)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	b, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxDocument {
		return nil, ErrTooMuch
	}
	return b, sameDigest(b, d.Digest.String())
}

// sameDigest checks bytes against their digest.
func sameDigest(b []byte, digest string) error {
	sum := sha256.Sum256(b)
	if got := "sha256:" + hex.EncodeToString(sum[:]); got != digest {
		return fmt.Errorf("%s is stated and %s was found: %w", digest, got, ErrDigest)
	}
	return nil
}

// unpack puts every layer into t.
func (i *image) unpack(ctx context.Context, t *tree) error {
	var c v1.ConfigFile
	if err := json.Unmarshal(i.config, &c); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if c.OS != "linux" || c.Architecture != runtime.GOARCH {
		return fmt.Errorf("the image is for %s/%s, and sandboxes here run linux/%s", c.OS, c.Architecture, runtime.GOARCH)
	}
	if len(c.RootFS.DiffIDs) != len(i.layers) {
		return fmt.Errorf("%d layers, and the configuration knows %d", len(i.layers), len(c.RootFS.DiffIDs))
	}
	for n, p := range i.layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.unpack(ctx, t, c.RootFS.DiffIDs[n].String()); err != nil {
			return fmt.Errorf("layer %d: %w", n+1, err)
		}
	}
	var err error
	t.config, err = configOf(c.Config, t.small)
	return err
}

// unpack puts a layer into t. It checks the digest of the stored bytes, if one is stated, and the digest of the
// unpacked bytes.
func (p part) unpack(ctx context.Context, t *tree, diffID string) error {
	r, err := p.open()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	stored, plain := sha256.New(), sha256.New()
	var raw io.Reader = until{ctx, r}
	if p.digest != "" {
		raw = io.LimitReader(raw, p.size+1)
	}
	in := bufio.NewReaderSize(io.TeeReader(raw, stored), 1<<20)
	out, err := decompress(in)
	if err != nil {
		return err
	}
	defer out.Close()
	both := until{ctx, io.TeeReader(out, plain)} // a small layer can unpack to much
	if err := t.unpack(both, true); err != nil {
		return err
	}
	// The digest covers bytes after the end of the tar too.
	if n, err := io.Copy(io.Discard, io.LimitReader(both, t.left.Bytes+1<<20)); err != nil {
		return err
	} else if n > t.left.Bytes {
		return ErrTooMuch
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	if p.digest != "" {
		if err := same(stored, p.digest); err != nil {
			return err
		}
	}
	return same(plain, diffID)
}

func same(h hash.Hash, digest string) error {
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != digest {
		return fmt.Errorf("%s is stated and %s was found: %w", digest, got, ErrDigest)
	}
	return nil
}

// decompress reads gzip and zstd, recognised by their first bytes, and passes other data through.
func decompress(r *bufio.Reader) (io.ReadCloser, error) {
	head, err := r.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(r)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(r), nil
}

// choose returns the descriptor of the image for this machine out of an index.
func choose(index []byte) (v1.Descriptor, error) {
	var m v1.IndexManifest
	if err := json.Unmarshal(index, &m); err != nil {
		return v1.Descriptor{}, fmt.Errorf("index: %w", err)
	}
	var found []v1.Descriptor
	for _, d := range m.Manifests {
		p := d.Platform
		if p == nil && len(m.Manifests) == 1 || p != nil && p.OS == "linux" && p.Architecture == runtime.GOARCH {
			found = append(found, d)
		}
	}
	if len(found) == 0 {
		return v1.Descriptor{}, fmt.Errorf("no image for linux/%s in it", runtime.GOARCH)
	}
	return found[0], nil
}
