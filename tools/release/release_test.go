package main

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

var at = time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)

func TestVersionOf(t *testing.T) {
	if got, err := versionOf("# Changes\n\n## 0.2.0, 2027-01-02\n\n## 0.1.0, 2026-11-24\n"); err != nil || got != "0.2.0" {
		t.Errorf("the newest is %q, %v", got, err)
	}
	if got, err := versionOf("## 0.2.0, not released yet\n"); err == nil {
		t.Errorf("a heading without a date gives %q", got)
	}
}

// TestSame: two folders with the same bytes are the same, and one other byte is named.
func TestSame(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	if err := same(a, b); err == nil {
		t.Error("two empty folders compare as a release")
	}
	for _, dir := range []string{a, b} {
		write(t, filepath.Join(dir, "x"), "same")
	}
	if err := same(a, b); err != nil {
		t.Errorf("control: %v", err)
	}
	write(t, filepath.Join(b, "x"), "Same")
	if err := same(a, b); err == nil || !strings.Contains(err.Error(), "x differs") {
		t.Errorf("another byte: %v", err)
	}
	write(t, filepath.Join(b, "x"), "same")
	write(t, filepath.Join(b, "y"), "")
	if err := same(a, b); err == nil {
		t.Error("one more file is the same")
	}
}

// TestImages: each blob of the layout has the digest of its name, nobody is root in it, and its bytes follow from its input.
func TestImages(t *testing.T) {
	if _, err := certificates(t.TempDir()); err != nil {
		t.Skipf("the module of certificate authorities is not here: %v", err)
	}
	var sums [2]string
	for i := range sums {
		r := release{version: "1.2.3", commit: "abc", at: at, work: t.TempDir(), out: t.TempDir(), url: "https://example.com"}
		program := filepath.Join(r.work, "waldo")
		write(t, program, "a program")
		for _, arch := range []string{"amd64", "arm64"} {
			for _, lean := range []bool{false, true} {
				r.built = append(r.built, binary{target: target{OS: "linux", Arch: arch, Lean: lean}, path: program})
			}
		}
		if err := r.images(); err != nil {
			t.Fatal(err)
		}
		index, err := layout.ImageIndexFromPath(filepath.Join(r.work, "oci"))
		if err != nil {
			t.Fatal(err)
		}
		blobs, err := digests(filepath.Join(r.work, "oci", "blobs", "sha256"))
		if err != nil || len(blobs) != 7 {
			t.Fatal(blobs, err)
		}
		for _, b := range blobs {
			if b.name != b.sum {
				t.Errorf("blob %s has the digest %s", b.name, b.sum)
			}
		}
		top, err := index.IndexManifest()
		if err != nil || len(top.Manifests) != 2 || top.Manifests[1].Annotations["org.opencontainers.image.ref.name"] != "1.2.3-nogvisor" {
			t.Fatalf("%v %v", top, err)
		}
		one, err := index.ImageIndex(top.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		both, err := one.IndexManifest()
		if err != nil || len(both.Manifests) != 2 || both.Manifests[1].Platform.Architecture != "arm64" {
			t.Fatalf("%v %v", both, err)
		}
		image, err := one.Image(both.Manifests[1].Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil || config.Config.User != "65532:65532" || config.Architecture != "arm64" {
			t.Errorf("%+v %v", config, err)
		}
		all, err := digests(r.out)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		sums[i] = all[0].sum
	}
	if sums[0] != sums[1] {
		t.Error("the same input gives other bytes")
	}
}

func TestWriteTar(t *testing.T) {
	var b bytes.Buffer
	if err := writeTar(&b, []entry{{name: "tmp", mode: fs.ModeDir | fs.ModeSticky | 0o777}, {name: "w", mode: 0o755, content: []byte("x")}},
		at); err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(&b)
	dir, err := r.Next()
	if err != nil || dir.Typeflag != tar.TypeDir || dir.Mode != 0o1777 || !dir.ModTime.Equal(at) {
		t.Errorf("%+v %v", dir, err)
	}
	file, err := r.Next()
	if err != nil || file.Mode != 0o755 || file.Uid != 0 {
		t.Errorf("%+v %v", file, err)
	}
}

// TestSign: ssh-keygen verifies what was signed, and refuses other digests.
func TestSign(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not here")
	}
	dir, key := t.TempDir(), filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("%s %v", out, err)
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	signers := key + ".signers"
	write(t, signers, "release@example.com "+string(public))
	sums := filepath.Join(dir, sumsFile)
	write(t, sums, "0  x\n")
	if err := sign(dir, key); err != nil {
		t.Fatal(err)
	}
	verify := func() error {
		f, err := os.Open(sums)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		c := exec.Command("ssh-keygen", "-Y", "verify", "-f", signers, "-I", "release@example.com", "-n", "file", "-s", sums+".sig")
		c.Stdin = f
		return c.Run()
	}
	if err := verify(); err != nil {
		t.Errorf("control: %v", err)
	}
	write(t, sums, "1  x\n")
	if verify() == nil {
		t.Error("other digests are verified")
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
