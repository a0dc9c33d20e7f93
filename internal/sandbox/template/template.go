// Package template finds the root filesystem that a sandbox starts from: this machine's own, a folder, a tar
// archive, or an OCI image from a registry, a layout or an archive. Unpacked files are stored by digest in
// waldo's state and checked against that digest first. No file of a template is executed here.
package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Bounds hold for one template. Zero bounds let nothing out.
type Bounds struct {
	Bytes   int64 // of all files together, as unpacked
	Entries int   // files, folders and links of all layers together
	Layers  int
}

// Defaults returns bounds for one machine.
func Defaults() Bounds { return Bounds{Bytes: 16 << 30, Entries: 1_000_000, Layers: 128} }

// Template is a root filesystem that is there.
type Template struct {
	Name string `json:"name"` // as facts show it: "host", "dir:/srv/root", "python:3.12@sha256:…"
	Dir  string `json:"-"`    // the root as a folder of this machine; empty: the machine's own
	// "sha256:…" of the image's manifest or of the archive; empty: not kept by digest
	Digest  string    `json:"digest,omitempty"`
	Bytes   int64     `json:"bytes,omitempty"`
	Entries int       `json:"entries,omitempty"`
	Skipped int       `json:"skipped,omitempty"` // devices, pipes and the like, which are left out
	At      time.Time `json:"at,omitzero"`       // when it was unpacked
	Config  Config    `json:"config,omitzero"`   // the image's configuration for its commands
	// Packages is the folder of a built template, which sandboxes see beside this machine's /usr; empty: it is a root.
	Packages string `json:"-"`
	Built    *Built `json:"built,omitempty"`
}

// Host is the root that is always there: the machine's own /usr and little else.
func Host() Template { return Template{Name: "host"} }

// Unfit is an error of the reference, and not of this machine: its target does not exist, or is not a template.
type Unfit struct{ error }

// Unwrap returns the error as it was.
func (u Unfit) Unwrap() error { return u.error }

// unfit marks an error as one of the reference, unless the disk is full.
func unfit(err error) error {
	if err == nil || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return err
	}
	return Unfit{err}
}

// Store keeps unpacked templates in a folder of its own.
type Store struct {
	dir    string
	bounds Bounds

	// Progress, where it is set, is given the name of long work and its bytes, -1 where they are unknown. It returns
	// where the bytes of that work are counted.
	Progress func(what string, bytes int64) io.WriteCloser
}

// progress returns a counter of bytes that discards its count if Progress is nil.
func (s *Store) progress(what string, bytes int64) io.WriteCloser {
	if s.Progress == nil {
		return uncounted{io.Discard}
	}
	return s.Progress(what, bytes)
}

type uncounted struct{ io.Writer }

func (uncounted) Close() error { return nil }

// Open makes the folder, mode 0700, where it is absent, and removes what a crash left in it.
func Open(dir string, b Bounds) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(dir, "refs"), 0o700); err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	sweep(dir)
	return &Store{dir: dir, bounds: b}, nil
}

