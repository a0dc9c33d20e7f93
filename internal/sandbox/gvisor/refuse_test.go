//go:build linux && (amd64 || arm64)

package gvisor

import (
	"io"
	"strings"
	"testing"

	"waldo/internal/sandbox"
	"waldo/internal/testing/sandboxtest"
)

// TestRefused: profiles that this level cannot hold to are refused before anything is made.
func TestRefused(t *testing.T) {
	shown := t.TempDir()
	network := sandbox.Network{Hosts: []string{"example.com"}, Ports: []uint16{443},
		Serve: func(sandbox.Egress) io.Closer { return io.NopCloser(strings.NewReader("")) }}
	allowed := sandboxtest.Profile()
	allowed.Network = network
	if _, err := New(Options{}).start(t.Context(), allowed); err == nil || !strings.Contains(err.Error(), "no state directory") {
		t.Fatalf("control: hosts elsewhere: %v", err)
	}
	for _, r := range []struct {
		why, want string
		change    func(*sandbox.Profile)
	}{
		{"a shared sandbox", "share no processes or ports",
			func(p *sandbox.Profile) { p.Share = &sandbox.Share{Dir: shown} }},
		{"a writable folder", "no writable mounts", func(p *sandbox.Profile) {
			p.Mounts = []sandbox.Mount{{Source: shown, Target: "/shown", Writable: true}}
		}},
		{"a folder that hides a file", "cannot hide .env", func(p *sandbox.Profile) {
			p.Mounts = []sandbox.Mount{{Source: shown, Target: "/shown", Hidden: []string{".env"}}}
		}},
		{"hosts with a root of its own", "hosts and a template", func(p *sandbox.Profile) {
			p.Network, p.Template = network, sandbox.Template{Name: "x", Dir: shown}
		}},
		{"a port of this machine", "localhost:5432: gVisor's sandboxes have a loopback of their own that nothing leaves; " +
			"isolation namespace reaches it", func(p *sandbox.Profile) {
			p.Network = network
			p.Network.Hosts = []string{"example.com", "localhost:5432"}
		}},
		{"hosts without a server", "", func(p *sandbox.Profile) {
			p.Network = network
			p.Network.Serve = nil
		}},
		{"no limit of memory", "no limit of memory", func(p *sandbox.Profile) { p.Limits.Memory = 0 }},
		{"a root of two names", "template", func(p *sandbox.Profile) {
			p.Template = sandbox.Template{Name: "host", Dir: shown}
		}},
	} {
		p := sandboxtest.Profile()
		if _, err := New(Options{}).start(t.Context(), p); err == nil ||
			!strings.Contains(err.Error(), "no state directory") {
			t.Fatalf("control: %v, wanted the error that comes after", err)
		}
		r.change(&p)
		b, err := New(Options{}).start(t.Context(), p)
		if err == nil || !strings.Contains(err.Error(), r.want) || strings.Contains(err.Error(), "no state directory") {
			t.Errorf("%s: %v %v", r.why, b, err)
		}
	}
}
