package pkginstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"waldo/internal/protocol/strictjson"
)

// Wheels are the wheels of a template: each file by its name, with "sha256:…" of its content.
type Wheels map[string]string

// wheelsOf reads wheels as the lock of a pin. It refuses names that are not wheels, and content that is not pinned.
func (w Wheels) wheelsOf(python string) (wheels, error) {
	b, err := json.Marshal(wheels{Python: python, Wheels: w})
	if err != nil {
		return wheels{}, err
	}
	v, err := strictjson.Parse(b)
	if err != nil {
		return wheels{}, err
	}
	return (&Pin{Lock: v}).wheels()
}

// ResolveWheels downloads the wheels for requirements, and those that they need, into a new folder, which the caller
// removes. pip chooses the versions, in a sandbox that reaches the index alone.
func (i *Installer) ResolveWheels(ctx context.Context, all []Requirement) (Wheels, string, error) {
	var lines strings.Builder
	for _, r := range all {
		lines.WriteString(r.Line() + "\n")
	}
	out, err := i.pip(ctx, []byte(lines.String()), "--requirement="+Place+"/"+pinned)
	if err != nil {
		return nil, "", err
	}
	w, err := digests(out)
	if err == nil {
		_, err = Wheels(w).wheelsOf(i.Python.Version)
	}
	if err == nil {
		err = Wheels(w).Meet(all)
	}
	if err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(out))
	}
	return w, out, nil
}

// Meet returns an error if the wheel of a requirement has none of its hashes, or if a package has two wheels. A
// requirement with a marker for another machine has no wheel.
func (w Wheels) Meet(all []Requirement) error {
	digest := map[string]string{}
	for _, file := range slices.Sorted(maps.Keys(w)) {
		m := wheelName().FindStringSubmatch(file)
		if m == nil {
			return fmt.Errorf("%.200q is not a wheel", file)
		}
		if digest[normal(m[1])] != "" {
			return fmt.Errorf("%s has two wheels", normal(m[1]))
		}
		digest[normal(m[1])] = w[file]
	}
	for _, r := range all {
		if got := digest[r.Name]; got != "" && len(r.Hashes) > 0 && !slices.Contains(r.Hashes, got) {
			return fmt.Errorf("%w: the wheel of %s has %s, which is not among its hashes", ErrPin, r.Name, got)
		}
	}
	return nil
}

// FetchLocked downloads exactly these wheels into a new folder, which the caller removes.
func (i *Installer) FetchLocked(ctx context.Context, w Wheels) (string, error) {
	l, err := w.wheelsOf(i.Python.Version)
	if err != nil {
		return "", err
	}
	return i.download(ctx, l)
}

// UnpackWheels unpacks downloaded wheels into a new folder at to, where Python finds their modules. It checks
// each digest first.
func UnpackWheels(from string, w Wheels, to string) error {
	got, err := digests(from)
	if err != nil {
		return err
	}
	if !maps.Equal(got, map[string]string(w)) {
		return fmt.Errorf("%w: the downloaded wheels are others", ErrPin)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	return unpackAll(from, slices.Sorted(maps.Keys(w)), to)
}

// compiler writes the bytecode of each module below a folder. It runs no module. A file that is not valid Python, as
// templates and old tests are, has no bytecode.
const compiler = `import os, sys, py_compile, warnings
warnings.simplefilter("ignore")
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
at, place, shown = sys.argv[1:]
for folder, _, files in os.walk(at):
    for name in files:
        if not name.endswith(".py"):
            continue
        source = os.path.join(folder, name)
        below = os.path.relpath(source, at)
        cached = name[:-3] + "." + sys.implementation.cache_tag + ".pyc"
        to = os.path.join(place, os.path.dirname(below), "__pycache__", cached)
        try:
            py_compile.compile(source, to, os.path.join(shown, below), doraise=True, invalidation_mode=mode)
        except (py_compile.PyCompileError, RecursionError, ValueError):
            pass
`

// Compile adds the bytecode of the modules below dir, made in a sandbox that reaches nothing, so that no run compiles
// them again. shown is the path of dir in sandboxes. Existing files stay as they are.
func (i *Installer) Compile(ctx context.Context, dir, shown string) error {
	seed, out, err := i.begin(nil)
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(os.RemoveAll(seed), os.RemoveAll(out)) }()
	err = i.Run(ctx, Job{
		Argv: []string{i.Python.Exe, "-I", "-S", "-c", compiler, dir, Place, shown},
		Seed: seed, Out: out, Show: append(i.Shows(), dir),
	})
	if err != nil {
		return fmt.Errorf("compiling the modules: %w", err)
	}
	return addBytecode(out, dir)
}