// archiveName matches a name that a person means as an archive; no registry has such a repository.
var archiveName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)^[^/:@]+\.(tar|tgz|tar\.(gz|xz|zst|bz2)|oci)$`) })

// Find returns the template that a person named: host, a folder or archive by a path that begins
// with / or ., the name of a built template, or an image reference such as python:3.12-slim. A tag that was pulled
// before stays what it was until fresh asks the registry again.
func (s *Store) Find(ctx context.Context, name string, fresh bool) (Template, error) {
	if name == "host" || name == "" {
		return Host(), nil
	}
	if !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, ".") {
		if t, ok, err := s.builtNamed(name); ok {
			return t, err
		}
		if info, err := os.Lstat(name); err == nil && !info.IsDir() || archiveName().MatchString(name) {
			return Template{},
				Unfit{fmt.Errorf("template %s: write ./%s for a file of this folder; this is the name of an image", name, name)}
		}
		return s.pull(ctx, name, fresh)
	}
	t, err := s.local(ctx, name, fresh)
	if ctx.Err() != nil {
		return t, ctx.Err() // the reference can be valid all the same
	}
	return t, unfit(err)
}

// Named is Find for a name in a configuration. A name that a built template can have is never looked for at a registry:
// an image without a tag needs one, as in debian:latest.
func (s *Store) Named(ctx context.Context, name string) (Template, error) {
	if CheckName(name) == nil && s.noted(builtRef(name)) == "" {
		ref, err := fullName(name)
		if err != nil || s.noted(ref) == "" {
			return Template{}, Unfit{fmt.Errorf("template %[1]s is not built: waldo template build %[1]s; "+
				"an image of that name is %[1]s:latest", name)}
		}
	}
	return s.Find(ctx, name, false)
}

// local finds a template by its path.
func (s *Store) local(ctx context.Context, name string, fresh bool) (Template, error) {
	at, err := filepath.Abs(name)
	if err != nil {
		return Template{}, err
	}
	if at, err = filepath.EvalSymlinks(at); err != nil {
		return Template{}, fmt.Errorf("template %s: %w", name, err)
	}
	info, err := os.Stat(at)
	if err != nil {
		return Template{}, fmt.Errorf("template %s: %w", name, err)
	}
	switch {
	case info.Mode().IsRegular():
		return s.archive(ctx, at, info.Size(), fresh)
	case !info.IsDir():
		return Template{}, fmt.Errorf("template %s: it is neither a folder nor an archive", name)
	}
	if _, err := os.Lstat(filepath.Join(at, "oci-layout")); err == nil {
		return s.layout(ctx, at)
	}
	return s.folder(at)
}

// folder takes a folder of this machine as it is. It refuses the machine's own root, and one that would show a
// sandbox what waldo keeps.
func (s *Store) folder(at string) (Template, error) {
	if at == "/" {
		return Template{},
			fmt.Errorf("template /: it would show the sandbox every file of this machine; host shows /usr and little else")
	}
	own, err := filepath.EvalSymlinks(s.dir)
	if err != nil {
		return Template{}, err
	}
	if rel, err := filepath.Rel(at, own); err == nil && filepath.IsLocal(rel) {
		return Template{}, fmt.Errorf("template %s: waldo's own state is below it", at)
	}
	if st, err := os.Stat(filepath.Join(at, "usr")); err != nil || !st.IsDir() {
		if st, err := os.Stat(filepath.Join(at, "bin")); err != nil || !st.IsDir() {
			return Template{}, fmt.Errorf("template %s: not a root filesystem: it has neither usr nor bin", at)
		}
	}
	return Template{Name: "dir:" + at, Dir: at}, nil
}

// place returns the folder of the template with that digest.
func (s *Store) place(digest string) string {
	return filepath.Join(s.dir, strings.Replace(digest, ":", "-", 1))
}

// isDigest reports whether d is "sha256:" and 64 lower-case hexadecimal digits.
func isDigest(d string) bool {
	hexa, ok := strings.CutPrefix(d, "sha256:")
	return ok && len(hexa) == 64 && strings.Trim(hexa, "0123456789abcdef") == ""
}

// kept returns the stored template of a digest under a name, if there is one.
func (s *Store) kept(name, digest string) (Template, bool) {
	if !isDigest(digest) {
		return Template{}, false
	}
	b, err := os.ReadFile(filepath.Join(s.place(digest), "about.json"))
	if err != nil {
		return Template{}, false
	}
	var t Template
	if json.Unmarshal(b, &t) != nil || t.Digest != digest {
		return Template{}, false
	}
	t.Name = name
	t.locate(filepath.Join(s.place(digest), "root"))
	return t, true
}

// locate sets where the files of a stored template are.
func (t *Template) locate(root string) {
	if t.Built != nil {
		t.Packages = root
		return
	}
	t.Dir = root
}

// Reopen returns a template that was found before, by its digest or its folder. A template that was removed
// since is an error.
func (s *Store) Reopen(name, digest string) (Template, error) {
	if name == "host" {
		return Host(), nil
	}
	if at, ok := strings.CutPrefix(name, "dir:"); ok && digest == "" {
		return s.folder(at)
	}
	t, ok := s.kept(name, digest)
	if !ok {
		return Template{}, fmt.Errorf("template %s: it is not kept any more", name)
	}
	return t, nil
}

// List returns the stored templates, oldest first.
func (s *Store) List() ([]Template, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	out := []Template{}
	for _, e := range entries {
		digest := strings.Replace(e.Name(), "-", ":", 1)
		b, err := os.ReadFile(filepath.Join(s.dir, e.Name(), "about.json"))
		if err != nil || !isDigest(digest) {
			continue
		}
		var t Template
		if json.Unmarshal(b, &t) == nil && t.Digest == digest {
			t.locate(filepath.Join(s.place(digest), "root"))
			out = append(out, t)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].At.Before(out[j].At) })
	return out, nil
}

// Remove deletes the template of a digest, of a name with its digest as List gives it, or the built one of a name. One
// that is not there is an Unfit.
func (s *Store) Remove(name string) error {
	digest := name[strings.LastIndex(name, "@")+1:]
	if CheckName(name) == nil {
		if digest = s.noted(builtRef(name)); digest == "" {
			return Unfit{fmt.Errorf("template %s: none was built under that name", name)}
		}
		defer func() { _ = os.Remove(s.refFile(builtRef(name))) }()
	}
	if !isDigest(digest) {
		return Unfit{fmt.Errorf("template %q: want sha256: and 64 hexadecimal digits, or the name of a built one", name)}
	}
	gone := filepath.Join(s.dir, half+"gone-"+strings.TrimPrefix(digest, "sha256:"))
	switch err := os.Rename(s.place(digest), gone); {
	case errors.Is(err, fs.ErrNotExist):
		return Unfit{fmt.Errorf("template %s: it is not kept", name)}
	case err != nil:
		return fmt.Errorf("template %s: %w", name, err)
	}
	return os.RemoveAll(gone)
}

// keep makes a template of an archive: fill unpacks and checks all of it.
func (s *Store) keep(ctx context.Context, name, digest string, fill func(t *tree) error) (Template, error) {
	return s.keepMade(ctx, name, digest, func(root string) (out Template, err error) {
		t, err := newTree(root, s.bounds)
		if err != nil {
			return out, err
		}
		defer func() { err = errors.Join(err, t.close()) }()
		if err := fill(t); err != nil {
			return out, fmt.Errorf("template %s: %w", name, err)
		}
		if err := t.finish(); err != nil {
			return out, fmt.Errorf("template %s: %w", name, err)
		}
		return Template{Bytes: s.bounds.Bytes - t.left.Bytes, Entries: s.bounds.Entries - t.left.Entries,
			Skipped: t.skipped, Config: t.config}, nil
	})
}

// keepMade makes a template in a temporary folder, and moves it to its place when it is whole: write makes its files
// below root and says what it is. A failure leaves no files.
func (s *Store) keepMade(
	ctx context.Context, name, digest string, write func(root string) (Template, error),
) (Template, error) {
	if !isDigest(digest) {
		return Template{}, fmt.Errorf("template %s: digest %q: only sha256 is taken", name, digest)
	}
	at, release, err := begin(s.dir)
	if err != nil {
		return Template{}, err
	}
	defer func() {
		clearAway(ctx, at)
		release()
	}()
	out, err := write(filepath.Join(at, "root"))
	if err != nil {
		return Template{}, err
	}
	out.Name, out.Digest, out.At = name, digest, time.Now().UTC().Truncate(time.Millisecond)
	about, err := json.Marshal(out)
	if err != nil {
		return Template{}, err
	}
	if err := os.WriteFile(filepath.Join(at, "about.json"), about, 0o600); err != nil {
		return Template{}, err
	}
	if err := os.Rename(at, s.place(digest)); err != nil {
		if again, ok := s.kept(name, digest); ok {
			return again, nil // another process was faster
		}
		return Template{}, fmt.Errorf("template %s: %w", name, err)
	}
	out.locate(filepath.Join(s.place(digest), "root"))
	return out, nil
}

// fileDigest returns the SHA-256 of a file, as "sha256:…", and counts its bytes into count.
func fileDigest(ctx context.Context, at string, count io.Writer) (string, error) {
	f, err := os.Open(at)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.CopyBuffer(io.MultiWriter(h, count), until{ctx, f}, make([]byte, 1<<20)); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// refFile is where the digest behind an image reference is noted.
func (s *Store) refFile(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(s.dir, "refs", hex.EncodeToString(sum[:]))
}

// noted returns the digest that a reference had when it was pulled; empty: it was not.
func (s *Store) noted(name string) string {
	b, err := os.ReadFile(s.refFile(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// note remembers the digest behind a reference.
func (s *Store) note(name, digest string) error {
	temp := s.refFile(name) + ".new"
	if err := os.WriteFile(temp, []byte(digest+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, s.refFile(name))
}

// Look follows the links of a path as a sandbox with root dir would, and returns what is there. A link never
// leads out of dir. It is for finding out what a template holds.
func Look(dir, name string) (fs.FileInfo, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	at, err := (&tree{root: root}).follow(name)
	if err != nil {
		return nil, err
	}
	return root.Lstat(at)
}
