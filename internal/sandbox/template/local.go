package template

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// layout takes an OCI image layout: a folder with index.json and blobs.
func (s *Store) layout(ctx context.Context, at string) (Template, error) {
	root, err := os.OpenRoot(at)
	if err != nil {
		return Template{}, err
	}
	defer func() { _ = root.Close() }()
	d, err := layoutManifest(root)
	if err != nil {
		return Template{}, fmt.Errorf("template %s: %w", at, err)
	}
	name := "oci:" + at + "@" + d.Digest.String()
	if t, ok := s.kept(name, d.Digest.String()); ok {
		return t, nil
	}
	return s.keep(ctx, name, d.Digest.String(), func(t *tree) error { return unpackLayout(ctx, root, d, t, s.bounds) })
}

// layoutManifest returns the descriptor of the image for this machine in a layout.
func layoutManifest(root *os.Root) (v1.Descriptor, error) {
	index, err := readDocument(root, "index.json")
	if err != nil {
		return v1.Descriptor{}, err
	}
	d, err := choose(index)
	for range 3 { // an index may name an index
		if err != nil || !d.MediaType.IsIndex() {
			return d, err
		}
		if index, err = document(d, blobs(root)); err == nil {
			d, err = choose(index)
		}
	}
	return d, errors.New("indexes in indexes, too deep")
}

func unpackLayout(ctx context.Context, root *os.Root, d v1.Descriptor, t *tree, b Bounds) error {
	manifest, err := document(d, blobs(root))
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	i, err := readImage(manifest, blobs(root), b)
	if err != nil {
		return err
	}
	return i.unpack(ctx, t)
}

// blobs opens parts of an image in the blobs of a layout.
func blobs(root *os.Root) opener {
	return func(d v1.Descriptor) (io.ReadCloser, error) {
		if !isDigest(d.Digest.String()) {
			return nil, fmt.Errorf("digest %q: only sha256 is taken", d.Digest)
		}
		return openFile(root, "blobs/sha256/"+d.Digest.Hex)
	}
}

// openFile opens a regular file below root, also by links that stay below it.
func openFile(root *os.Root, name string) (*os.File, error) {
	st, err := root.Stat(filepath.FromSlash(name))
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", name)
	}
	return root.Open(filepath.FromSlash(name))
}

func readDocument(root *os.Root, name string) ([]byte, error) {
	f, err := openFile(root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err == nil && len(b) > maxDocument {
		err = ErrTooMuch
	}
	return b, err
}

// archive takes a tar archive, plain or compressed: an image as docker save or an OCI tool writes it, or else a
// root filesystem. It is stored by the digest of the file. The digest is remembered with the file's metadata,
// so that an unchanged file is not read again.
func (s *Store) archive(ctx context.Context, at string, size int64, fresh bool) (Template, error) {
	mark := stamp(at, time.Now())
	if digest := s.noted(mark); digest != "" && mark != "" && !fresh {
		if t, ok := s.kept("tar:"+at+"@"+digest, digest); ok {
			return t, nil
		}
	}
	count := s.progress("reading "+filepath.Base(at), size)
	digest, err := fileDigest(ctx, at, count)
	_ = count.Close()
	if err != nil {
		return Template{}, fmt.Errorf("template %s: %w", at, err)
	}
	name := "tar:" + at + "@" + digest
	t, ok := s.kept(name, digest)
	if !ok {
		t, err = s.keep(ctx, name, digest, func(t *tree) error {
			count := s.progress("unpacking "+filepath.Base(at), 2*size) // read to unpack, and read to compare
			defer count.Close()
			if err := s.unpackArchive(ctx, at, t, count); err != nil {
				return err
			}
			again, err := fileDigest(ctx, at, count)
			if err == nil && again != digest {
				err = fmt.Errorf("the file changed while it was read: %w", ErrDigest)
			}
			return err
		})
	}
	if err != nil || mark == "" {
		return t, err
	}
	if stamp(at, time.Now()) != mark {
		return t, nil // it has changed since, so what was read is noted of nothing
	}
	return t, s.note(mark, digest)
}

// unpackArchive unpacks an archive into t. An archive that is an image is unpacked once more, layer by layer,
// out of a folder of its own.
func (s *Store) unpackArchive(ctx context.Context, at string, t *tree, count io.Writer) (err error) {
	if err := unpackFile(ctx, at, t, count); err != nil {
		return err
	}
	kind := ""
	for _, mark := range []string{"index.json", "manifest.json"} {
		if _, err := t.root.Lstat(mark); err == nil && !t.isRoot() {
			kind = mark
			break
		}
	}
	if kind == "" {
		return nil
	}
	parts, dir, err := t.aside()
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, parts.Close())
		clearAway(ctx, dir)
	}()
	if kind == "manifest.json" {
		return s.unpackSaved(ctx, parts, t)
	}
	d, err := layoutManifest(parts)
	if err != nil {
		return err
	}
	return unpackLayout(ctx, parts, d, t, s.bounds)
}

// isRoot reports whether what was unpacked looks like a root filesystem.
func (t *tree) isRoot() bool {
	for _, dir := range []string{"usr", "bin", "etc"} {
		if _, err := t.root.Lstat(dir); err == nil {
			return true
		}
	}
	return false
}

func unpackFile(ctx context.Context, at string, t *tree, count io.Writer) error {
	f, err := os.Open(at)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	r, err := decompress(bufio.NewReaderSize(io.TeeReader(until{ctx, f}, count), 1<<20))
	if err != nil {
		return err
	}
	defer r.Close()
	return t.unpack(r, false)
}

// unpackSaved unpacks what docker save wrote: manifest.json names the configuration and the layers.
func (s *Store) unpackSaved(ctx context.Context, parts *os.Root, t *tree) error {
	b, err := readDocument(parts, "manifest.json")
	if err != nil {
		return err
	}
	var saved []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(b, &saved); err != nil {
		return fmt.Errorf("manifest.json: %w", err)
	}
	if len(saved) != 1 {
		return fmt.Errorf("the archive holds %d images; save one alone", len(saved))
	}
	if len(saved[0].Layers) > s.bounds.Layers {
		return fmt.Errorf("%d layers: %w", len(saved[0].Layers), ErrTooMuch)
	}
	i := &image{}
	if i.config, err = readDocument(parts, saved[0].Config); err != nil {
		return err
	}
	for _, l := range saved[0].Layers {
		if strings.HasPrefix(l, "/") {
			return fmt.Errorf("layer %q: %w", l, ErrName)
		}
		i.layers = append(i.layers, part{open: func() (io.ReadCloser, error) { return openFile(parts, l) }})
	}
	return i.unpack(ctx, t)
}
