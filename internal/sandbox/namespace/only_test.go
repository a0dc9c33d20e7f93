//go:build linux && (amd64 || arm64)

package namespace_test

import (
	"testing"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/loader"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/testing/sandboxtest"
)

// BenchmarkNarrow: what it costs to narrow the files of a program, for a sandbox and one run in it.
func BenchmarkNarrow(b *testing.B) {
	files, err := new(loader.Finder).Needs("/", []string{"/usr/bin"}, "git", "true")
	if err != nil {
		b.Fatal(err)
	}
	d := namespace.New(namespace.Options{})
	for name, only := range map[string]*sandbox.Only{"all": nil, "only": {Execute: files.Execute,
		Read: append(files.Read, "/workspace/"), Write: []string{"/tmp/"}}} {
		b.Run(name, func(b *testing.B) {
			p := sandboxtest.Profile()
			p.Only = only
			for b.Loop() {
				s, err := d.Start(b.Context(), p)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.Run(b.Context(), sandbox.Command{Argv: []string{"/usr/bin/true"}, Env: env}); err != nil {
					b.Fatal(err)
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
