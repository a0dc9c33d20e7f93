package config

import (
	"testing"

	"waldo/internal/model/contract"
)

// TestSameServer: an entry is the same wherever in the file it is, and another one after a change of any part.
func TestSameServer(t *testing.T) {
	read := func(text string) contract.Server {
		cfg, problems := Parse("waldo.yaml", []byte(text))
		if len(problems) > 0 {
			t.Fatalf("%s: %v", text, problems)
		}
		return cfg.Servers["s"]
	}
	const entry = "servers:\n  s:\n    command: [a, b]\n    network: {allow: [x.example.com]}\n    env: {A: one}\n"
	one := read(entry)
	if !SameServer(one, read("version: 1\n"+entry)) {
		t.Error("a line above it makes another server of it")
	}
	for _, other := range []string{
		"servers:\n  s:\n    command: [a, c]\n    network: {allow: [x.example.com]}\n    env: {A: one}\n",
		"servers:\n  s:\n    command: [a, b]\n    network: {allow: [y.example.com]}\n    env: {A: one}\n",
		"servers:\n  s:\n    command: [a, b]\n    network: {allow: [x.example.com]}\n    env: {A: two}\n",
		"servers:\n  s:\n    command: [a, b]\n    network: {allow: [x.example.com]}\n    env: {B: one}\n",
		"servers:\n  s:\n    command: [a, b]\n    network: {allow: [x.example.com]}\n    env: {A: one}\n    limits: {pids: 9}\n",
	} {
		if SameServer(one, read(other)) {
			t.Errorf("the same server:\n%s", other)
		}
	}
}
