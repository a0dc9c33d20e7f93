package sandboxegress

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/executor/registry"
	"waldo/internal/model/contract"
	"waldo/internal/network/egress"
	"waldo/internal/network/egress/packages"
)

// The rules for a registry: TLS alone, GET and HEAD alone, below its path, by the pins of the lock.
func TestRegistries(t *testing.T) {
	dir := t.TempDir()
	a := &Assembler{Config: &contract.Config{File: filepath.Join(dir, "waldo.yaml")}}
	lock := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(lock, []byte("a==1.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := contract.Network{Packages: map[string]contract.Registry{"pypi": {URL: "https://r.example.com/simple/",
		Files: []string{"f.example.com"}, Lock: "./requirements.txt"}}}
	rules, env, err := a.registries(n)
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
	for text, want := range map[string]string{"a>=1.0\n": "==", "": ""} { // an empty lock pins and permits nothing
		if err := os.WriteFile(lock, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		rules, _, err := a.registries(n)
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
	if _, _, err := a.registries(n); err == nil {
		t.Error("without its lock it goes on")
	}
}

// A password in the address of a registry is neither used nor printed.
func TestPasswordOfARegistry(t *testing.T) {
	t.Setenv("NPM_CONFIG_REGISTRY", "https://me:hunter2@n.example.com/")
	a := &Assembler{Config: &contract.Config{}}
	if _, _, err := a.registries(contract.Network{Packages: map[string]contract.Registry{"npm": {}}}); err == nil ||
		strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

// TestDefaultRegistries: allow works on a machine that sets nothing, for the manager's own hosts alone.
func TestDefaultRegistries(t *testing.T) {
	for _, v := range []string{
		"NPM_CONFIG_REGISTRY", "npm_config_registry", "NPM_CONFIG_USERCONFIG", "NPM_CONFIG_GLOBALCONFIG",
		"PIP_INDEX_URL", "PIP_CONFIG_FILE",
	} {
		t.Setenv(v, "")
	}
	t.Setenv("HOME", t.TempDir())
	was := registry.MachineFiles
	registry.MachineFiles = nil // a machine that sets nothing
	defer func() { registry.MachineFiles = was }()
	a := &Assembler{Config: &contract.Config{}}
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
		rules, env, err := a.registries(contract.Network{Packages: map[string]contract.Registry{manager: {}}})
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
	for url, want := range map[string]string{
		"https://p.example.com/simple/a/": "", file: "egress.host", own[packages.PyPI].Registry + "/a/": "egress.host",
	} {
		if got := judge("pypi", url); got != want {
			t.Errorf("set elsewhere: %s: %q, not %q", url, got, want)
		}
	}
}
