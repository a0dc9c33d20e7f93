package template

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

func file(name, text string) tar.Header { return tar.Header{Name: name, Mode: 0o644, Uname: text} }
func dir(name string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}
}
func link(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777}
}
func hard(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to}
}

// pack makes a tar of entries; the text of a file is in its Uname.
func pack(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		text := h.Uname
		h.Uname, h.Size, h.Format = "", int64(len(text)), tar.FormatPAX
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func fresh(t testing.TB) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "templates"), Bounds{Bytes: 1 << 20, Entries: 200, Layers: 8})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// grown returns a tree with layers unpacked into it, below a folder that holds a canary.
func grown(t *testing.T, layers ...[]byte) (*tree, string, error) {
	t.Helper()
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "canary"), []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	tr, err := newTree(filepath.Join(outside, "root"), Bounds{Bytes: 1 << 20, Entries: 200, Layers: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.close() })
	for _, l := range layers {
		if err := tr.unpack(bytes.NewReader(l), true); err != nil {
			return tr, outside, err
		}
	}
	return tr, outside, nil
}

// naive unpacks without any check: the control of the attacks.
func naive(t *testing.T, layers ...[]byte) string {
	t.Helper()
	outside := t.TempDir()
	root := filepath.Join(outside, "root")
	if err := errors.Join(os.Mkdir(root, 0o755),
		os.WriteFile(filepath.Join(outside, "canary"), []byte("untouched"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		for r := tar.NewReader(bytes.NewReader(l)); ; {
			h, err := r.Next()
			if err != nil {
				break
			}
			at := root + "/" + h.Name
			if strings.HasPrefix(filepath.Base(at), whiteout) {
				_ = os.RemoveAll(filepath.Dir(at) + "/" + strings.TrimPrefix(filepath.Base(at), whiteout))
				continue
			}
			target := strings.Replace(h.Linkname, "OUTSIDE", outside, 1)
			switch h.Typeflag {
			case tar.TypeSymlink:
				_ = os.Symlink(target, at)
			case tar.TypeLink:
				_ = os.Link(root+"/"+target, at)
			case tar.TypeReg:
				b, _ := io.ReadAll(r)
				_ = os.WriteFile(at, b, 0o600)
			}
		}
	}
	return outside
}

// touched says what happened to the canary.
func touched(outside string) string {
	b, err := os.ReadFile(filepath.Join(outside, "canary"))
	if errors.Is(err, fs.ErrNotExist) {
		return "gone"
	}
	return string(b)
}

func TestNoLayerReachesOutside(t *testing.T) {
	for _, row := range []struct {
		why    string
		layers [][]tar.Header
		naive  string // the control's effect on the canary
		err    error  // nil: the entries land inside
	}{
		{"a name that climbs", [][]tar.Header{{file("../canary", "hit")}}, "hit", ErrName},
		{"a name that climbs from within", [][]tar.Header{{file("a/../../canary", "hit")}}, "untouched", ErrName},
		{"through a link that climbs", [][]tar.Header{{link("up", ".."), file("up/canary", "hit")}}, "hit", nil},
		{"through a link that climbs, in the next layer", [][]tar.Header{{link("up", "..")}, {file("up/canary", "hit")}},
			"hit", nil},
		{"over a link", [][]tar.Header{{link("x", "../canary"), file("x", "hit")}}, "hit", nil},
		{"through a link of a link", [][]tar.Header{{link("a", ".."), link("b", "a"), file("b/canary", "hit")}}, "hit", nil},
		{"by a hard link that climbs", [][]tar.Header{{hard("x", "../canary"), file("x", "hit")}}, "hit", ErrName},
		{"by a hard link through a link", [][]tar.Header{{link("up", ".."), hard("x", "up/canary"), file("x", "hit")}},
			"hit", fs.ErrNotExist},
		{"by a hard link to a link", [][]tar.Header{{link("l", "../canary"), hard("x", "l"), file("x", "hit")}},
			"hit", ErrName},
		{"a whiteout through a link", [][]tar.Header{{link("up", "..")}, {file("up/.wh.canary", "")}}, "gone", nil},
	} {
		t.Run(row.why, func(t *testing.T) {
			var layers [][]byte
			for _, l := range row.layers {
				layers = append(layers, pack(t, l...))
			}
			if got := touched(naive(t, layers...)); got != row.naive {
				t.Fatalf("control: the canary is %q, want %q; the rest proves nothing", got, row.naive)
			}
			_, outside, err := grown(t, layers...)
			if !errors.Is(err, row.err) || (row.err == nil) != (err == nil) {
				t.Errorf("error %v, want %v", err, row.err)
			}
			if got := touched(outside); got != "untouched" {
				t.Errorf("the canary is %q", got)
			}
			if names, _ := os.ReadDir(outside); len(names) != 2 {
				t.Errorf("beside the root there is %v", names)
			}
		})
	}
}

func TestAbsoluteLinksStartAtTheRoot(t *testing.T) {
	tr, outside, err := grown(t, pack(t, dir("run"), dir("var"), link("var/run", "/run")),
		pack(t, file("var/run/x", "inside")))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(outside, "root/run/x")); string(b) != "inside" {
		t.Errorf("%q %v", b, err)
	}
	if _, err := os.Lstat("/run/x"); err == nil {
		t.Error("/run/x was made on this machine")
	}
	_ = tr
}

func TestWhatALayerMayHold(t *testing.T) {
	device := tar.Header{Name: "dev", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3, Mode: 0o666}
	pipe := tar.Header{Name: "pipe", Typeflag: tar.TypeFifo, Mode: 0o666}
	suid := tar.Header{Name: "suid", Mode: 0o6777, Uname: "x"}
	sgid := tar.Header{Name: "sgid", Typeflag: tar.TypeDir, Mode: 0o7777}
	tr, outside, err := grown(t, pack(t, device, pipe, suid, sgid, file("locked", "x")))
	if err != nil {
		t.Fatal(err)
	}
	if tr.skipped != 2 {
		t.Errorf("%d skipped, want the device and the pipe", tr.skipped)
	}
	for name, want := range map[string]fs.FileMode{"suid": 0o755, "sgid": fs.ModeDir | 0o755, "locked": 0o644} {
		if st, err := os.Lstat(filepath.Join(outside, "root", name)); err != nil || st.Mode() != want {
			t.Errorf("%s: %v %v, want %v", name, st.Mode(), err, want)
		}
	}
	for _, name := range []string{"dev", "pipe"} {
		if _, err := os.Lstat(filepath.Join(outside, "root", name)); err == nil {
			t.Errorf("%s was made", name)
		}
	}
}

func TestWhiteouts(t *testing.T) {
	lower := pack(t, dir("a"), file("a/old", "1"), file("a/both", "1"), dir("b"), file("b/old", "1"), file("c", "1"),
		dir("d"), file("d/x", "1"))
	for _, row := range []struct {
		why   string
		upper []tar.Header
		want  string
	}{
		{"one file", []tar.Header{file("a/.wh.old", "")}, "a a/both b b/old c d d/x"},
		{"a folder", []tar.Header{file(".wh.a", "")}, "b b/old c d d/x"},
		{"all below, but not what the layer brings", []tar.Header{file("a/new", "2"), file("a/.wh..wh..opq", "")},
			"a a/new b b/old c d d/x"},
		{"all below, before what the layer brings", []tar.Header{file("a/.wh..wh..opq", ""), file("a/new", "2")},
			"a a/new b b/old c d d/x"},
		{"a file of the same layer stays", []tar.Header{file("a/both", "2"), file("a/.wh.both", "")},
			"a a/both a/old b b/old c d d/x"},
		{"a folder that the layer makes anew", []tar.Header{dir("a"), file("a/new", "2"), file(".wh.a", "")},
			"a a/new b b/old c d d/x"},
		{"a file takes the place of a folder", []tar.Header{file("d", "2")}, "a a/both a/old b b/old c d"},
		{"a folder takes the place of a file", []tar.Header{dir("c"), file("c/y", "2")},
			"a a/both a/old b b/old c c/y d d/x"},
		{"what is not there", []tar.Header{file(".wh.zzz", "")}, "a a/both a/old b b/old c d d/x"},
	} {
		t.Run(row.why, func(t *testing.T) {
			tr, _, err := grown(t, lower, pack(t, row.upper...))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			_ = fs.WalkDir(tr.root.FS(), ".", func(p string, _ fs.DirEntry, _ error) error {
				if p != "." {
					names = append(names, p)
				}
				return nil
			})
			if got := strings.Join(names, " "); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
	for _, bad := range []string{".wh.", ".wh..", ".wh..."} {
		if _, outside, err := grown(t, lower, pack(t, file("a/"+bad, ""))); !errors.Is(err, ErrName) ||
			touched(outside) != "untouched" {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestBounds(t *testing.T) {
	long := tar.Header{Name: strings.Repeat("d/", maxDepth+1) + "x", Uname: "x"}
	many := make([]tar.Header, 201)
	for i := range many {
		many[i] = link("l"+strings.Repeat("x", i%7)+string(rune('a'+i%26)), "x")
	}
	for _, row := range []struct {
		why     string
		entries []tar.Header
		err     error
	}{
		{"as much as fits", []tar.Header{file("a", strings.Repeat("x", 1<<20))}, nil},
		{"one byte more", []tar.Header{file("a", strings.Repeat("x", 1<<20)), file("b", "x")}, ErrTooMuch},
		{"too many entries", many, ErrTooMuch},
		{"as many as fit", many[:200], nil},
		{"too deep", []tar.Header{long}, ErrName},
		{
			"links that make the way long",
			[]tar.Header{
				dir("d"), link("d/a", strings.Repeat("../d/", 700)+"x"), link("d/b", strings.Repeat("../d/", 700)+"a"),
				link("d/c", strings.Repeat("../d/", 700)+"b"), file("d/c/x", "1"),
			}, ErrName,
		},
		{"links in a circle", []tar.Header{link("a", "b"), link("b", "a"), file("a/x", "1")}, ErrName},
	} {
		if _, _, err := grown(t, pack(t, row.entries...)); !errors.Is(err, row.err) || (err == nil) != (row.err == nil) {
			t.Errorf("%s: %v, want %v", row.why, err, row.err)
		}
	}
}

// root is a root filesystem good enough for Find.
func root(t testing.TB) []byte {
	return pack(t, dir("usr"), dir("usr/bin"), file("usr/bin/true", "x"), link("bin", "usr/bin"), dir("etc"),
		file("etc/passwd", "root:x:0:0::/:/bin/sh\n"))
}

func write(t *testing.T, name string, b []byte) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(at, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return at
}

func TestFindFoldersAndArchives(t *testing.T) {
	s := fresh(t)
	folder := t.TempDir()
	if err := os.MkdirAll(filepath.Join(folder, "usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ why, name, want string }{
		{"this machine", "host", "host"},
		{"a folder", folder, "dir:" + folder},
		{"a tar", write(t, "root.tar", root(t)), "tar:"},
		{"a packed tar", write(t, "root.tgz", zipped(t, root(t))), "tar:"},
		{"what docker saved", write(t, "saved.tar", saved(t, root(t), "")), "tar:"},
		{"an OCI archive", write(t, "oci.tar", archived(t, image1(t, root(t)))), "tar:"},
	} {
		got, err := s.Find(t.Context(), row.name, false)
		if err != nil || !strings.HasPrefix(got.Name, row.want) {
			t.Errorf("%s: %+v %v", row.why, got, err)
			continue
		}
		if row.want != "tar:" {
			continue
		}
		if b, err := os.ReadFile(filepath.Join(got.Dir, "etc/passwd")); err != nil ||
			string(b) != "root:x:0:0::/:/bin/sh\n"+user {
			t.Errorf("%s: passwd %q %v", row.why, b, err)
		}
		if names, _ := os.ReadDir(got.Dir); len(names) != 3 {
			t.Errorf("%s: the root holds %v", row.why, names)
		}
		again, err := s.Find(t.Context(), row.name, false)
		if err != nil || !again.At.Equal(got.At) || again.Dir != got.Dir {
			t.Errorf("%s: not kept: %+v %v", row.why, again, err)
		}
	}
	above := filepath.Dir(s.dir)
	for _, d := range []string{filepath.Join(above, "usr"), filepath.Join(s.dir, "usr")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"/": "every file of this machine", s.dir: "state is below", above: "state is below",
	} {
		if got, err := s.Find(t.Context(), name, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	for _, row := range []struct{ why, name string }{
		{"nothing there", filepath.Join(folder, "none")},
		{"no root filesystem", t.TempDir()},
		{"a device", "/dev/null"},
		{"no name of anything", "UPPER CASE"},
		{"not a tar", write(t, "x", []byte(strings.Repeat("no tar ", 200)))},
		{"a layer outside of the archive", write(t, "evil.tar", saved(t, root(t), "../../../../../../etc/passwd"))},
		{"a layer by its absolute name", write(t, "evil2.tar", saved(t, root(t), "/etc/passwd"))},
	} {
		if got, err := s.Find(t.Context(), row.name, false); !errors.As(err, &Unfit{}) {
			t.Errorf("%s: %+v %v", row.why, got, err)
		}
	}
	for why, b := range map[string][]byte{"no bytes": {}, "an end alone": pack(t),
		"its own folder alone": pack(t, dir("./")), "packed": zipped(t, pack(t)),
		"an image of nothing": saved(t, pack(t), "")} {
		if got, err := s.Find(t.Context(), write(t, "empty.tar", b), false); !errors.Is(err, ErrEmpty) ||
			!errors.As(err, &Unfit{}) {
			t.Errorf("%s: %+v %v", why, got, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, ".new-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	all, err := s.List()
	if err != nil || len(all) != 4 {
		t.Fatalf("%v %v", all, err)
	}
	if err := s.Remove(all[0].Digest); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(all[0].Dir); err == nil {
		t.Error("removed and still there")
	}
	if err := s.Remove("../usr"); err == nil {
		t.Error("removed what is no digest")
	}
	if _, err := os.Stat(filepath.Join(above, "usr")); err != nil {
		t.Error("a folder beside the templates is gone")
	}
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(h[:])
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// saved returns the output of docker save for an image of one layer. path, if set, names the layer falsely.
func saved(t testing.TB, layer []byte, path string) []byte {
	config := encode(t, map[string]any{
		"os": "linux", "architecture": runtime.GOARCH, "rootfs": map[string]any{
			"type": "layers", "diff_ids": []string{sum(layer)},
		},
	})
	if path == "" {
		path = "l/layer.tar"
	}
	manifest := encode(t, []map[string]any{{"Config": "c.json", "Layers": []string{path}}})
	return pack(t, file("manifest.json", string(manifest)), file("c.json", string(config)),
		file("l/layer.tar", string(layer)))
}

// image1 is an image of layers, each packed with gzip.
func image1(t testing.TB, layers ...[]byte) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		if img, err = mutate.AppendLayers(img, layerOf{static.NewLayer(zipped(t, l), types.OCILayer), l}); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// layerOf is a static layer that knows what it unpacks to.
type layerOf struct {
	v1.Layer
	plain []byte
}

func (l layerOf) DiffID() (v1.Hash, error) { return v1.NewHash(sum(l.plain)) }

// archived is an image as an OCI layout in a tar.
func archived(t testing.TB, img v1.Image) []byte {
	t.Helper()
	entries := []tar.Header{file("oci-layout", `{"imageLayoutVersion":"1.0.0"}`)}
	add := func(b []byte) map[string]any {
		entries = append(entries, file("blobs/sha256/"+strings.TrimPrefix(sum(b), "sha256:"), string(b)))
		return map[string]any{"digest": sum(b), "size": len(b), "mediaType": string(types.OCIManifestSchema1)}
	}
	manifest, err := img.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	add(config)
	layers, _ := img.Layers()
	for _, l := range layers {
		r, err := l.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r)
		add(b)
	}
	entries = append(entries,
		file("index.json", string(encode(t, map[string]any{"schemaVersion": 2, "manifests": []any{add(manifest)}}))))
	return pack(t, entries...)
}

// serve runs a registry on loopback that holds img as test/root:1; change may spoil what it answers.
func serve(t *testing.T, img v1.Image, change func(path string, body []byte) []byte) (host string, asked *int) {
	t.Helper()
	inner := registry.New(registry.Logger(discard()))
	asked = new(int)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked++
		if change == nil || r.Method != http.MethodGet {
			inner.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		inner.ServeHTTP(rec, r)
		b := change(r.URL.Path, rec.Body.Bytes())
		w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
		if d := rec.Header().Get("Docker-Content-Digest"); d != "" && strings.Contains(r.URL.Path, "/manifests/") {
			w.Header().Set("Docker-Content-Digest", d)
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(b)
	}))
	t.Cleanup(srv.Close)
	host = strings.TrimPrefix(srv.URL, "http://")
	ref, err := name.ParseReference(host + "/test/root:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	*asked = 0
	return host, asked
}

func TestPull(t *testing.T) {
	img := image1(t, root(t), pack(t, file("usr/bin/.wh.true", ""), file("usr/bin/python3", "x")))
	host, asked := serve(t, img, nil)
	s := fresh(t)
	got, err := s.Find(t.Context(), host+"/test/root:1", false)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := img.Digest()
	if got.Digest != want.String() || got.Name != host+"/test/root:1@"+want.String() {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(filepath.Join(got.Dir, "usr/bin/python3")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(got.Dir, "usr/bin/true")); err == nil {
		t.Error("the second layer took nothing away")
	}
	if *asked == 0 {
		t.Fatal("control: the registry was not asked at all")
	}
	*asked = 0
	if again, err := s.Find(t.Context(), host+"/test/root:1", false); err != nil || again.Dir != got.Dir || *asked != 0 {
		t.Errorf("kept, and the registry was asked %d times: %v", *asked, err)
	}
	if _, err := s.Find(t.Context(), host+"/test/root:1", true); err != nil || *asked == 0 {
		t.Errorf("fresh, and the registry was asked %d times: %v", *asked, err)
	}
	byDigest, err := s.Find(t.Context(), host+"/test/root@"+want.String(), false)
	if err != nil || byDigest.Digest != want.String() {
		t.Errorf("%+v %v", byDigest, err)
	}
}

func TestPullRefuses(t *testing.T) {
	good := root(t)
	other := pack(t, dir("usr"), file("usr/evil", "x"))
	arch := func(t *testing.T) v1.Image {
		img, err := mutate.ConfigFile(image1(t), &v1.ConfigFile{OS: "linux", Architecture: "s390x"})
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	layerOnly := func(to []byte) func(string, []byte) []byte {
		return func(p string, b []byte) []byte {
			if strings.Contains(p, "/blobs/") && bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
				return to
			}
			return b
		}
	}
	for _, row := range []struct {
		why    string
		image  v1.Image
		change func(string, []byte) []byte
		err    string
	}{
		{"another layer than the manifest says", image1(t, good), layerOnly(zipped(t, other)), "sha256"},
		{"a layer with something behind it", image1(t, good), layerOnly(append(zipped(t, good), 0)), "sha256"},
		{"another configuration", image1(t, good), func(p string, b []byte) []byte {
			if strings.Contains(p, "/blobs/") && bytes.HasPrefix(b, []byte("{")) {
				return append(b, ' ')
			}
			return b
		}, "sha256"},
		{"another machine's", arch(t), nil, "linux/s390x"},
		{"what unpacks to something else than the configuration says", mutated(t, good, other), nil, "digest"},
	} {
		t.Run(row.why, func(t *testing.T) {
			host, _ := serve(t, row.image, row.change)
			s := fresh(t)
			got, err := s.Find(t.Context(), host+"/test/root:1", false)
			if err == nil || !strings.Contains(err.Error(), row.err) {
				t.Errorf("%+v %v", got, err)
			}
			if all, _ := s.List(); len(all) != 0 {
				t.Errorf("kept all the same: %v", all)
			}
		})
	}
	host, _ := serve(t, image1(t, good), nil) // the control of them all
	if _, err := fresh(t).Find(t.Context(), host+"/test/root:1", false); err != nil {
		t.Errorf("control: %v", err)
	}
}

// mutated is an image whose layer is other and whose configuration speaks of good.
func mutated(t *testing.T, good, other []byte) v1.Image {
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		t.Fatal(err)
	}
	img, err = mutate.AppendLayers(img, layerOf{static.NewLayer(zipped(t, other), types.OCILayer), good})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// The digest of a manifest requested by digest is checked here too, regardless of the library.
func TestParts(t *testing.T) {
	if err := sameDigest([]byte("x"), sum([]byte("x"))); err != nil {
		t.Errorf("control: %v", err)
	}
	if err := sameDigest([]byte("y"), sum([]byte("x"))); !errors.Is(err, ErrDigest) {
		t.Errorf("%v", err)
	}
	layer := root(t)
	config := encode(t, v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH,
		RootFS: v1.RootFS{DiffIDs: []v1.Hash{{Algorithm: "sha256", Hex: strings.TrimPrefix(sum(layer), "sha256:")}}},
	})
	open := func(b []byte) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := z.EncodeAll(layer, nil)
	for _, row := range []struct {
		why  string
		part part
		ok   bool
	}{
		{"plain", part{sum(layer), int64(len(layer)), open(layer)}, true},
		{"gzip", part{sum(zipped(t, layer)), int64(len(zipped(t, layer))), open(zipped(t, layer))}, true},
		{"zstd", part{sum(packed), int64(len(packed)), open(packed)}, true},
		{"another digest", part{sum(packed), int64(len(packed)), open(layer)}, false},
		{"the same files, packed in another way than the digest says",
			part{sum(packed), int64(len(zipped(t, layer))), open(zipped(t, layer))}, false},
		{"longer than stated", part{sum(layer), int64(len(layer)) - 2, open(layer)}, false},
	} {
		tr, _, _ := grown(t)
		if err := (&image{layers: []part{row.part}, config: config}).unpack(context.Background(),
			tr); (err == nil) != row.ok {
			t.Errorf("%s: %v", row.why, err)
		}
	}
	for _, row := range []struct {
		why string
		d   v1.Descriptor
		ok  bool
	}{
		{"a layer", v1.Descriptor{MediaType: types.OCILayer}, true},
		{"elsewhere", v1.Descriptor{MediaType: types.OCILayer, URLs: []string{"http://169.254.169.254/"}}, false},
		{"no layer", v1.Descriptor{MediaType: "text/html"}, false},
	} {
		row.d.Digest, _ = v1.NewHash(sum(layer))
		m := v1.Manifest{Layers: []v1.Descriptor{row.d}}
		m.Config.Digest, _ = v1.NewHash(sum(config))
		_, err := readImage(encode(t, m), func(v1.Descriptor) (io.ReadCloser, error) { return open(config)() },
			Bounds{Layers: 1})
		if (err == nil) != row.ok {
			t.Errorf("%s: %v", row.why, err)
		}
	}
}

func TestLook(t *testing.T) {
	at := t.TempDir()
	if err := os.MkdirAll(filepath.Join(at, "usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	_ = os.Symlink("/usr/bin", filepath.Join(at, "bin"))
	_ = os.WriteFile(filepath.Join(at, "usr/bin/busybox"), []byte("x"), 0o755)
	_ = os.Symlink("/bin/busybox", filepath.Join(at, "usr/bin/sh"))
	_ = os.Symlink("../../../../../../../../etc/hostname", filepath.Join(at, "usr/bin/out"))
	if st, err := Look(at, "/bin/sh"); err != nil || !st.Mode().IsRegular() {
		t.Errorf("%v %v", st, err)
	}
	if st, err := Look(at, "/bin/out"); err == nil {
		t.Errorf("a file of this machine was seen: %v", st)
	}
}

// Unpacked files stay below the root, for every tar.
func FuzzUnpack(f *testing.F) {
	f.Add(pack(f, dir("a"), link("a/l", "../.."), file("a/l/x", "1"), hard("h", "a/l/x"), file("a/.wh..wh..opq", "")))
	f.Add(pack(f, file("../x", "1")))
	f.Fuzz(func(t *testing.T, b []byte) {
		outside := t.TempDir()
		if err := os.WriteFile(filepath.Join(outside, "canary"), []byte("untouched"), 0o600); err != nil {
			t.Fatal(err)
		}
		tr, err := newTree(filepath.Join(outside, "root"), Bounds{Bytes: 1 << 16, Entries: 50, Layers: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.close()
		_ = tr.unpack(bytes.NewReader(b), true)
		names, _ := os.ReadDir(outside)
		if touched(outside) != "untouched" || len(names) != 2 {
			t.Fatalf("outside: %q %v", touched(outside), names)
		}
	})
}

func discard() *log.Logger { return log.New(io.Discard, "", 0) }
