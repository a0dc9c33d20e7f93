package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// entry is a file or a folder of an archive.
type entry struct {
	name     string
	mode     fs.FileMode // with fs.ModeDir for a folder
	uid      int
	content  []byte // or
	fromFile string
}

func (e entry) bytes() ([]byte, error) {
	if e.fromFile != "" {
		return os.ReadFile(e.fromFile)
	}
	return e.content, nil
}

// archives writes one archive for each binary: waldo, its man pages, completions and texts.
func (r *release) archives() error {
	share, err := r.share()
	if err != nil {
		return err
	}
	for _, b := range r.built {
		if b.Lean {
			continue
		}
		folder := b.name(r.version)
		all := []entry{{name: folder + "/" + filepath.Base(b.path), mode: 0o755, fromFile: b.path}}
		for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md"} {
			all = append(all, entry{name: folder + "/" + name, mode: 0o644, fromFile: filepath.Join(r.source, name)})
		}
		end, write := ".tar.gz", writeTarGz
		if b.OS == "windows" {
			end, write = ".zip", writeZip
		} else {
			for _, e := range share {
				e.name = folder + "/share/" + e.name
				all = append(all, e)
			}
		}
		f, err := os.Create(filepath.Join(r.out, folder+end))
		if err != nil {
			return err
		}
		if err := write(f, all, r.at); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// share returns the man pages and completions, in the order of their names.
func (r *release) share() (all []entry, err error) {
	root := filepath.Join(r.work, "share")
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		all = append(all, entry{name: filepath.ToSlash(name), mode: 0o644, fromFile: path})
		return err
	})
	return all, err
}

// writeTar writes an archive whose bytes follow from the entries and the time alone.
func writeTar(w io.Writer, all []entry, at time.Time) error {
	t := tar.NewWriter(w)
	for _, e := range all {
		content, err := e.bytes()
		if err != nil {
			return err
		}
		h := &tar.Header{Name: e.name, Mode: int64(e.mode.Perm()), Size: int64(len(content)), ModTime: at, Typeflag: tar.TypeReg,
			Uid: e.uid, Gid: e.uid, Format: tar.FormatPAX}
		if e.mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		if e.mode.IsDir() {
			h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(content); err != nil {
			return err
		}
	}
	return t.Close()
}

func writeTarGz(w io.Writer, all []entry, at time.Time) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := writeTar(z, all, at); err != nil {
		return err
	}
	return z.Close()
}

func writeZip(w io.Writer, all []entry, at time.Time) error {
	z := zip.NewWriter(w)
	for _, e := range all {
		content, err := e.bytes()
		if err != nil {
			return err
		}
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: at}
		h.SetMode(e.mode)
		to, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := to.Write(content); err != nil {
			return err
		}
	}
	return z.Close()
}

// nfpm makes the packages. It is run by go run, so that waldo's own module does not need it.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"

// packages writes a .deb and an .rpm for each Linux.
func (r *release) packages() error {
	share, err := r.share()
	if err != nil {
		return err
	}
	tool := filepath.Join(r.work, "nfpm")
	if err := run(r.work, []string{"GOBIN=" + r.work, "GOFLAGS=-trimpath", "CGO_ENABLED=0", "GOWORK=off"}, "go", "install", nfpm); err != nil {
		return err
	}
	for _, b := range r.built {
		if b.OS != "linux" || b.Lean {
			continue
		}
		text, err := r.packaging(b, share)
		if err != nil {
			return err
		}
		file := filepath.Join(r.work, "nfpm-"+b.Arch+".yaml")
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
		for _, kind := range []string{"deb", "rpm"} {
			env := []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.at.Unix())}
			if _, err := outputEnv(r.source, env, tool, "package", "-f", file, "-p", kind, "-t", r.out); err != nil {
				return err
			}
		}
	}
	return nil
}

// packaging writes the input of nfpm. Man pages are packed as Debian's policy has them.
func (r *release) packaging(b binary, share []entry) ([]byte, error) {
	at := r.at.Format(time.RFC3339)
	var y bytes.Buffer
	fmt.Fprintf(&y, "name: waldo\narch: %s\nplatform: linux\nversion: %q\nrelease: 1\nsection: admin\npriority: optional\nmtime: %s\n",
		b.Arch, r.version, at)
	fmt.Fprintf(&y, "maintainer: \"waldo <waldo@example.com>\"\nhomepage: %q\nlicense: %s\n", r.url, "Apache-2.0")
	y.WriteString("description: |\n  Runs AI agents' code and tools in sandboxes, under contracts\n" +
		"  waldo decides every call of a tool by contract, asks a person where the\n  contract says so, and writes a log that can be verified.\n")
	y.WriteString("recommends: [python3, ca-certificates]\nrpm: {buildhost: reproducible, compression: \"gzip:9\"}\ndeb: {compression: gzip}\n")
	y.WriteString("scripts: {preremove: tools/release/preremove.sh}\ncontents:\n")
	add := func(from, to string, mode fs.FileMode) {
		fmt.Fprintf(&y, "  - {src: %q, dst: %q, file_info: {mode: 0%o, owner: root, group: root, mtime: %s}}\n", from, to, mode, at)
	}
	fmt.Fprintf(&y, "  - {dst: /usr/share/doc/waldo, type: dir, file_info: {mode: 0755, mtime: %s}}\n", at) // else rpm leaves it behind
	add(b.path, "/usr/bin/waldo", 0o755)
	add("LICENSE", "/usr/share/doc/waldo/copyright", 0o644)
	add("CHANGELOG.md", "/usr/share/doc/waldo/CHANGELOG.md", 0o644)
	for _, e := range share {
		from, to := e.fromFile, "/usr/share/"+e.name
		if filepath.Dir(e.name) == "man/man1" {
			packed, err := r.gzipped(from)
			if err != nil {
				return nil, err
			}
			from, to = packed, to+".gz"
		}
		if dir, file := filepath.Split(e.name); dir == "zsh/site-functions/" { // Debian's zsh looks elsewhere
			fmt.Fprintf(&y, "  - {src: %q, dst: /usr/share/zsh/vendor-completions/%s, packager: deb, file_info: {mode: 0644, mtime: %s}}\n", from, file, at)
			fmt.Fprintf(&y, "  - {src: %q, dst: %q, packager: rpm, file_info: {mode: 0644, mtime: %s}}\n", from, to, at)
			continue
		}
		add(from, to, 0o644)
	}
	return y.Bytes(), nil
}

// gzipped writes a packed copy of a file, without its name and time.
func (r *release) gzipped(file string) (string, error) {
	to := filepath.Join(r.work, "gz", filepath.Base(file)+".gz")
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return "", err
	}
	if _, err := z.Write(content); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return to, os.WriteFile(to, b.Bytes(), 0o644)
}
