// Package building makes templates of pinned packages: waldo template build. It resolves them once, writes a lock with
// the digest of each file, and from then on builds exactly what the lock says.
package building

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"waldo/internal/app/fault"
	"waldo/internal/executor/serverpackage"
	"waldo/internal/model/display"
	"waldo/internal/pkginstall"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/template"
)

// Wanted are the inputs of one build.
type Wanted struct {
	Name    string
	Python  string // a requirements file; empty: no packages of Python
	Npm     string // a package-lock.json; empty: no packages of npm
	Lock    string // the lock file; empty: NAME.lock.json beside the first input
	Upgrade bool   // ignore the versions of the lock
	Locked  bool   // fail rather than choose versions
}

// Tools are the parts of the application that a build uses.
type Tools struct {
	Packages *serverpackage.Packages
	Store    *template.Store
	// Progress shows that work goes on; its result is closed at the end of the work.
	Progress func(what string, bytes int64) io.WriteCloser
}

// Made is a template that was built, or was there already.
type Made struct {
	template.Template
	LockFile string   `json:"lock"`
	Changed  []string `json:"changed"`          // differences from the earlier lock
	Reused   bool     `json:"reused,omitempty"` // its files were here already
}

// Lock lists every file of a build with its digest.
type Lock struct {
	Version      int               `json:"version"` // 1
	Machine      string            `json:"machine"` // linux/amd64
	Python       string            `json:"python,omitempty"`
	Requirements []string          `json:"requirements,omitempty"` // as they were when the wheels were chosen
	Wheels       pkginstall.Wheels `json:"wheels,omitempty"`
	Npm          string            `json:"npm,omitempty"` // digest of package-lock.json without its addresses
}

// digest returns the template's digest. It leaves the requirements out: other lines with the same wheels give the same
// template.
func (l Lock) digest() string {
	l.Requirements = nil
	b, _ := json.Marshal(l) // texts and numbers: it always encodes
	sum := sha256.Sum256(append(b, "\nlayout 1"...))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// build is one build under way.
type build struct {
	w    Wanted
	t    Tools
	in   *pkginstall.Installer
	reqs []pkginstall.Requirement
	npm  pkginstall.NpmLock
	was  Lock
	old  bool // there was a lock
	now  Lock
	// downloaded is the folder with the wheels; empty: they were not downloaded yet.
	downloaded string
}

// Build makes the template. Mistakes in the inputs are usage errors.
func Build(ctx context.Context, t Tools, w Wanted) (Made, error) {
	b := &build{w: w, t: t}
	if err := b.read(); err != nil {
		return Made{}, err
	}
	var err error
	if b.in, err = t.Packages.ForTemplate(ctx, w.Name, w.Python != "", w.Npm != ""); err != nil {
		return Made{}, err
	}
	defer func() {
		if b.downloaded != "" {
			_ = os.RemoveAll(b.downloaded)
		}
	}()
	if err := b.choose(ctx); err != nil {
		return Made{}, err
	}
	if err := b.writeLock(); err != nil {
		return Made{}, err
	}
	made := Made{LockFile: b.w.Lock, Changed: b.changes(), Reused: true}
	made.Template, err = t.Store.Build(ctx, b.now.digest(), template.Built{
		Name: w.Name, Python: b.now.Python, Wheels: len(b.now.Wheels), Npm: b.npm.Packages,
	}, func(dir string) error {
		made.Reused = false
		return b.fill(ctx, dir)
	})
	return made, err
}

// read reads the inputs and the lock.
func (b *build) read() error {
	if err := template.CheckName(b.w.Name); err != nil {
		return fault.Usage("as in waldo template build data --python requirements.txt", "%v", err)
	}
	if b.w.Python == "" && b.w.Npm == "" {
		return fault.Usage("--python requirements.txt, --npm package-lock.json, or both", "the template has no packages")
	}
	b.now = Lock{Version: 1, Machine: runtime.GOOS + "/" + runtime.GOARCH}
	if b.w.Python != "" {
		text, err := small(b.w.Python, pkginstall.MaxRequirements)
		if err == nil {
			b.reqs, err = pkginstall.ParseRequirements(b.w.Python, text)
		}
		if err != nil {
			return fault.Usage("a line is NAME==VERSION, perhaps with --hash=sha256:…", "%v", err)
		}
		for _, r := range b.reqs {
			b.now.Requirements = append(b.now.Requirements, r.Line())
		}
		slices.Sort(b.now.Requirements)
	}
	if b.w.Npm != "" {
		if st, err := os.Stat(b.w.Npm); err == nil && st.IsDir() {
			b.w.Npm = filepath.Join(b.w.Npm, "package-lock.json")
		}
		text, err := small(b.w.Npm, 16<<20)
		if err == nil {
			b.npm, err = pkginstall.ParseNpmLock(b.w.Npm, text)
		}
		if err != nil {
			return fault.Usage("npm writes one: npm install --package-lock-only", "%v", err)
		}
		b.now.Npm = b.npm.Lock.Digest()
	}
	if b.w.Lock == "" {
		first := b.w.Python
		if first == "" {
			first = b.w.Npm
		}
		b.w.Lock = filepath.Join(filepath.Dir(first), b.w.Name+".lock.json")
	}
	return b.readLock()
}

// readLock reads the lock of an earlier build.
func (b *build) readLock() error {
	text, err := small(b.w.Lock, 4<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		err = d.Decode(&b.was)
	}
	if err == nil && b.was.Version != 1 {
		err = fmt.Errorf("its version is %d; this waldo reads version 1", b.was.Version)
	}
	if err != nil {
		return fault.Usage("give another with --lock FILE, or remove it to choose versions again",
			"lock %s: %v", b.w.Lock, err)
	}
	b.old = true
	return nil
}

// small reads a file of at most most bytes.
func small(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: more than %d bytes", name, most)
	}
	return text, err
}