// addBytecode copies the files of __pycache__ folders from a folder to those beside their modules. It takes nothing
// else, and replaces nothing.
func addBytecode(from, to string) error {
	source, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer target.Close()
	return fs.WalkDir(source.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		folder := path.Dir(name)
		module, _, ok := strings.Cut(path.Base(name), ".")
		if !d.Type().IsRegular() || path.Base(folder) != "__pycache__" || path.Ext(name) != ".pyc" || !ok {
			return fmt.Errorf("%.200q is not the bytecode of a module", name)
		}
		if _, err := target.Lstat(path.Join(path.Dir(folder), module+".py")); err != nil {
			return fmt.Errorf("%.200q has no module: %w", name, err)
		}
		return copyNew(source, target, name)
	})
}

// copyNew copies one file, unless it is there.
func copyNew(source, target *os.Root, name string) error {
	if err := target.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	to, err := target.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	from, err := source.Open(name)
	if err != nil {
		return errors.Join(err, to.Close())
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, from.Close(), to.Close())
}

// NpmLock is a package-lock.json without the addresses of its files, and the package.json that it belongs to.
type NpmLock struct {
	Lock     strictjson.Value
	manifest []byte
	Packages int // without the project itself
}

// rootKeys are the lists of a project's packages, in package.json as in its lock.
var rootKeys = []string{"dependencies", "devDependencies", "optionalDependencies", "peerDependencies"}

// ParseNpmLock reads a package-lock.json of version 2 or 3. It refuses packages that do not come from a registry by
// their name, and those whose content nothing pins.
func ParseNpmLock(file string, text []byte) (n NpmLock, err error) {
	if len(text) > maxFile {
		return n, fmt.Errorf("%s: %d bytes: at most %d", file, len(text), maxFile)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		return n, fmt.Errorf("%s: %w", file, err)
	}
	all, ok := m["packages"].(map[string]any)
	if !ok || m["lockfileVersion"] != 2.0 && m["lockfileVersion"] != 3.0 {
		return n, fmt.Errorf("%s is not a package-lock.json of version 2 or 3; "+
			"npm 7 and later write one: npm install --package-lock-only", file)
	}
	delete(m, "dependencies") // version 2 says all of it twice
	own := map[string]any{}
	for at, v := range all {
		p, ok := v.(map[string]any)
		if !ok {
			return n, fmt.Errorf("%s: %.200q is not a package", file, at)
		}
		if at == "" {
			for _, key := range rootKeys {
				if p[key] != nil {
					own[key] = p[key]
				}
			}
			continue
		}
		if from, _ := p["resolved"].(string); strings.HasPrefix(from, "https://") || strings.HasPrefix(from, "http://") {
			delete(p, "resolved") // npm fetches it by its name and checks its integrity
		}
		n.Packages++
	}
	all[""] = own
	if n.Packages == 0 {
		return n, fmt.Errorf("%s: it names no package", file)
	}
	if n.manifest, err = json.Marshal(own); err != nil {
		return n, err
	}
	b, err := json.Marshal(m)
	if err != nil {
		return n, err
	}
	if n.Lock, err = strictjson.Parse(b); err != nil {
		return n, fmt.Errorf("%s: %w", file, err)
	}
	if _, err = (&Pin{Lock: n.Lock}).lock(); err != nil {
		return n, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}

// InstallNpm installs the packages of a lock into a new folder, which the caller removes. No script of a package
// runs.
func (i *Installer) InstallNpm(ctx context.Context, n NpmLock) (string, error) {
	return i.npm(ctx, map[string][]byte{"package.json": n.manifest, "package-lock.json": n.Lock.Canonical()}, "", "ci")
}
