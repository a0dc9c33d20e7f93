package registry

import (
	"os"
	"path/filepath"
	"testing"

	"waldo/internal/network/egress/packages"
)

// The machine's registry is read as npm and pip read it, but never from the current folder.
func TestMachine(t *testing.T) {
	home, here := t.TempDir(), t.TempDir()
	for _, v := range []string{
		"NPM_CONFIG_REGISTRY", "npm_config_registry", "NPM_CONFIG_USERCONFIG", "NPM_CONFIG_GLOBALCONFIG",
		"PIP_INDEX_URL", "PIP_CONFIG_FILE",
	} {
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
	write(filepath.Join(home, ".config", "pip", "pip.conf"),
		"[list]\nindex-url = https://evil.example/simple\n[global]\nindex_url = https://p.example.com/simple\n")
	if got := Machine(packages.NPM); got != "https://n.example.com/npm/" {
		t.Error(got)
	}
	if got := Machine(packages.PyPI); got != "https://p.example.com/simple" {
		t.Error(got)
	}
}