// choose sets the wheels: those of the lock, or else the ones that pip chooses.
func (b *build) choose(ctx context.Context) error {
	if b.w.Python == "" {
		return b.settled("its packages")
	}
	b.now.Python = b.in.Python.Version
	why := ""
	switch {
	case !b.old || b.was.Python == "":
		why = "no lock"
	case b.w.Upgrade:
		why = "--upgrade"
	case b.was.Python != b.now.Python || b.was.Machine != b.now.Machine:
		why = fmt.Sprintf("the lock is for Python %s on %s", b.was.Python, b.was.Machine)
	case !slices.Equal(b.was.Requirements, b.now.Requirements):
		why = "the requirements differ from those of the lock"
	}
	if why == "" {
		b.now.Wheels = b.was.Wheels
		if err := b.now.Wheels.Meet(b.reqs); err != nil {
			return fmt.Errorf("lock %s: %w", b.w.Lock, err)
		}
		return b.settled("its packages")
	}
	if b.w.Locked {
		return b.stale(why)
	}
	over := b.t.begin("choosing and fetching wheels for " + display.Count(len(b.reqs), "requirement"))
	defer over()
	var err error
	b.now.Wheels, b.downloaded, err = b.in.ResolveWheels(ctx, b.reqs)
	return err
}

// settled refuses, under --locked, packages that are not those of the lock.
func (b *build) settled(what string) error {
	if b.w.Locked && (!b.old || b.was.digest() != b.now.digest()) {
		return b.stale(what + " differ from those of the lock")
	}
	return nil
}

func (b *build) stale(why string) error {
	return fault.Usage("run it once without --locked, and look at the new lock",
		"%s would have to be written: %s", b.w.Lock, why)
}

// fill puts the packages below dir.
func (b *build) fill(ctx context.Context, dir string) error {
	if b.w.Python != "" {
		if b.downloaded == "" {
			over := b.t.begin("fetching " + display.Count(len(b.now.Wheels), "wheel"))
			var err error
			b.downloaded, err = b.in.FetchLocked(ctx, b.now.Wheels)
			over()
			if err != nil {
				return err
			}
		}
		over := b.t.begin("unpacking " + display.Count(len(b.now.Wheels), "wheel"))
		at := filepath.Join(dir, "python")
		err := pkginstall.UnpackWheels(b.downloaded, b.now.Wheels, at)
		over()
		if err != nil {
			return err
		}
		over = b.t.begin("compiling the modules of Python")
		err = b.in.Compile(ctx, at, sandbox.PythonAt)
		over()
		if err != nil {
			return err
		}
	}
	if b.w.Npm == "" {
		return nil
	}
	over := b.t.begin("fetching " + display.Count(b.npm.Packages, "package") + " of npm")
	defer over()
	from, err := b.in.InstallNpm(ctx, b.npm)
	if err != nil {
		return err
	}
	defer os.RemoveAll(from)
	modules := filepath.Join(from, "node_modules")
	if _, err := pkginstall.Files(modules); err != nil { // regular files alone
		return err
	}
	return os.Rename(modules, filepath.Join(dir, "node_modules"))
}

// begin shows a step of the work, and returns its end.
func (t Tools) begin(what string) (over func()) {
	if t.Progress == nil {
		return func() {}
	}
	w := t.Progress(what, -1)
	return func() { _ = w.Close() }
}

// writeLock writes the lock if it has changed: beside its place first, so that no half of one is left.
func (b *build) writeLock() error {
	text, err := json.MarshalIndent(b.now, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if old, err := os.ReadFile(b.w.Lock); err == nil && bytes.Equal(old, text) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(b.w.Lock), ".lock-")
	if err != nil {
		return fmt.Errorf("the lock cannot be written: %w", err)
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), b.w.Lock)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// changes lists how the wheels differ from those of the lock that was there.
func (b *build) changes() []string {
	out := []string{}
	if !b.old {
		return out
	}
	was, now := byPackage(b.was.Wheels), byPackage(b.now.Wheels)
	names := slices.Sorted(maps.Keys(was))
	for n := range now {
		if _, ok := was[n]; !ok {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	for _, n := range names {
		switch from, to := was[n], now[n]; {
		case from == to && b.was.Wheels[from] == b.now.Wheels[to]:
		case from == "":
			out = append(out, "added "+to)
		case to == "":
			out = append(out, "removed "+from)
		case from == to:
			out = append(out, from+" has other content")
		default:
			out = append(out, from+" → "+to)
		}
	}
	if b.was.Npm != b.now.Npm && b.was.Npm != "" {
		out = append(out, "package-lock.json has changed")
	}
	return out
}

// byPackage returns the file of each package.
func byPackage(w pkginstall.Wheels) map[string]string {
	out := map[string]string{}
	for file := range w {
		name, _, _ := strings.Cut(file, "-")
		out[strings.ToLower(name)] = file
	}
	return out
}
