package main

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// authorities holds Mozilla's certificate authorities, which an image needs to reach servers over TLS.
const (
	authorities    = "golang.org/x/crypto/x509roots/fallback@v0.0.0-20261030153154-30a33513ff6d"
	authoritiesSum = "h1:5NBkmd8MXirajj6AAEpi4HFVJnVkBNPTL1ggYAKqaws="
)

// user is who waldo is in an image: nobody's number outside, never root.
const user = 65532

// images writes one archive of an OCI image layout with two tags: VERSION has gVisor, VERSION-nogvisor does not. Each
// is for both processors.
func (r *release) images() error {
	roots, err := certificates(r.work)
	if err != nil {
		return err
	}
	base := []entry{
		{name: "etc", mode: fs.ModeDir | 0o755}, {name: "etc/ssl", mode: fs.ModeDir | 0o755}, {name: "etc/ssl/certs", mode: fs.ModeDir | 0o755},
		{name: "etc/waldo", mode: fs.ModeDir | 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: roots},
		{name: "etc/passwd", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:0::/:/none\nwaldo:x:%d:%d::/var/lib/waldo:/none\n", user, user)},
		{name: "etc/group", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:\nwaldo:x:%d:\n", user)},
		{name: "tmp", mode: fs.ModeDir | fs.ModeSticky | 0o777}, {name: "usr", mode: fs.ModeDir | 0o755},
		{name: "usr/bin", mode: fs.ModeDir | 0o755}, {name: "var", mode: fs.ModeDir | 0o755}, {name: "var/lib", mode: fs.ModeDir | 0o755},
		{name: "var/lib/waldo", mode: fs.ModeDir | 0o700, uid: user},
	}
	all := v1.ImageIndex(empty.Index)
	all = mutate.IndexMediaType(all, types.OCIImageIndex)
	for _, lean := range []bool{false, true} {
		tag := r.version
		if lean {
			tag += "-nogvisor"
		}
		one := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		n := 0
		for _, b := range r.built {
			if b.OS != "linux" || b.Lean != lean {
				continue
			}
			image, err := r.image(base, b)
			if err != nil {
				return err
			}
			platform := &v1.Platform{OS: b.OS, Architecture: b.Arch}
			one = mutate.AppendManifests(one, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
			n++
		}
		if n > 0 {
			all = mutate.AppendManifests(all, mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{
				Annotations: map[string]string{"org.opencontainers.image.ref.name": tag}}})
		}
	}
	dir := filepath.Join(r.work, "oci")
	if _, err := layout.Write(dir, all); err != nil {
		return err
	}
	return r.layoutTar(dir, filepath.Join(r.out, "waldo_"+r.version+"_oci.tar"))
}

// image makes the image of one binary: nothing but waldo, a user and the authorities.
func (r *release) image(base []entry, b binary) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, part := range []struct {
		what string
		all  []entry
	}{{"folders and authorities", base}, {"waldo", []entry{{name: "usr/bin/waldo", mode: 0o755, fromFile: b.path}}}} {
		var packed bytes.Buffer
		if err := writeTarGz(&packed, part.all, r.at); err != nil {
			return nil, err
		}
		open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }
		layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
			History: v1.History{CreatedBy: "make release: " + part.what, Created: v1.Time{Time: r.at}}})
		if err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = b.OS, b.Arch, v1.Time{Time: r.at}
	config.Config = v1.Config{
		User: fmt.Sprintf("%d:%d", user, user), Entrypoint: []string{"/usr/bin/waldo"},
		Cmd:          []string{"--config", "/etc/waldo/waldo.yaml", "serve", "--listen", "0.0.0.0:7676"},
		Env:          []string{"PATH=/usr/bin", "HOME=/var/lib/waldo", "WALDO_STATE=/var/lib/waldo"},
		ExposedPorts: map[string]struct{}{"7676/tcp": {}}, Volumes: map[string]struct{}{"/var/lib/waldo": {}},
		WorkingDir: "/var/lib/waldo",
		Labels: map[string]string{
			"org.opencontainers.image.title": "waldo", "org.opencontainers.image.version": r.version,
			"org.opencontainers.image.revision": r.commit, "org.opencontainers.image.url": r.url,
		},
	}
	return mutate.ConfigFile(image, config)
}

// layoutTar writes a folder as an archive, the names in order.
func (r *release) layoutTar(dir, to string) error {
	var all []entry
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		e := entry{name: filepath.ToSlash(name), mode: 0o644, fromFile: path}
		if d.IsDir() {
			e.mode, e.fromFile = fs.ModeDir|0o755, ""
		}
		all = append(all, e)
		return err
	})
	if err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	if err := writeTar(f, all, r.at); err != nil {
		return err
	}
	return f.Close()
}

// certificates returns the authorities in PEM. The Go module with them has its own digest. dir is outside of a module.
func certificates(dir string) ([]byte, error) {
	said, err := outputEnv(dir, []string{"GOFLAGS=", "GOWORK=off"}, "go", "mod", "download", "-json", authorities)
	if err != nil {
		return nil, err
	}
	var at struct{ Dir, Sum string }
	if err := json.Unmarshal([]byte(said), &at); err != nil {
		return nil, err
	}
	if at.Sum != authoritiesSum {
		return nil, fmt.Errorf("%s has the digest %s, not %s", authorities, at.Sum, authoritiesSum)
	}
	der, err := os.ReadFile(filepath.Join(at.Dir, "bundle", "bundle.der"))
	if err != nil {
		return nil, err
	}
	all, err := x509.ParseCertificates(der)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, c := range all {
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
