package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/app/trust"
	"waldo/internal/config"
	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
)

// The process that asked and the one that answers can name the same file in different ways, and trust it. That is one
// configuration.
func TestAskedUnder(t *testing.T) {
	const text = "version: 1\nenvironment: dev\ncapabilities:\n  files.read: {mode: read, approval: none}\n"
	dir := filepath.Join(t.TempDir(), "work", "agents")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file, state := filepath.Join(dir, "waldo.yaml"), t.TempDir()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	programs := map[string]string{filepath.Join(dir, "server.sh"): "sha256:1"}
	asked := func(name, environment, text string) approval.Question {
		t.Helper()
		environment, has, _ := strings.Cut(environment, "+")
		cfg, problems := config.ParseIn(name, []byte(text), environment)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		switch has {
		case "programs":
			cfg.Programs = programs
		case "others":
			cfg.Programs = map[string]string{filepath.Join(dir, "server.sh"): "sha256:2"}
		}
		p, err := policy.New(cfg, policy.Machine{})
		if err != nil {
			t.Fatal(err)
		}
		return approval.Question{Policy: p.Digest()}
	}
	digest, err := trust.Digest(file)
	if err != nil {
		t.Fatal(err)
	}
	err = trust.Write(state, map[string]trust.Record{file: {Digest: digest, Lock: trust.NoLock, Programs: programs}})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		why, read, environment string
		q                      approval.Question
		want                   bool
	}{
		{"control: the same name", "waldo.yaml", "", asked("waldo.yaml", "", text), true},
		{"asked with the absolute name", "waldo.yaml", "", asked(file, "", text), true},
		{"asked with the short name", file, "", asked("waldo.yaml", "", text), true},
		{"asked with a dot", file, "", asked("./waldo.yaml", "", text), true},
		{"asked as it was trusted", file, "", asked(file, "+programs", text), true},
		{"asked as it was trusted, of a changed program", file, "", asked(file, "+others", text), false},
		{"the same environment, selected", file, "prod", asked("waldo.yaml", "prod", text), true},
		{"another environment", file, "", asked("waldo.yaml", "prod", text), false},
		{"a changed file", file, "", asked(file, "", text+"redaction: {}\n"), false},
		{"a changed file of another name", file, "", asked("waldo.yaml", "", text+"redaction: {}\n"), false},
		{"no configuration at all", file, "", approval.Question{Policy: "sha256:0"}, false},
	} {
		cfg, err := config.LoadIn(row.read, row.environment)
		if err != nil {
			t.Fatal(err)
		}
		if got := AskedUnder(state, cfg, row.q); got != row.want {
			t.Errorf("%s: %v, want %v", row.why, got, row.want)
		}
	}
}
