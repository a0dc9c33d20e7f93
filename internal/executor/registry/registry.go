// Package registry finds the package registry for a contract: the contract's, this machine's, or the package
// manager's default.
package registry

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/model/contract"
	"waldo/internal/network/egress/packages"
)

// Of finds a registry: its address, the other hosts that serve its files, and who set it.
func Of(manager string, r contract.Registry) (address string, files []string, set string) {
	if r.URL != "" {
		return r.URL, r.Files, "the contract"
	}
	m := packages.Manager(manager)
	own := packages.Defaults[m]
	address, set = Machine(m), "this machine's setting"
	if address == "" {
		address, set = own.Registry, "the manager's default"
	}
	if strings.TrimSuffix(address, "/") == strings.TrimSuffix(own.Registry, "/") {
		return address, slices.Concat(own.Files, r.Files), set
	}
	return address, r.Files, set
}

// Suite returns the suite and the components of an archive for apt, as in "bookworm main".
func Suite(r contract.Registry) string {
	if r.Suite != "" {
		return r.Suite
	}
	const release = "/etc/os-release"
	if name := setting("version-codename", []string{""}, release); name != "" &&
		setting("id", []string{""}, release) == "debian" {
		return name + " main"
	}
	return "stable main"
}

// MachineFiles set a package manager for every user of a machine. Tests replace them.
var MachineFiles = map[packages.Manager][]string{
	packages.NPM:  {"/usr/local/etc/npmrc", "/usr/etc/npmrc", "/etc/npmrc"},
	packages.PyPI: {"/etc/pip.conf"},
}

// Machine returns this machine's registry setting, read as npm and pip read it; "" if unset. It ignores settings of
// the current folder, because an agent can write there.
func Machine(m packages.Manager) string {
	home, _ := os.UserHomeDir()
	switch m {
	case packages.NPM:
		for _, e := range os.Environ() { // npm reads its variables in any case
			if k, v, _ := strings.Cut(e, "="); strings.EqualFold(k, "npm_config_registry") && v != "" {
				return v
			}
		}
		own := []string{
			os.Getenv("NPM_CONFIG_USERCONFIG"), filepath.Join(home, ".npmrc"), os.Getenv("NPM_CONFIG_GLOBALCONFIG"),
		}
		return setting("registry", []string{""}, append(own, MachineFiles[m]...)...)
	case packages.PyPI:
		if v := os.Getenv("PIP_INDEX_URL"); v != "" {
			return v
		}
		own := []string{
			os.Getenv("PIP_CONFIG_FILE"), filepath.Join(home, ".config", "pip", "pip.conf"),
			filepath.Join(home, ".pip", "pip.conf"),
		}
		return setting("index-url", []string{"install", "global"}, append(own, MachineFiles[m]...)...)
	}
	return ""
}

// setting finds a key in the first of files that has it in one of sections. An earlier section takes precedence.
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
