package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/network/egress"
	"waldo/internal/network/egress/packages"
)

// keptPackages is how many bytes of packages are kept between runs.
const keptPackages = 2 << 30

// registries makes of what a network says of packages the rules for the registries, and the
// variables by which the managers in the box find them.
func (h *house) registries(n contract.Network) (rules []egress.Rule, env []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(n.Packages)) {
		r, m := n.Packages[name], packages.Manager(name)
		address, files, _ := registryOf(m, r)
		line := contract.RegistryLine(address)
		if line == "" { // it is not said: it may hold a password
			return nil, nil, fmt.Errorf("packages: the registry that this machine is set to for %s is no plain https address; write another in waldo.yaml under %s: {registry: …}", name, name)
		}
		s := packages.Source{Manager: m}
		if r.Lock != "" {
			if s.Pins, err = h.locked(m, r.Lock); err != nil {
				return nil, nil, fmt.Errorf("packages: the lock %s of %s: %w", r.Lock, name, err)
			}
		}
		for i, l := range append([]string{line}, files...) {
			s.Files = i > 0
			rule, err := h.registry(l, s)
			if err != nil {
				return nil, nil, err
			}
			rules = append(rules, rule)
		}
		switch m {
		case packages.NPM:
			env = append(env, "npm_config_registry="+address, "npm_config_audit=false", "npm_config_update_notifier=false")
		case packages.PyPI:
			env = append(env, "PIP_INDEX_URL="+address, "PIP_DISABLE_PIP_VERSION_CHECK=1")
		}
	}
	return rules, env, nil
}

// registryOf returns the address of a registry, where its files are besides, and who set it.
func registryOf(m packages.Manager, r contract.Registry) (address string, files []string, set string) {
	if r.URL != "" {
		return r.URL, r.Files, "the contract"
	}
	own := packages.Defaults[m]
	address, set = machineRegistry(m), "this machine's setting"
	if address == "" {
		address, set = own.Registry, "the manager's default"
	}
	if strings.TrimSuffix(address, "/") == strings.TrimSuffix(own.Registry, "/") {
		return address, slices.Concat(own.Files, r.Files), set
	}
	return address, r.Files, set
}

// registry is the rule for one line: TLS, GET and HEAD alone, below its path.
func (h *house) registry(line string, s packages.Source) (egress.Rule, error) {
	if !strings.Contains(line, "/") {
		line += "/*"
	}
	r, err := egress.ParseRule("GET,HEAD " + line)
	if err != nil {
		return r, err
	}
	if len(r.Ports) > 1 { // none is written
		r.Ports = []uint16{443}
	}
	s.Base = strings.TrimSuffix(r.Paths[0], "*")
	r.Registry = &s
	own, err := egress.ParseRules(h.cfg.Internal)
	r.Internal = slices.ContainsFunc(own, func(o egress.Rule) bool { return o.Host.Match(r.Host.String()) })
	return r, err
}

// locked reads a lock, from the folder of waldo.yaml.
func (h *house) locked(m packages.Manager, lock string) (packages.Pins, error) {
	if !filepath.IsAbs(lock) {
		lock = filepath.Join(filepath.Dir(h.cfg.File), lock)
	}
	if st, err := os.Stat(lock); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, errors.New("it is no file")
	}
	f, err := os.Open(lock)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, packages.MaxLock+1))
	if err != nil {
		return nil, err
	}
	return packages.ReadLock(m, b)
}

// machineSettings are the files that set a manager for every user of a machine.
var machineSettings = map[packages.Manager][]string{
	packages.NPM:  {"/usr/local/etc/npmrc", "/usr/etc/npmrc", "/etc/npmrc"},
	packages.PyPI: {"/etc/pip.conf"},
}

// machineRegistry is the registry that this machine is set to, as npm and pip read it, but for what
// the current folder says, which an agent may have written; "" where nothing says.
func machineRegistry(m packages.Manager) string {
	home, _ := os.UserHomeDir()
	switch m {
	case packages.NPM:
		for _, e := range os.Environ() { // npm reads its variables in any case
			if k, v, _ := strings.Cut(e, "="); strings.EqualFold(k, "npm_config_registry") && v != "" {
				return v
			}
		}
		own := []string{os.Getenv("NPM_CONFIG_USERCONFIG"), filepath.Join(home, ".npmrc"), os.Getenv("NPM_CONFIG_GLOBALCONFIG")}
		return setting("registry", []string{""}, append(own, machineSettings[m]...)...)
	case packages.PyPI:
		if v := os.Getenv("PIP_INDEX_URL"); v != "" {
			return v
		}
		own := []string{os.Getenv("PIP_CONFIG_FILE"), filepath.Join(home, ".config", "pip", "pip.conf"), filepath.Join(home, ".pip", "pip.conf")}
		return setting("index-url", []string{"install", "global"}, append(own, machineSettings[m]...)...)
	}
	return ""
}

// setting finds a key in the first of files that has it in one of sections, the first of which counts most.
func setting(key string, sections []string, files ...string) string {
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		found, section := map[string]string{}, ""
		for lines := bufio.NewScanner(io.LimitReader(f, 1<<20)); lines.Scan(); {
			line := strings.TrimSpace(lines.Text())
			if s, ok := strings.CutPrefix(line, "["); ok {
				section = strings.TrimSuffix(s, "]")
				continue
			}
			k, v, _ := strings.Cut(line, "=")
			if strings.ReplaceAll(strings.ToLower(strings.TrimSpace(k)), "_", "-") == key {
				found[section] = strings.Trim(strings.TrimSpace(v), `"'`)
			}
		}
		_ = f.Close()
		for _, s := range sections {
			if found[s] != "" {
				return found[s]
			}
		}
	}
	return ""
}

// tellPackages says which registries the contracts mean.
func tellPackages(w io.Writer, cfg *contract.Config) {
	for _, c := range cfg.Contracts {
		for _, name := range slices.Sorted(maps.Keys(c.Network.Packages)) {
			r := c.Network.Packages[name]
			address, files, set := registryOf(packages.Manager(name), r)
			if contract.RegistryLine(address) == "" {
				address = "an address that is not plain https, so its runs are denied" // it can hold a password
			}
			if len(files) > 0 {
				address += ", files from " + strings.Join(files, ", ")
			}
			pins := "every package"
			if r.Lock != "" {
				pins = "the versions of " + r.Lock
			}
			display.Fprintf(w, "%s reads %s packages of %s (%s): %s\n", c.Pattern, name, address, set, pins)
		}
	}
}
