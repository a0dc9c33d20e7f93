package sandboxegress

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/executor/registry"
	"waldo/internal/model/contract"
	"waldo/internal/network/egress"
	"waldo/internal/network/egress/packages"
)

// cacheBytes bounds the cache of packages between runs.
const cacheBytes = 2 << 30

// registries returns the egress rules for the registries of a network, and the variables that point the package
// managers in the sandbox at them.
func (a *Assembler) registries(n contract.Network) (rules []egress.Rule, env []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(n.Packages)) {
		r, m := n.Packages[name], packages.Manager(name)
		address, files, _ := registry.Of(string(m), r)
		line := contract.RegistryLine(address)
		if line == "" { // the error leaves the address out: it can hold a password
			return nil, nil,
				fmt.Errorf("packages: this machine's registry for %s is not a plain https address; write another in waldo.yaml "+
					"under %s: {registry: …}", name, name)
		}
		s := packages.Source{Manager: m}
		if r.Lock != "" {
			if s.Pins, err = a.locked(m, r.Lock); err != nil {
				return nil, nil, fmt.Errorf("packages: the lock %s of %s: %w", r.Lock, name, err)
			}
		}
		for i, l := range append([]string{line}, files...) {
			s.Files = i > 0
			rule, err := a.registryRule(l, s)
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
		case packages.Debian:
			env = append(env, "APT_CONFIG="+aptAt)
		}
	}
	return rules, env, nil
}

// registryRule returns the rule for one line: TLS, GET and HEAD alone, below its path.
func (a *Assembler) registryRule(line string, s packages.Source) (egress.Rule, error) {
	if !strings.Contains(line, "/") {
		line += "/*"
	}
	r, err := egress.ParseRule("GET,HEAD " + line)
	if err != nil {
		return r, err
	}
	if len(r.Ports) > 1 { // the configuration sets no port
		r.Ports = []uint16{443}
	}
	s.Base = strings.TrimSuffix(r.Paths[0], "*")
	r.Registry = &s
	own, err := egress.ParseRules(a.Config.Internal)
	r.Internal = slices.ContainsFunc(own, func(o egress.Rule) bool { return o.Host.Match(r.Host.String()) })
	return r, err
}

// locked reads a lock file. A relative path starts at the folder of waldo.yaml.
func (a *Assembler) locked(m packages.Manager, lock string) (packages.Pins, error) {
	if !filepath.IsAbs(lock) {
		lock = filepath.Join(filepath.Dir(a.Config.File), lock)
	}
	if st, err := os.Stat(lock); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
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

// Where the configuration of apt and its source are in a sandbox.
const (
	aptAt  = "/run/waldo/apt.conf"
	listAt = "/run/waldo/apt.list"
)

// apt shows a sandbox where apt's packages come from, for a program without root and without /var/lib/apt. The keyrings
// are those of the packages debian-archive-keyring and ubuntu-keyring.
func (a *Assembler) apt(e *Egress, r contract.Registry) error {
	address, _, _ := registry.Of(string(packages.Debian), r)
	return errors.Join(
		a.show(e, listAt, []byte("deb "+address+" "+registry.Suite(r)+"\n")),
		a.show(e, aptAt, []byte(`Dir::Etc::sourcelist "`+listAt+`";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::trustedparts "/usr/share/keyrings";
Dir::State "/tmp/apt/";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "/tmp/apt/";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::https::CaInfo "`+bundleAt+`";
`)))
}
