// Package packages reads what a request to a package registry is for, and which packages a lock
// allows. It knows the paths of npm, of Python's simple index (PEP 503, 427, 625) and of archives for apt, and fetches
// nothing.
package packages

import (
	"strings"

	"waldo/internal/detect/pattern"
)

// Manager is a program that installs packages.
type Manager string

// The managers whose registries are known.
const (
	NPM    Manager = "npm"
	PyPI   Manager = "pypi"
	Debian Manager = "debian"
)

// Package is one version of a package, its name as the manager compares names.
type Package struct {
	Manager       Manager
	Name, Version string
}

// Source is a registry, or a place elsewhere where a registry keeps its files.
type Source struct {
	Manager Manager
	Base    string // the path that everything is below, ending in /
	Files   bool   // files alone, no index
	Pins    Pins   // nil: every package
}

// Pins are the versions that a lock allows, by name.
type Pins map[string][]string

// Plain returns a path in which the one slash that npm escapes, in the name @scope%2fname, is a slash.
func (s Source) Plain(path string) string {
	if m := scoped().FindStringSubmatch(path); s.Manager == NPM && m != nil {
		return m[1] + "/" + m[2]
	}
	return path
}

var scoped = pattern.Lazy(`^((?:/[^%?]*)?/@[A-Za-z0-9._~-]+)%2[fF]([A-Za-z0-9._~-]+(?:/[^%?]*)?)$`)

// File parses the path of a file of the source, without a query; false for any other path. Below a registry npm's
// files are NAME/-/NAME-VERSION.tgz; Python's and Debian's are recognised by their file name at any path.
func (s Source) File(path string) (Package, bool) {
	rest, ok := strings.CutPrefix(path, s.Base)
	if !ok {
		return Package{}, false
	}
	p := Package{Manager: s.Manager}
	switch s.Manager {
	case NPM:
		m := tarball().FindStringSubmatch(rest)
		if m == nil || !s.Files && m[1] != "" {
			return p, false
		}
		version, ok := strings.CutPrefix(m[4], m[3]+"-")
		p.Name, p.Version = m[2]+m[3], version
		return p, ok && semver().MatchString(version)
	case PyPI:
		p.Name, p.Version = pythonFile(rest[strings.LastIndexByte(rest, '/')+1:])
		return p, p.Name != "" && p.Version != ""
	case Debian:
		m := debFile().FindStringSubmatch(rest)
		if m == nil {
			return p, false
		}
		p.Name, p.Version = m[1], debVersion(m[2])
		return p, true
	}
	return p, false
}

var (
	tarball = pattern.Lazy(`^((?:[^/]+/)*?)(@[a-z0-9._~-]+/)?([A-Za-z0-9._~-]+)/-/([A-Za-z0-9._~+-]+)\.tgz$`)
	semver  = pattern.Lazy(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	npmName = pattern.Lazy(`^(@[a-z0-9._~-]+/)?[A-Za-z0-9_~][A-Za-z0-9._~-]*$`)
	pyName  = pattern.Lazy(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	version = pattern.Lazy(`^v?[0-9][A-Za-z0-9.!+_]*$`)

	debFile  = pattern.Lazy(`(?:^|/)([a-z0-9][a-z0-9+.-]*)_([0-9A-Za-z][0-9A-Za-z.+:~-]*)_[a-z0-9-]+\.deb$`)
	debLists = pattern.Lazy(`^dists/[A-Za-z0-9._/+-]+$|(?:^|/)(?:InRelease|Release|Release\.gpg|Packages(?:\.[a-z0-9]+)?)$`)
)

// debVersion is a version without its epoch, which the name of a file does not have.
func debVersion(s string) string { return s[strings.IndexByte(s, ':')+1:] }

// pythonFile reads the name of a wheel or of a source distribution; of no other archive.
func pythonFile(file string) (name, ver string) {
	if stem, ok := strings.CutSuffix(file, ".whl"); ok {
		parts := strings.Split(stem, "-")
		if len(parts) < 5 || len(parts) > 6 {
			return "", ""
		}
		name, ver = parts[0], parts[1]
	} else {
		stem, ok := strings.CutSuffix(file, ".tar.gz")
		if !ok {
			stem, ok = strings.CutSuffix(file, ".zip")
		}
		i := strings.LastIndexByte(stem, '-')
		if !ok || i < 0 {
			return "", ""
		}
		name, ver = stem[:i], stem[i+1:]
	}
	if !pyName().MatchString(name) || !version().MatchString(ver) {
		return "", ""
	}
	return pythonName(name), pythonVersion(ver)
}

// pythonName is a name as PEP 503 compares it.
func pythonName(s string) string {
	return strings.ToLower(strings.Join(strings.FieldsFunc(s,
		func(r rune) bool { return r == '-' || r == '_' || r == '.' }), "-"))
}

// pythonVersion is a version as it is compared: 1.0 is 1.0.0 (PEP 440). Rarer spellings of one
// version are different ones here, which refuses.
func pythonVersion(s string) string {
	s = strings.TrimPrefix(strings.ToLower(s), "v")
	for strings.Trim(s, "0123456789.") == "" && strings.HasSuffix(s, ".0") {
		s = strings.TrimSuffix(s, ".0")
	}
	return s
}

// index parses the path of a package's index (its versions) or of a file's metadata (PEP 658).
func (s Source) index(path string) (name string) {
	rest, ok := strings.CutPrefix(path, s.Base)
	if !ok {
		return ""
	}
	switch s.Manager {
	case NPM:
		if !s.Files && npmName().MatchString(rest) {
			return rest
		}
	case PyPI:
		if file, ok := strings.CutSuffix(path, ".metadata"); ok {
			p, _ := s.File(file)
			return p.Name
		}
		rest = strings.TrimSuffix(rest, "/")
		if !s.Files && pyName().MatchString(rest) {
			return pythonName(rest)
		}
	}
	return ""
}

// Refuses returns why a request does not pass, or "". With pins it allows only files at the pinned versions and the
// index of the pinned names.
func (s Source) Refuses(path, query string) string {
	if s.Pins == nil {
		return ""
	}
	if query != "" {
		return "a query could stand for another package than the path"
	}
	if rest, ok := strings.CutPrefix(path, s.Base); ok && s.Manager == Debian && debLists().MatchString(rest) &&
		!strings.HasSuffix(rest, "deb") {
		return "" // signed lists of all packages
	}
	if p, ok := s.File(path); ok {
		for _, v := range s.Pins[p.Name] {
			if v == p.Version {
				return ""
			}
		}
		return "the lock does not pin " + p.Name + " " + p.Version
	}
	if name := s.index(path); name != "" {
		if s.Pins[name] != nil {
			return ""
		}
		return "the lock does not pin " + name
	}
	return "this is neither the index of a package nor a file of one"
}
