package pkginstall

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/protocol/strictjson"
)

var (
	packageName    = lazy(`^(@[A-Za-z0-9~_.-]+/)?[A-Za-z0-9~_-][A-Za-z0-9~_.-]*$`)
	packageVersion = lazy(`^[A-Za-z0-9.^~<>=*+_-]{1,64}$`) // an exact version, a range or a tag; no address
)

// parseNpx reads a command of npx or npm exec.
func parseNpx(argv []string) (w Wanted, ok bool, err error) {
	if len(argv) == 0 {
		return w, false, nil
	}
	rest := argv[1:]
	exec := false
	switch program := filepath.Base(argv[0]); {
	case program == "npx":
	case program == "npm" && len(rest) > 0 && (rest[0] == "exec" || rest[0] == "x"):
		rest, exec = rest[1:], true
	default:
		return w, false, nil
	}
	if w, rest, err = options(rest); err != nil {
		return w, true, err
	}
	if len(rest) == 0 {
		return w, true, fmt.Errorf("%s names no package", argv[0])
	}
	if w.Spec == "" {
		w.Spec = rest[0]
	} else {
		w.Bin = rest[0]
	}
	w.Args = rest[1:]
	if exec && len(w.Args) > 0 && w.Args[0] == "--" {
		w.Args = w.Args[1:]
	}
	var version string
	if w.Name, version = split(w.Spec); !packageName().MatchString(w.Name) || !packageVersion().MatchString(version) {
		return w, true, fmt.Errorf("%q is not a package of a registry; write NAME or NAME@VERSION", w.Spec)
	}
	return w, true, nil
}

// options reads what npx may be told before the package.
func options(rest []string) (w Wanted, _ []string, err error) {
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		o := rest[0]
		rest = rest[1:]
		switch {
		case o == "--":
			return w, rest, nil
		case o == "-y", o == "--yes", o == "-q", o == "--quiet":
		case (o == "-p" || o == "--package") && len(rest) > 0 && w.Spec == "":
			w.Spec, rest = rest[0], rest[1:]
		case strings.HasPrefix(o, "--package=") && w.Spec == "":
			w.Spec = strings.TrimPrefix(o, "--package=")
		default:
			return w, nil, fmt.Errorf("%s is not understood before the package; known are -y, -q and one -p PACKAGE", o)
		}
	}
	return w, rest, nil
}

// split returns the name and the version of a package. The default version is latest.
func split(spec string) (name, version string) {
	if at := strings.LastIndexByte(spec, '@'); at > 0 {
		return spec[:at], spec[at+1:]
	}
	return spec, "latest"
}

func (i *Installer) resolveNpm(ctx context.Context, w Wanted) (*Pin, error) {
	_, version := split(w.Spec)
	manifest, err := json.Marshal(map[string]any{"dependencies": map[string]string{w.Name: version}})
	if err != nil {
		return nil, err
	}
	out, err := i.npm(ctx, map[string][]byte{"package.json": manifest}, w.Name, "install", "--package-lock-only")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(out)
	b, err := read(filepath.Join(out, "package-lock.json"))
	if err != nil {
		return nil, fmt.Errorf("npm wrote no lock: %w", err)
	}
	p := &Pin{Spec: w.Spec}
	if p.Lock, err = strictjson.Parse(b); err != nil {
		return nil, fmt.Errorf("package-lock.json: %w", err)
	}
	l, err := p.lock()
	if err != nil {
		return nil, err
	}
	self, ok := l.Packages["node_modules/"+w.Name]
	if !ok {
		return nil, fmt.Errorf("npm's lock does not hold %s", w.Name)
	}
	p.Version, p.Integrity = self.Version, self.Integrity
	p.Lock, err = exactly(p.Lock, w.Name, p.Version)
	return p, err
}

// exactly makes a lock ask for one version: npm ci holds a tag against what it stands for today.
func exactly(l strictjson.Value, name, version string) (strictjson.Value, error) {
	var m map[string]any
	if err := l.Decode(&m); err != nil {
		return l, err
	}
	if all, ok := m["packages"].(map[string]any); ok {
		all[""] = map[string]any{"dependencies": map[string]string{name: version}}
	}
	b, err := json.Marshal(m)
	if err != nil {
		return l, err
	}
	return strictjson.Parse(b)
}

// fetchNpm: npm holds each package against its integrity.
func (i *Installer) fetchNpm(ctx context.Context, p *Pin) (string, error) {
	l, err := p.lock()
	if err != nil {
		return "", err
	}
	manifest, err := json.Marshal(map[string]any{"dependencies": l.Packages[""].Dependencies})
	if err != nil {
		return "", err
	}
	name, _ := split(p.Spec)
	return i.npm(ctx, map[string][]byte{"package.json": manifest, "package-lock.json": p.Lock.Canonical()}, name, "ci")
}

// lock holds the parts of package-lock.json that waldo uses.
type lock struct {
	Packages map[string]struct {
		Version      string            `json:"version"`
		Integrity    string            `json:"integrity"`
		Resolved     string            `json:"resolved"`
		Link         bool              `json:"link"`
		InBundle     bool              `json:"inBundle"` // it came inside another's archive, under that one's integrity
		Dependencies map[string]string `json:"dependencies"`
	} `json:"packages"`
}

