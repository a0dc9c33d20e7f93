package files

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"waldo/internal/model/contract"
)

// opened is a path of this machine that the configuration opens to agents and servers.
type opened struct {
	key  string // root, input, the folder of url, template, mounts or contract mounts
	at   contract.Position
	name string // as written
}

func places(cfg *contract.Config) (out []opened) {
	add := func(key string, at contract.Position, name string) {
		if name != "" {
			out = append(out, opened{key, at, name})
		}
	}
	for _, c := range cfg.Contracts {
		add("root", c.At, c.Root)
		add("input", c.At, c.Input)
		if file, ok := contract.SQLiteFile(c.Database); ok {
			add("the folder of url", c.Keys["url"], filepath.Dir(file))
		}
		for _, m := range c.Mounts {
			add("contract mounts", m.At, m.From)
		}
		if strings.HasPrefix(c.Template, "/") || strings.HasPrefix(c.Template, ".") {
			add("template", c.At, c.Template)
		}
	}
	for _, s := range cfg.Servers {
		add("input", s.At, s.Input)
		for _, m := range s.Mounts {
			add("mounts", m.At, m.From)
		}
	}
	return out
}

// Places returns where each path that the configuration opens leads now, by its absolute path.
func Places(cfg *contract.Config) map[string]string {
	out := map[string]string{}
	for _, p := range places(cfg) {
		if path, err := p.at.Beside(p.name); err == nil {
			out[path] = leads(path)
		}
	}
	return out
}

// leads resolves the links of a path as far as it exists. What is missing is taken to come without a link.
func leads(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(leads(dir), filepath.Base(path))
	}
	return path
}

// errMoved is the reason against a path that leads elsewhere than it did.
const errMoved = "leads elsewhere than when the configuration was loaded or trusted"

// Resolve returns a path of the configuration with its links resolved. It refuses one that leads elsewhere than the
// configuration's record says.
func (m Machine) Resolve(at contract.Position, name string) (string, error) {
	path, err := at.Beside(name)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	here := real // what is judged is what is used: a second look could see another link
	if err != nil {
		here = leads(path)
	}
	was, known := m.places[path]
	switch {
	case known && was != here:
		return "", Fault{At: at, Text: path + " " + errMoved, Refused: true, Hint: "read where it leads, then run: waldo trust"}
	case err != nil:
		return "", Fault{At: at, Text: err.Error(), Missing: errors.Is(err, fs.ErrNotExist)}
	}
	return real, nil
}

// Place is Resolve, and refuses what is too much of this machine.
func (m Machine) Place(at contract.Position, name string) (string, error) {
	real, err := m.Resolve(at, name)
	if err != nil {
		return "", err
	}
	if why := m.refuse(real); why != "" {
		return "", Fault{At: at, Text: real + " " + why, Refused: true,
			Hint: "name a folder that holds only files that agents may see"}
	}
	return real, nil
}

// Opened returns the faults of the folders that contracts open to agents: root and input.
func (m Machine) Opened(cfg *contract.Config) (faults []Fault) {
	m.State = "" // the tools and the sandbox hide it themselves
	for _, p := range places(cfg) {
		if p.key == "template" || p.key == "mounts" || p.key == "the folder of url" {
			continue
		}
		var f Fault
		if _, err := m.Place(p.at, p.name); errors.As(err, &f) && f.Refused {
			f.Text = p.key + ": " + f.Text
			faults = append(faults, f)
		}
	}
	return faults
}
