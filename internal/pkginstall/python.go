package pkginstall

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/protocol/strictjson"
)

// Python is an interpreter of this machine with its pip, and where its packages come from.
type Python struct {
	Exe     string
	Prefix  string // the folder that it needs, where that is not one of every sandbox; empty: it is
	Version string // 3.11
	Index   string // the address of the index
	Files   string // a host that keeps the files of the index besides; empty: the index has them
}

var (
	// A requirement of an index: a name, perhaps with extras and versions (PEP 508), and no address, marker or space.
	requirement = lazy(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(\[[A-Za-z0-9._,-]+\])?((?:(?:===|==` +
		`|~=|!=|<=|>=|<|>)[A-Za-z0-9.*+!_-]+,?)*)$`)
	// A wheel: name, version and tags (PEP 427).
	wheelName     = lazy(`^([A-Za-z0-9](?:[A-Za-z0-9._]*[A-Za-z0-9])?)-([A-Za-z0-9.+!_]+)(?:-[0-9][A-Za-z0-9._]*)?-[A-Za-z0-9._]+-[A-Za-z0-9._]+-[A-Za-z0-9._]+\.whl$`)
	pythonVersion = lazy(`^3\.[0-9]{1,3}$`)
	separators    = lazy(`[-_.]+`)
)

// normal is the one spelling of a package's name (PEP 503).
func normal(name string) string {
	return strings.ToLower(separators().ReplaceAllString(name, "-"))
}

// parsePython reads a command of uvx, uv tool run or pipx run.
func parsePython(argv []string) (w Wanted, ok bool, err error) {
	rest, pipx := argv, false
	switch len(argv) {
	case 0:
		return w, false, nil
	case 1:
		rest = []string{argv[0], ""}
	}
	switch program := filepath.Base(rest[0]); {
	case program == "uvx":
		rest = argv[1:]
	case program == "uv" && rest[1] == "tool" && len(rest) > 2 && rest[2] == "run":
		rest = rest[3:]
	case program == "pipx" && rest[1] == "run":
		rest, pipx = rest[2:], true
	default:
		return Wanted{}, false, nil
	}
	w.Manager = PyPI
	from, with, rest, err := pythonOptions(&w, rest, pipx)
	if err != nil {
		return w, true, err
	}
	if len(rest) == 0 {
		return w, true, fmt.Errorf("%s names no package", argv[0])
	}
	if from == "" {
		from = rest[0]
	} else {
		w.Bin = rest[0]
	}
	w.Args = rest[1:]
	all := []string{}
	for _, r := range append([]string{from}, with...) {
		if name, version, at := strings.Cut(r, "@"); at && !pipx { // uv's own way to write a version
			if r = name; version != "latest" {
				r = name + "==" + version
			}
		}
		if !requirement().MatchString(r) {
			return w, true,
				fmt.Errorf("%.200q is not a package of an index; write NAME or NAME==VERSION (for a package from git or a file, "+
					"install it yourself and name its program)", r)
		}
		all = append(all, r)
	}
	w.Name = normal(requirement().FindStringSubmatch(all[0])[1])
	w.Spec = strings.Join(all, " ")
	return w, true, nil
}

// pythonOptions reads what uvx or pipx run may be told before the package.
func pythonOptions(w *Wanted, rest []string, pipx bool) (from string, with, _ []string, err error) {
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		o, value, has := strings.Cut(rest[0], "=")
		rest = rest[1:]
		wants := func(names ...string) bool {
			if !slices.Contains(names, o) {
				return false
			}
			if !has && len(rest) > 0 {
				value, rest, has = rest[0], rest[1:], true
			}
			return true
		}
		switch {
		case o == "--" && !has:
			return from, with, rest, nil
		case slices.Contains([]string{
			"-q", "--quiet", "-n", "--no-cache", "--refresh", "--isolated", "--no-progress", "--no-config", "-U", "--upgrade",
		}, o) && !has:
		case (!pipx && wants("--from") || pipx && wants("--spec")) && from == "":
			from = value
		case !pipx && wants("--with", "-w"):
			with = append(with, strings.Split(value, ",")...)
		case wants("--python", "-p") && w.Python == "":
			if w.Python = strings.TrimPrefix(value, "python"); !pythonVersion().MatchString(w.Python) {
				return "", nil, nil, fmt.Errorf("the Python %.40q is not understood; write its version, as in 3.12", value)
			}
		default:
			return "", nil, nil,
				fmt.Errorf("%.40s is not understood before the package; known are --from (pipx: --spec), --with, "+
					"--python and -q", o)
		}
	}
	return from, with, rest, nil
}

// wheels is the lock of a pin of Python's packages.
type wheels struct {
	Python string            `json:"python"` // for which the wheels were chosen
	Wheels map[string]string `json:"wheels"` // file to "sha256:…"
}

// wheels reads the pin's lock. Each name becomes an argument and a file name, so wheels refuses all others.
func (p *Pin) wheels() (l wheels, err error) {
	if err := p.Lock.Decode(&l); err != nil {
		return l, fmt.Errorf("the lock of its wheels: %w", err)
	}
	for file, digest := range l.Wheels {
		hash, ok := strings.CutPrefix(digest, "sha256:")
		if b, err := hex.DecodeString(hash); !wheelName().MatchString(file) || !ok || err != nil || len(b) != sha256.Size {
			return l, fmt.Errorf("%.200q is not a wheel with its sha256, so its content is not pinned", file)
		}
	}
	if len(l.Wheels) == 0 || !pythonVersion().MatchString(l.Python) {
		return l, errors.New("the lock of its wheels is empty")
	}
	return l, nil
}

// fits refuses a pin that was accepted for another Python: packages with native code are for one alone.
func (py Python) fits(p *Pin) error {
	if p.Manager != PyPI {
		return nil
	}
	l, err := p.wheels()
	if err == nil && l.Python != py.Version {
		err = fmt.Errorf("%w: it was accepted for Python %s, and this machine has %s", ErrPin, l.Python, py.Version)
	}
	return err
}

func (i *Installer) resolveWheels(ctx context.Context, w Wanted) (*Pin, error) {
	out, err := i.pip(ctx, nil, strings.Fields(w.Spec)...)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(out)
	l := wheels{Python: i.Python.Version}
	if l.Wheels, err = digests(out); err != nil {
		return nil, err
	}
	p := &Pin{Manager: PyPI, Spec: w.Spec}
	seen := map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(l.Wheels)) {
		m := wheelName().FindStringSubmatch(file)
		if m == nil || seen[normal(m[1])] {
			return nil, fmt.Errorf("pip left %.200q, which is not one of its wheels", file)
		}
		if seen[normal(m[1])] = true; normal(m[1]) == w.Name {
			p.Version, p.Integrity = m[2], l.Wheels[file]
		}
	}
	if p.Version == "" {
		return nil, fmt.Errorf("pip left no wheel of %s", w.Name)
	}
	b, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	p.Lock, err = strictjson.Parse(b)
	return p, err
}

// fetchWheels: pip holds each wheel against its hash, and so do we, who unpack it: no program of a
// package runs, and none of pip's makes a file.
func (i *Installer) fetchWheels(ctx context.Context, p *Pin) (dir string, err error) {
	l, err := p.wheels()
	if err != nil {
		return "", err
	}
	out, err := i.download(ctx, l)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(out)
	seed, dir, err := i.begin(nil)
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, os.RemoveAll(seed)); err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	return dir, unpackAll(out, slices.Sorted(maps.Keys(l.Wheels)), dir)
}

// download fetches exactly the wheels of a lock into a new folder.
func (i *Installer) download(ctx context.Context, l wheels) (string, error) {
	var lines strings.Builder
	for _, file := range slices.Sorted(maps.Keys(l.Wheels)) {
		m := wheelName().FindStringSubmatch(file)
		fmt.Fprintf(&lines, "%s==%s --hash=%s\n", m[1], m[2], l.Wheels[file])
	}
	out, err := i.pip(ctx, []byte(lines.String()), "--require-hashes", "--requirement="+Place+"/"+pinned)
	if err != nil {
		return "", err
	}
	got, err := digests(out)
	if err == nil && !maps.Equal(got, l.Wheels) {
		err = fmt.Errorf("%w: the index gave other wheels", ErrPin)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(out))
	}
	return out, nil
}

// pinned is the file of a job with the requirements of a lock.
const pinned = "requirements.txt"

// pip downloads wheels in a sandbox and returns the folder with them. It refuses source packages, because their setup
// is a program that runs.
func (i *Installer) pip(ctx context.Context, lines []byte, args ...string) (string, error) {
	rule, index, err := registry(i.Python.Index)
	if err != nil {
		return "", fmt.Errorf("pip's index %w", err)
	}
	files := map[string][]byte{}
	if lines != nil {
		files[pinned] = lines
	}
	seed, out, err := i.begin(files)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(seed)
	j := Job{
		Argv: slices.Concat([]string{
			i.Python.Exe, "-I", "-m", "pip", "download", "--only-binary=:all:", "--index-url=" + index, "--dest=" + Place,
			"--no-cache-dir", "--disable-pip-version-check", "--no-input", "--progress-bar=off", "--retries=1", "--quiet",
		}, args),
		Env:   []string{"PIP_CONFIG_FILE=/dev/null"},
		Reach: []string{rule}, Seed: seed, Out: out, Show: i.Shows(),
	}
	if i.Python.Files != "" {
		j.Reach = append(j.Reach, "GET,HEAD "+i.Python.Files+":443")
	}
	err = errors.Join(i.Run(ctx, j), os.RemoveAll(filepath.Join(out, pinned)))
	if err == nil {
		return out, nil
	}
	if strings.Contains(err.Error(), "No matching distribution found") && !errors.Is(err, ErrUnreached) {
		err = fmt.Errorf("%w\nwaldo installs wheels alone, since the setup of a source package would run here. "+
			"The index has no wheel for Python %s on this machine; name a version that has one, or put a wheel into an index "+
			"of your own", err, i.Python.Version)
	}
	return "", fmt.Errorf("pip download: %w", errors.Join(err, os.RemoveAll(out)))
}

// digests returns the files of a folder, each with its digest.
func digests(dir string) (map[string]string, error) {
	found, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, e := range found {
		if !e.Type().IsRegular() {
			return nil, fmt.Errorf("pip left %.200q, which is not a file", e.Name())
		}
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		out[e.Name()] = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	}
	return out, nil
}
