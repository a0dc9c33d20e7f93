package pkginstall

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// MaxRequirements is how large a requirements file may be, in bytes.
const MaxRequirements = 1 << 20

// Requirement is one package of a requirements file (PEP 508), without an address.
type Requirement struct {
	Name   string   // as PEP 503 spells it
	Text   string   // name, extras, versions and marker, without its hashes
	Hashes []string // "sha256:…"; empty: the file has none
}

// Line is the requirement as pip reads it.
func (r Requirement) Line() string {
	line := r.Text
	for _, h := range r.Hashes {
		line += " --hash=" + h
	}
	return line
}

var (
	// marker holds letters, digits and the signs of PEP 508 markers alone.
	marker = lazy(`^[A-Za-z0-9 ._"'<>=!~,()*+-]{1,500}$`)
	hashed = lazy(`^sha256:[0-9a-f]{64}$`)
)

// advice explains lines that a requirements file of a template cannot have, by their first letters.
var advice = []struct{ prefix, text string }{
	{"-r", "one file holds all requirements: copy the lines of the other file"},
	{"--requirement", "one file holds all requirements: copy the lines of the other file"},
	{"-c", "there are no constraint files: write the versions behind the names"},
	{"--constraint", "there are no constraint files: write the versions behind the names"},
	{"-e", "packages come as wheels from the index: build a wheel and put it into an index of yours"},
	{"--editable", "packages come as wheels from the index: build a wheel and put it into an index of yours"},
	{"-i", "the index is that of this machine's pip: pip config set global.index-url URL"},
	{"--index-url", "the index is that of this machine's pip: pip config set global.index-url URL"},
	{"--extra-index-url", "there is one index, that of this machine's pip: pip config set global.index-url URL"},
	{"--find-links", "wheels come from the index of this machine's pip"},
	{"-f", "wheels come from the index of this machine's pip"},
	{"-", "options have no place here: only names with versions and --hash=sha256:…"},
}

// ParseRequirements reads a requirements file: names with versions, extras, markers and sha256 hashes. It refuses
// addresses, other files and options. file names it in errors.
func ParseRequirements(file string, text []byte) (out []Requirement, err error) {
	if len(text) > MaxRequirements {
		return nil, fmt.Errorf("%s: %d bytes: at most %d", file, len(text), MaxRequirements)
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	seen, number := map[string]bool{}, 0
	for joined, at := "", 0; len(text) > 0; {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		text, number = rest, number+1
		if joined == "" {
			at = number
		}
		if before, more := bytes.CutSuffix(line, []byte(`\`)); more && len(text) > 0 {
			joined += string(before) + " "
			continue
		}
		joined += string(line)
		r, ok, err := parseRequirement(joined)
		joined = ""
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, at, err)
		}
		if !ok {
			continue
		}
		if seen[r.Text] {
			return nil, fmt.Errorf("%s:%d: %s is named twice", file, at, r.Text)
		}
		seen[r.Text] = true
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: it names no package; write one on a line, as in pandas==2.2.2", file)
	}
	return out, nil
}

// parseRequirement reads one line. ok is false for one without a requirement.
func parseRequirement(line string) (r Requirement, ok bool, err error) {
	if i := strings.Index(" "+line, " #"); i >= 0 {
		line = line[:i]
	}
	line = strings.TrimSpace(line)
	if line == "" {
		return r, false, nil
	}
	words := strings.Fields(line)
	if strings.HasPrefix(words[0], "-") {
		for _, a := range advice {
			if strings.HasPrefix(words[0], a.prefix) {
				return r, false, fmt.Errorf("%.60q: %s", words[0], a.text)
			}
		}
	}
	for len(words) > 0 && strings.HasPrefix(words[len(words)-1], "--") {
		h, isHash := strings.CutPrefix(words[len(words)-1], "--hash=")
		if !isHash || !hashed().MatchString(h) {
			return r, false, fmt.Errorf("%.90q: only --hash=sha256: and 64 hexadecimal digits may follow a package",
				words[len(words)-1])
		}
		if words = words[:len(words)-1]; !slices.Contains(r.Hashes, h) {
			r.Hashes = append(r.Hashes, h)
		}
	}
	slices.Sort(r.Hashes)
	spec, when, conditional := strings.Cut(strings.Join(words, " "), ";")
	spec = strings.ReplaceAll(spec, " ", "")
	m := requirement().FindStringSubmatch(spec)
	if m == nil {
		return r, false, fmt.Errorf("%.200q is not a package of an index; "+
			"write NAME or NAME==VERSION (no address, no file)", spec)
	}
	r.Name, r.Text = normal(m[1]), normal(m[1])+m[2]+m[3]
	if conditional {
		when = strings.TrimSpace(when)
		if !marker().MatchString(when) {
			return r, false, fmt.Errorf("%.200q is not a marker, as in python_version < \"3.12\"", when)
		}
		r.Text += " ; " + when
	}
	return r, true, nil
}
