// Package install installs the package of a server apart from running it. What a registry sends is
// unpacked in a box that reaches the registry and nothing else, with the scripts of packages off; what
// came out is kept in a folder whose files are held against a pin at every start. The room knows no
// contract: it is handed a way to run a program in such a box.
package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"waldo/internal/wire"
)

// Pin is what was accepted of a package: every package that comes with it, and every file.
type Pin struct {
	Spec      string     `json:"spec"`      // as the command names it, with or without a version
	Version   string     `json:"version"`   // the exact one
	Integrity string     `json:"integrity"` // of the package itself, as its registry and npm write it
	Files     string     `json:"files"`     // digest of the names and contents of all files, as installed
	Lock      wire.Value `json:"lock"`      // package-lock.json: each package with its version and integrity
}

// Job is one program in a box. The box reads from the hosts of Reach and reaches nothing else.
type Job struct {
	Argv, Env []string
	Reach     []string // rules of egress
	Seed      string   // a folder whose files are in Out before the program starts
	Out       string   // an empty folder that gets the regular files of the box's Place afterwards
}

// Place is the working folder of a Job in its box.
const Place = "/workspace/output"

// Runner runs a job to its end. An error tells what the program said.
type Runner func(ctx context.Context, j Job) error

// Installer keeps installed packages in folders of Dir, each named by the digest of its lock.
type Installer struct {
	Dir    string
	Run    Runner
	Config func(ctx context.Context, key string) (string, error) // reads npm's configuration of this machine
	Npm    []string                                              // how npm is started in the box
}

// ErrPin is a package that is not the one that was accepted.
var ErrPin = errors.New("the package is not as it was accepted")

// Accept resolves what is wanted and installs it afresh, whatever was there before.
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
	if _, err := w.entry(fresh); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(i.folder(p)); err != nil {
		return nil, err
	}
	return p, os.Rename(fresh, i.folder(p))
}

// Open returns the folder of a pinned package and the file in it that starts the server, as it is seen
// where the folder is shown as at. What is not there yet is installed; what is not as pinned is refused.
func (i *Installer) Open(ctx context.Context, p *Pin, w Wanted, at string) (dir, entry string, err error) {
	if p.Spec != w.Spec {
		return "", "", fmt.Errorf("%w: the command names %s and %s was accepted", ErrPin, w.Spec, p.Spec)
	}
	dir = i.folder(p)
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		if err := i.again(ctx, p, dir); err != nil {
			return "", "", err
		}
	}
	files, err := Files(dir)
	if err != nil {
		return "", "", err
	}
	if files != p.Files {
		return "", "", fmt.Errorf("%w: files in %s were changed since", ErrPin, dir)
	}
	entry, err = w.entry(dir)
	return dir, path.Join(at, entry), err
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

// folder is where a pinned package is kept.
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
