package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/model/contract"
	"waldo/internal/network/egress"
	"waldo/internal/network/egress/packages"
)

// The rules for a registry: TLS alone, GET and HEAD alone, below its path, by the pins of the lock.
func TestRegistries(t *testing.T) {
	dir := t.TempDir()
	h := &house{cfg: &contract.Config{File: filepath.Join(dir, "waldo.yaml")}}
	lock := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(lock, []byte("a==1.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := contract.Network{Packages: map[string]contract.Registry{"pypi": {URL: "https://r.example.com/simple/", Files: []string{"f.example.com"}, Lock: "./requirements.txt"}}}
	rules, env, err := h.registries(n)
	if err != nil || len(rules) != 2 || !slices.Contains(env, "PIP_INDEX_URL=https://r.example.com/simple/") {
		t.Fatalf("%v %v %v", rules, env, err)
	}
	p := &egress.Policy{Rules: rules}
	for _, row := range []struct{ method, url, want string }{
		{"GET", "https://r.example.com/simple/a/", ""},
		{"GET", "https://f.example.com/x/a-1.0-py3-none-any.whl", ""},
		{"GET", "https://f.example.com/x/a-1.1-py3-none-any.whl", "egress.packages.pin"},
		{"GET", "https://f.example.com/simple/a/", "egress.packages.pin"},
		{"PUT", "https://r.example.com/simple/a/", "egress.request"},
		{"GET", "https://r.example.com/a/", "egress.request"},
		{"GET", "http://r.example.com/simple/a/", "egress.port"},
	} {
		why := p.Judge(row.method, row.url)
		if got := ""; why != nil && why.Code != row.want || why == nil && row.want != got {
			t.Errorf("%s %s: %v", row.method, row.url, why)
		}
	}
	for text, want := range map[string]string{"a>=1.0\n": "==", "": ""} { // a lock that names nothing pins nothing, and lets nothing
		if err := os.WriteFile(lock, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		rules, _, err := h.registries(n)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if why := (&egress.Policy{Rules: rules}).Judge("GET", "https://r.example.com/simple/a/"); err != nil || why == nil {
			t.Errorf("an empty lock: %v %v", err, why)
		}
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.registries(n); err == nil {
		t.Error("without its lock it goes on")
	}
}

// The machine's own registry is read as npm and pip read it, but never from the current folder, and
// a password in its address is neither used nor said.
func TestTheMachinesRegistry(t *testing.T) {
	home, here := t.TempDir(), t.TempDir()
	for _, v := range []string{"NPM_CONFIG_REGISTRY", "npm_config_registry", "NPM_CONFIG_USERCONFIG", "NPM_CONFIG_GLOBALCONFIG", "PIP_INDEX_URL", "PIP_CONFIG_FILE"} {
		t.Setenv(v, "")
	}
	t.Setenv("HOME", home)
	t.Chdir(here)
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(here, ".npmrc"), "registry=https://evil.example/\n")
	write(filepath.Join(home, ".npmrc"), "; mine\nregistry = \"https://n.example.com/npm/\"\n")
	write(filepath.Join(home, ".config", "pip", "pip.conf"), "[list]\nindex-url = https://evil.example/simple\n[global]\nindex_url = https://p.example.com/simple\n")
	if got := machineRegistry(packages.NPM); got != "https://n.example.com/npm/" {
		t.Error(got)
	}
	if got := machineRegistry(packages.PyPI); got != "https://p.example.com/simple" {
		t.Error(got)
	}
	t.Setenv("NPM_CONFIG_REGISTRY", "https://me:hunter2@n.example.com/")
	h := &house{cfg: &contract.Config{}}
	if _, _, err := h.registries(contract.Network{Packages: map[string]contract.Registry{"npm": {}}}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

// TestDefaultRegistries: allow works on a machine that sets nothing, for the manager's own hosts alone.
func TestDefaultRegistries(t *testing.T) {
	for _, v := range []string{"NPM_CONFIG_REGISTRY", "npm_config_registry", "NPM_CONFIG_USERCONFIG", "NPM_CONFIG_GLOBALCONFIG", "PIP_INDEX_URL", "PIP_CONFIG_FILE"} {
		t.Setenv(v, "")
	}
	t.Setenv("HOME", t.TempDir())
	was := machineSettings
	machineSettings = nil // a stock machine
	defer func() { machineSettings = was }()
	h := &house{cfg: &contract.Config{}}
	own := packages.Defaults
	file := "https://" + strings.TrimSuffix(own[packages.PyPI].Files[0], "*") + "a/a-1.0-py3-none-any.whl"
	rows := []struct{ manager, url, want string }{
		{"npm", own[packages.NPM].Registry + "left-pad", ""},
		{"npm", own[packages.PyPI].Registry + "/a/", "egress.host"},
		{"pypi", own[packages.PyPI].Registry + "/a/", ""},
		{"pypi", file, ""},
		{"pypi", strings.Replace(file, "/packages/", "/other/", 1), "egress.request"},
	}
	judge := func(manager, url string) string {
		rules, env, err := h.registries(contract.Network{Packages: map[string]contract.Registry{manager: {}}})
		if err != nil {
			t.Fatal(err)
		}
		if len(env) == 0 {
			t.Error("the manager is told of no registry")
		}
		if why := (&egress.Policy{Rules: rules}).Judge("GET", url); why != nil {
			return why.Code
		}
		return ""
	}
	for _, row := range rows {
		if got := judge(row.manager, row.url); got != row.want {
			t.Errorf("%s: %s: %q, not %q", row.manager, row.url, got, row.want)
		}
	}
	// A machine that is set to another registry has that one alone: not the default, and not its files.
	t.Setenv("PIP_INDEX_URL", "https://p.example.com/simple")
	for url, want := range map[string]string{"https://p.example.com/simple/a/": "", file: "egress.host", own[packages.PyPI].Registry + "/a/": "egress.host"} {
		if got := judge("pypi", url); got != want {
			t.Errorf("set elsewhere: %s: %q, not %q", url, got, want)
		}
	}
}
