package packages

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"waldo/internal/detect/pattern"
)

// MaxLock is how large a lock may be, in bytes.
const MaxLock = 16 << 20

// maxPins is how many versions a lock may name.
const maxPins = 100_000

// ReadLock reads the pins of a lock file: package-lock.json of lockfileVersion 2 or 3 for npm, requirements.txt
// with == alone for Python, and lines of NAME=VERSION for apt. It refuses a file that it cannot read completely.
func ReadLock(m Manager, b []byte) (Pins, error) {
	if len(b) > MaxLock {
		return nil, errors.New("a lock has at most 16 MiB")
	}
	pins := Pins{}
	var err error
	switch m {
	case NPM:
		err = pins.npm(b)
	case PyPI:
		err = pins.requirements(b)
	case Debian:
		err = pins.debian(b)
	default:
		err = fmt.Errorf("%q has no lock that is known", m)
	}
	if err != nil {
		return nil, err
	}
	return pins, nil
}

func (p Pins) add(name, version string) error {
	if !slices.Contains(p[name], version) {
		p[name] = append(p[name], version)
	}
	if len(p) > maxPins || len(p[name]) > 1000 {
		return errors.New("it names too many versions")
	}
	return nil
}

func (p Pins) npm(b []byte) error {
	var lock struct {
		Version  int `json:"lockfileVersion"`
		Packages map[string]struct {
			Name    string `json:"name"`
			Version string `json:"version"`
			Link    bool   `json:"link"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(b, &lock); err != nil {
		return fmt.Errorf("not a package-lock.json: %w", err)
	}
	if lock.Version != 2 && lock.Version != 3 {
		return fmt.Errorf("its lockfileVersion is %d: only 2 and 3 are read; npm 7 and later write them", lock.Version)
	}
	for at, e := range lock.Packages {
		i := strings.LastIndex(at, "node_modules/")
		if i < 0 || e.Link { // the project itself, and folders of it
			continue
		}
		name := at[i+len("node_modules/"):]
		if e.Name != "" { // an alias
			name = e.Name
		}
		if !npmName().MatchString(name) || !semver().MatchString(e.Version) {
			return fmt.Errorf("%q names no package with a version", at)
		}
		if err := p.add(name, e.Version); err != nil {
			return err
		}
	}
	return nil
}

// requirement is NAME[EXTRA]==VERSION, perhaps with a marker after it.
var requirement = pattern.Lazy(`^([A-Za-z0-9][A-Za-z0-9._-]*)[ \t]*(?:\[[A-Za-z0-9._, -]*\])?[ \t]*==[ ` +
	`\t]*([A-Za-z0-9.!+_]+)[ \t]*(?:;.*)?$`)

func (p Pins) requirements(b []byte) error {
	b = bytes.ReplaceAll(bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")), []byte("\\\n"), []byte(" "))
	for line := range strings.Lines(string(b)) {
		line = " " + strings.TrimSpace(line)
		if i := strings.Index(line, " #"); i >= 0 {
			line = line[:i]
		}
		line, _, _ = strings.Cut(line, " --hash=")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		m := requirement().FindStringSubmatch(line)
		if m == nil || !pyName().MatchString(m[1]) || !version().MatchString(m[2]) {
			return fmt.Errorf("%.60q is not a requirement with ==, as in name==1.2.3", line)
		}
		if err := p.add(pythonName(m[1]), pythonVersion(m[2])); err != nil {
			return err
		}
	}
	return nil
}

// exact is NAME=VERSION, as apt-get takes it, perhaps with an architecture.
var exact = pattern.Lazy(`^([a-z0-9][a-z0-9+.-]*)(?::[a-z0-9-]+)?=([0-9A-Za-z][0-9A-Za-z.+:~-]*)$`)

func (p Pins) debian(b []byte) error {
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		m := exact().FindStringSubmatch(line)
		if m == nil {
			return fmt.Errorf("%.60q is not NAME=VERSION, as in jq=1.7.1-3", line)
		}
		if err := p.add(m[1], debVersion(m[2])); err != nil {
			return err
		}
	}
	return nil
}