// lock reads the pin's lock. A package that nothing holds to its content is refused.
func (p *Pin) lock() (l lock, err error) {
	if err := p.Lock.Decode(&l); err != nil {
		return l, fmt.Errorf("package-lock.json: %w", err)
	}
	for at, k := range l.Packages {
		if k.Resolved != "" {
			return l, fmt.Errorf("%.200q comes from an address and not by its name from the registry", at)
		}
		if at != "" && (k.Link || k.Version == "" || !k.InBundle && !strings.HasPrefix(k.Integrity, "sha512-")) {
			return l, fmt.Errorf("%.200q has no sha512 integrity in the registry: nothing would hold its content", at)
		}
	}
	return l, nil
}

// npm runs one npm command in a sandbox that holds some files, and returns a folder with its output.
func (i *Installer) npm(ctx context.Context, files map[string][]byte, name string, args ...string) (string, error) {
	reach, flags, err := i.registries(ctx, name)
	if err != nil {
		return "", err
	}
	seed, out, err := i.begin(files)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(seed)
	err = i.Run(ctx, Job{
		Argv: slices.Concat(i.Npm, args, []string{
			"--ignore-scripts", "--omit=dev", "--omit-lockfile-registry-resolved", "--no-audit", "--no-fund",
			"--no-update-notifier", "--loglevel=error", "--fetch-retries=1", "--cache=/workspace/tmp/npm",
		}, flags),
		Reach: reach, Seed: seed, Out: out, Show: folderOf(i.Npm),
	})
	if err != nil {
		return "", fmt.Errorf("npm %s: %w", args[0], errors.Join(err, os.RemoveAll(out)))
	}
	return out, nil
}

// folderOf is the outermost node_modules folder around npm's own program, where it is not in /usr.
func folderOf(npm []string) []string {
	for _, word := range npm {
		if before, _, ok := strings.Cut(word, "/node_modules/"); ok && !strings.HasPrefix(word, "/usr/") {
			return []string{before + "/node_modules"}
		}
	}
	return nil
}

// registries are those that this machine's npm reads: its own, and one of the package's scope.
func (i *Installer) registries(ctx context.Context, name string) (reach, flags []string, err error) {
	keys := []string{"registry"}
	if scope, _, ok := strings.Cut(name, "/"); ok {
		keys = append(keys, scope+":registry")
	}
	for _, key := range keys {
		v, err := i.Config(ctx, key)
		if err != nil {
			return nil, nil, fmt.Errorf("npm's configuration of this machine: %w", err)
		}
		if v == "" || v == "undefined" {
			continue
		}
		rule, address, err := registry(v)
		if err != nil {
			return nil, nil, fmt.Errorf("npm's registry %w", err)
		}
		reach, flags = append(reach, rule), append(flags, "--"+key+"="+address)
	}
	if len(reach) == 0 {
		return nil, nil, fmt.Errorf("npm has no registry on this machine: npm config set registry URL")
	}
	return slices.Compact(reach), flags, nil
}

// registry makes of a registry's address a rule of egress, and the address as the sandbox has it.
func registry(address string) (rule, as string, err error) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Scheme != "https" && u.Scheme != "http" {
		return "", "", errors.New("is not an http or https address without a user") // it may hold a password: not shown
	}
	host, port := u.Hostname(), u.Port()
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		host = "localhost"
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	u.Host = net.JoinHostPort(host, port)
	return "GET,HEAD " + u.Host, u.String(), nil
}

// entry is the file of an installed package that starts it, below the folder.
func (w Wanted) entry(dir string) (string, error) {
	at := path.Join("node_modules", w.Name)
	b, err := read(filepath.Join(dir, at, "package.json"))
	if err != nil {
		return "", err
	}
	file, err := bin(b, w.Name, w.Bin)
	if err != nil {
		return "", fmt.Errorf("%s: %w", w.Name, err)
	}
	at = path.Join(at, file)
	f, err := os.Open(filepath.Join(dir, at))
	if err != nil {
		return "", err
	}
	defer f.Close()
	first, _ := bufio.NewReader(io.LimitReader(f, 200)).ReadString('\n')
	if strings.HasPrefix(first, "#!") && !strings.Contains(first, "node") {
		return "", fmt.Errorf("%s: its program %s is not for node", w.Name, file)
	}
	return at, nil
}

// bin finds the program of a package as npx does: the named one, the only one, or the one with the package's name. It
// refuses a program outside the package.
func bin(manifest []byte, name, want string) (string, error) {
	var m struct {
		Bin json.RawMessage `json:"bin"`
	}
	if err := json.Unmarshal(manifest, &m); err != nil {
		return "", fmt.Errorf("package.json: %w", err)
	}
	bins := map[string]string{}
	var one string
	if json.Unmarshal(m.Bin, &one) == nil && one != "" {
		bins[path.Base(name)] = one
	} else if len(m.Bin) > 0 && json.Unmarshal(m.Bin, &bins) != nil {
		return "", fmt.Errorf("package.json: bin is not a file or a map of files")
	}
	if want == "" {
		want = path.Base(name)
		for only := range bins {
			if len(bins) == 1 {
				want = only
			}
		}
	}
	file, ok := bins[want]
	if !ok {
		return "", fmt.Errorf("it has no program %q; name one: npx -p PACKAGE PROGRAM", want)
	}
	if file = path.Clean(file); !filepath.IsLocal(file) || file == "." {
		return "", fmt.Errorf("its program %q is outside the package", file)
	}
	return file, nil
}

const maxFile = 16 << 20 // of manifests of npm and of packages

func read(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", file, maxFile)
	}
	return b, err
}
