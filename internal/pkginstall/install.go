// Package pkginstall installs the package of a server before the server runs. It unpacks the package in a sandbox
// that reaches the registry alone, without install scripts. It checks the files of the result against a pin at every
// start. The package knows no contract: its caller provides a function that runs a program in such a sandbox.
package pkginstall

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"waldo/internal/protocol/strictjson"
)

// PyPI is the manager of Python's packages; the empty one is npm.
const PyPI = "pypi"

// Wanted is the package that a command names.
type Wanted struct {
	Manager string
	Spec    string // the package as the command names it, with or without a version
	Name    string
	Bin     string   // the program of the package; empty: its own
	Args    []string // of the program
	Python  string   // the version that the command names, as in 3.12; empty: this machine's
}

// Parse reads a command. ok is false for one that runs no package of a registry; an error says what
// of one that does is not understood, which is then never run.
func Parse(argv []string) (w Wanted, ok bool, err error) {
	if w, ok, err = parseNpx(argv); ok {
		return w, ok, err
	}
	return parsePython(argv)
}

// Pin records an accepted package: every package that comes with it, and every file.
type Pin struct {
	Manager string `json:"manager,omitempty"`
	Spec    string `json:"spec"`    // as the command names it
	Version string `json:"version"` // the exact one
	// of the package itself: sha512-… of npm, as its registry writes it, or sha256:…
	Integrity string           `json:"integrity"`
	Files     string           `json:"files"` // digest of the names and contents of all files, as installed
	Lock      strictjson.Value `json:"lock"`  // npm: package-lock.json; pypi: the wheels with their digests
}

// Job is one program in a sandbox. The sandbox reads from the hosts of Reach and reaches nothing else.
type Job struct {
	Argv, Env []string
	Show      []string // folders of this machine that the program needs
	Reach     []string // rules of egress
	Seed      string   // a folder whose files are in Out before the program starts
	Out       string   // an empty folder that gets the regular files of the sandbox's Place afterwards
}

// Place is the working folder of a Job in its sandbox.
const Place = "/workspace/output"

// Runner runs a job to its end. An error tells what the program said.
type Runner func(ctx context.Context, j Job) error

// Installer keeps installed packages in folders of Dir, each named by the digest of its lock.
type Installer struct {
	Dir    string
	Run    Runner
	Config func(ctx context.Context, key string) (string, error) // reads npm's configuration of this machine
	Npm    []string                                              // how npm is started in the sandbox: node and its program
	Python Python
}

// ErrPin is a package that is not the one that was accepted.
var ErrPin = errors.New("the package is not as it was accepted")

// ErrNotAccepted means that no operator accepted the package yet.
var ErrNotAccepted = errors.New("was never accepted, so it is not installed")

// ErrUnreached: egress refused the connection. It is in the chain of a Runner's error, also when the program reports
// another cause.
var ErrUnreached = errors.New("it was not reached")

// Accept resolves the package and installs it afresh. It replaces an earlier installation.
func (i *Installer) Accept(ctx context.Context, w Wanted) (*Pin, error) {
	p, err := i.Resolve(ctx, w)
	if err != nil {
		return nil, err
	}
	fresh, err := i.fetch(ctx, p)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(fresh)
	if p.Files, err = Files(fresh); err != nil {
		return nil, err
	}
	if _, err := i.start(w, fresh, ""); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(i.folder(p)); err != nil {
		return nil, err
	}
	return p, os.Rename(fresh, i.folder(p))
}

// Is reports whether the pin is for the package that a command names.
func (p *Pin) Is(w Wanted) bool { return p.Manager == w.Manager && p.Spec == w.Spec }

// Open returns the folder of a pinned package, and the command that starts the server if the folder is mounted at at.
// It installs a missing package and refuses one that differs from its pin.
func (i *Installer) Open(ctx context.Context, p *Pin, w Wanted, at string) (dir string, argv []string, err error) {
	if !p.Is(w) {
		return "", nil, fmt.Errorf("%w: the command names %s and %s was accepted", ErrPin, w.Spec, p.Spec)
	}
	if err := i.Python.fits(p); err != nil {
		return "", nil, err
	}
	dir = i.folder(p)
	err = use(dir, time.Now()) // so that no sweep takes it from now on
	files := ""
	if err == nil {
		files, err = Files(dir)
	}
	if errors.Is(err, os.ErrNotExist) { // it was never here, or is being swept
		if err := i.again(ctx, p, dir); err != nil {
			return "", nil, err
		}
		files, err = Files(dir)
	}
	if err != nil {
		return "", nil, err
	}
	if files != p.Files {
		return "", nil, fmt.Errorf("%w: files in %s were changed since", ErrPin, dir)
	}
	argv, err = i.start(w, dir, at)
	return dir, argv, err
}

// Resolve asks the registry which packages would be installed today. The pin has no files yet.
func (i *Installer) Resolve(ctx context.Context, w Wanted) (*Pin, error) {
	if w.Manager == PyPI {
		return i.resolveWheels(ctx, w)
	}
	return i.resolveNpm(ctx, w)
}

// fetch installs exactly what a pin's lock says into a new folder.
func (i *Installer) fetch(ctx context.Context, p *Pin) (string, error) {
	if p.Manager == PyPI {
		return i.fetchWheels(ctx, p)
	}
	return i.fetchNpm(ctx, p)
}

// start is the command that runs what is wanted of a folder that is shown as at.
func (i *Installer) start(w Wanted, dir, at string) ([]string, error) {
	if w.Manager == PyPI {
		return i.Python.start(w, dir, at)
	}
	entry, err := w.entry(dir)
	return append([]string{i.Npm[0], path.Join(at, entry)}, w.Args...), err
}

// again installs what is pinned on a machine, or into a state, that does not have it.
func (i *Installer) again(ctx context.Context, p *Pin, dir string) error {
	fresh, err := i.fetch(ctx, p)
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	files, err := Files(fresh)
	if err != nil {
		return err
	}
	if files != p.Files {
		return fmt.Errorf("%w: the registry's files are others (packages for another kind of machine are)", ErrPin)
	}
	if err := os.Rename(fresh, dir); err != nil && !errors.Is(err, os.ErrExist) { // another waldo was quicker
		return err
	}
	return nil
}

// Shows are the folders of this machine that a sandbox needs beside a package and the programs of its command.
func (i *Installer) Shows() []string {
	if i.Python.Prefix == "" {
		return nil
	}
	return []string{i.Python.Prefix}
}

// folder returns the folder of a pinned package.
func (i *Installer) folder(p *Pin) string {
	return filepath.Join(i.Dir, strings.TrimPrefix(p.Lock.Digest(), "sha256:"))
}

// begin makes an empty folder beside the installed ones, and one of the files that a job begins with.
func (i *Installer) begin(files map[string][]byte) (seed, out string, err error) {
	if err := os.MkdirAll(i.Dir, 0o700); err != nil {
		return "", "", err
	}
	if seed, err = os.MkdirTemp(i.Dir, ".seed-"); err != nil {
		return "", "", err
	}
	if out, err = os.MkdirTemp(i.Dir, ".new-"); err != nil {
		return "", "", errors.Join(err, os.RemoveAll(seed))
	}
	for name, b := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(seed, name), b, 0o644))
	}
	if err = errors.Join(err, os.Chmod(seed, 0o755), os.Chmod(out, 0o755)); err != nil {
		return "", "", errors.Join(err, os.RemoveAll(seed), os.RemoveAll(out))
	}
	return seed, out, nil
}

// lazy compiles an expression at its first use: every start of waldo would pay for it.
func lazy(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
