package template

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// opened is an opener that gives every part the same bytes.
func opened(b []byte) opener {
	return func(v1.Descriptor) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
}

func hashed(t *testing.T, b []byte) v1.Hash {
	t.Helper()
	h, err := v1.NewHash(sum(b))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestLayersAreBounded: a manifest, and an archive of an image, with more layers than the bounds allow are refused.
func TestLayersAreBounded(t *testing.T) {
	layer, config := root(t), []byte("{}")
	for n, want := range map[int]error{3: nil, 4: ErrTooMuch} {
		m := v1.Manifest{Config: v1.Descriptor{Digest: hashed(t, config)}}
		var names []string
		for range n {
			m.Layers = append(m.Layers, v1.Descriptor{MediaType: types.OCILayer, Digest: hashed(t, layer)})
			names = append(names, "l/layer.tar")
		}
		if _, err := readImage(encode(t, m), opened(config), Bounds{Layers: 3}); !errors.Is(err, want) {
			t.Errorf("a manifest of %d layers: %v", n, err)
		}
		c := v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH}
		for range n {
			c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, hashed(t, layer))
		}
		b := pack(t, file("manifest.json", string(encode(t, []map[string]any{{"Config": "c.json", "Layers": names}}))),
			file("c.json", string(encode(t, c))), file("l/layer.tar", string(layer)))
		s := fresh(t)
		s.bounds.Layers = 3
		if _, err := s.Find(t.Context(), write(t, "image.tar", b), false); !errors.Is(err, want) {
			t.Errorf("an archive of %d layers: %v", n, err)
		}
	}
}

// TestConfigurationOfOtherLayers: a configuration that knows more or fewer layers than the image has is refused.
func TestConfigurationOfOtherLayers(t *testing.T) {
	layer := root(t)
	for known := range 4 {
		c := v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH}
		for range known {
			c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, hashed(t, layer))
		}
		i := &image{config: encode(t, c)}
		for range 2 {
			i.layers = append(i.layers, part{digest: sum(layer), size: int64(len(layer)),
				open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil }})
		}
		tr, _, _ := grown(t)
		err := i.unpack(context.Background(), tr)
		if (err == nil) != (known == 2) ||
			err != nil && !strings.Contains(err.Error(), "2 layers, and the configuration knows") {
			t.Errorf("two layers, and %d known: %v", known, err)
		}
	}
}

// TestDocumentsAreBounded: a configuration and a document of an archive of more than maxDocument bytes are refused.
func TestDocumentsAreBounded(t *testing.T) {
	for n, want := range map[int]error{maxDocument: nil, maxDocument + 1: ErrTooMuch} {
		b := []byte(`{"x":"` + strings.Repeat("x", n-8) + `"}`)
		if _, err := document(v1.Descriptor{Digest: hashed(t, b)}, opened(b)); !errors.Is(err, want) {
			t.Errorf("a document of %d bytes: %v", n, err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "index.json"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		in, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if _, err := readDocument(in, "index.json"); !errors.Is(err, want) {
			t.Errorf("a file of %d bytes: %v", n, err)
		}
	}
}

// TestBytesBehindAnArchive: bytes behind the end of a layer's archive are part of its digest, and are bounded as its
// files are.
func TestBytesBehindAnArchive(t *testing.T) {
	for behind, want := range map[int]error{1 << 10: nil, 1<<20 + 1<<19: ErrTooMuch} {
		layer := append(root(t), make([]byte, behind)...)
		c := v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH}
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, hashed(t, layer))
		i := &image{config: encode(t, c), layers: []part{{digest: sum(layer), size: int64(len(layer)),
			open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil }}}}
		tr, _, _ := grown(t)
		if err := i.unpack(context.Background(), tr); !errors.Is(err, want) {
			t.Errorf("%d bytes behind the archive: %v", behind, err)
		}
	}
}

// TestIndexWithoutAnImage: an index that has no image for this machine is refused, and one that has gives that.
func TestIndexWithoutAnImage(t *testing.T) {
	h := hashed(t, nil)
	other := v1.Descriptor{Digest: h, Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}
	mine := v1.Descriptor{Digest: h, Size: 7, Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}
	for _, row := range []struct {
		all  []v1.Descriptor
		size int64
	}{{[]v1.Descriptor{other, mine}, 7}, {[]v1.Descriptor{other}, 0}, {nil, 0}} {
		got, err := choose(encode(t, v1.IndexManifest{Manifests: row.all}))
		if (err == nil) != (row.size > 0) || got.Size != row.size {
			t.Errorf("of %d: %+v %v", len(row.all), got, err)
		}
	}
}

// TestKeptByDigest: a stored template is found by its digest alone. A digest that is a path, and one of another
// template than its folder's, find nothing.
func TestKeptByDigest(t *testing.T) {
	s := fresh(t)
	one, err := s.Find(t.Context(), write(t, "root.tar", root(t)), false)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Reopen(one.Name, one.Digest); err != nil || got.Dir != one.Dir {
		t.Fatalf("control: %+v %v", got, err)
	}
	planted := filepath.Join(filepath.Dir(s.dir), "planted")
	other := "sha256:" + strings.Repeat("0", 64)
	for at, digest := range map[string]string{planted: "../planted", s.place(other): one.Digest} {
		about, _ := json.Marshal(Template{Digest: digest})
		if err := errors.Join(os.MkdirAll(filepath.Join(at, "root/usr"), 0o755),
			os.WriteFile(filepath.Join(at, "about.json"), about, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, digest := range []string{"../planted", other} {
		if got, err := s.Reopen("tar:/x", digest); err == nil {
			t.Errorf("%s: %+v", digest, got)
		}
	}
	if all, err := s.List(); err != nil || len(all) != 1 {
		t.Errorf("%v %v", all, err)
	}
}

// TestUserNumbers: users that the kernel takes for "leave it as it is" are refused.
func TestUserNumbers(t *testing.T) {
	for user, ok := range map[string]bool{
		"1000": true, "2147483645": true, "2147483646": false, "4294967295": false, "-1": false,
	} {
		if _, err := configOf(v1.Config{User: user}, accounts); (err == nil) != ok {
			t.Errorf("%s: %v", user, err)
		}
	}
}

// tally counts what is read.
type tally struct {
	io.Reader
	n int64
}

func (c *tally) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	return n, err
}

// TestBytesAreBoundedWhileCopied: a file larger than a template can be is not copied to its end. The control is a
// template that may be as large.
func TestBytesAreBoundedWhileCopied(t *testing.T) {
	const size = 32 << 20
	for most, all := range map[int64]bool{1 << 20: false, size: true} {
		tr, err := newTree(filepath.Join(t.TempDir(), "root"), Bounds{Bytes: most, Entries: 10})
		if err != nil {
			t.Fatal(err)
		}
		from := &tally{Reader: bytes.NewReader(pack(t, file("a", strings.Repeat("x", size))))}
		err = tr.unpack(from, false)
		if (err == nil) != all || !all && !errors.Is(err, ErrTooMuch) || (from.n >= size) != all {
			t.Errorf("at most %d bytes: read %d: %v", most, from.n, err)
		}
		if err := tr.close(); err != nil {
			t.Error(err)
		}
	}
}
