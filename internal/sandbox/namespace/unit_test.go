//go:build linux && (amd64 || arm64)

package namespace

import (
	"testing"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
)

func TestWorse(t *testing.T) {
	for _, r := range []struct {
		why        string
		a, b, want error
	}{
		{"the first is taken", nil, unix.ENOENT, unix.ENOENT},
		{"that it may not be executed says more than that it is not there", unix.EACCES, unix.ENOENT, unix.EACCES},
		{"and does so later", unix.ENOENT, unix.EACCES, unix.EACCES},
		{"a folder in PATH that is a file says nothing", unix.ENOTDIR, unix.ENOEXEC, unix.ENOEXEC},
	} {
		if got := worse(r.a, r.b); got != r.want {
			t.Errorf("%s: %v", r.why, got)
		}
	}
}

// TestKindOf: only an interpreter of this machine's own root, by its path, is forked, and only from its own domain's
// zygote.
func TestKindOf(t *testing.T) {
	profile := func(harm func(p *sandbox.Profile)) sandbox.Profile {
		p := sandbox.Profile{
			Template: sandbox.Template{Name: "host"}, Prestart: &sandbox.Prestart{
				Argv: []string{"/usr/bin/python3"}, Zygote: "head", Domain: "a",
			},
		}
		harm(&p)
		return p
	}
	own, ok := kindOf(profile(func(*sandbox.Profile) {}))
	if !ok {
		t.Fatal("control: what can be forked is not")
	}
	for _, r := range []struct {
		why  string
		ok   bool
		harm func(p *sandbox.Profile)
	}{
		{"another root", false, func(p *sandbox.Profile) { p.Template = sandbox.Template{Name: "own", Dir: "/srv/own"} }},
		{"a program that is looked for", false, func(p *sandbox.Profile) { p.Prestart.Argv[0] = "python3" }},
		{"no arguments", false, func(p *sandbox.Profile) { p.Prestart.Argv = nil }},
		{"no word of a zygote", false, func(p *sandbox.Profile) { p.Prestart.Zygote = "" }},
		{"no command ahead", false, func(p *sandbox.Profile) { p.Prestart = nil }},
		{"another domain", true, func(p *sandbox.Profile) { p.Prestart.Domain = "b" }},
		{"another program", true, func(p *sandbox.Profile) { p.Prestart.Argv = append(p.Prestart.Argv, "-v") }},
	} {
		if k, ok := kindOf(profile(r.harm)); ok != r.ok || k == own {
			t.Errorf("%s: %v %+v", r.why, ok, k)
		}
	}
}
