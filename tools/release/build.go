package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// binary is a waldo that was built.
type binary struct {
	target
	path   string
	gvisor string // the waldo-gvisor inside; empty: there is none
}

// build builds waldo for each target.
func (r *release) build() error {
	python := filepath.Join(r.source, "internal/sandbox/engine/cpython/payload/python.wasm.gz")
	if err := run(r.source, r.env(target{OS: runtime.GOOS, Arch: runtime.GOARCH}), "scripts/cpython.sh"); err != nil {
		return err
	}
	if _, err := os.Stat(python); err != nil {
		return errors.New("a release has Python for isolation engine, and scripts/cpython.sh could not fetch it: is npm here?")
	}
	for _, t := range r.targets {
		b := binary{target: t, path: filepath.Join(r.work, t.OS, t.Arch, "waldo")}
		args := []string{"build", "-trimpath", "-buildvcs=false", "-o"}
		if t.Lean {
			b.path = filepath.Join(r.work, t.OS, t.Arch+"-lean", "waldo")
		} else if t.OS == "linux" {
			if err := run(r.source, r.env(t), "scripts/build-gvisor.sh"); err != nil {
				return err
			}
			b.gvisor = filepath.Join(r.source, "internal/sandbox/gvisor/payload", t.Arch, "waldo-gvisor.gz")
		}
		if t.OS == "windows" {
			b.path += ".exe"
		}
		args = append(args, b.path, "-ldflags", fmt.Sprintf("-s -w -X main.version=%s -X main.commit=%.12s -X main.committed=%s",
			r.version, r.commit, r.at.Format("2006-01-02T15:04:05Z")))
		tags := "grpcnotrace" // as in the Makefile
		if t.Lean {
			tags += ",nogvisor"
		}
		args = append(args, "-tags", tags)
		fmt.Fprintf(os.Stderr, "release: building for %s\n", t)
		if err := run(r.source, r.env(t), "go", append(args, "./cmd/waldo")...); err != nil {
			return err
		}
		r.built = append(r.built, b)
	}
	return nil
}

// env is the environment of a build: nothing of the builder's own settings changes the bytes.
func (r *release) env(t target) []string {
	env := []string{
		"CGO_ENABLED=0", "GOOS=" + t.OS, "GOARCH=" + t.Arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off",
		"GOFIPS140=off", "GODEBUG=",
	}
	if r.cache != "" {
		env = append(env, "GOCACHE="+r.cache)
	}
	return env
}

// own returns the binary of this machine, which writes the man pages.
func (r *release) own() (binary, error) {
	for _, b := range r.built {
		if b.OS == runtime.GOOS && b.Arch == runtime.GOARCH && !b.Lean {
			return b, nil
		}
	}
	return binary{}, fmt.Errorf("the man pages are written by the waldo for %s/%s, which -only leaves out", runtime.GOOS, runtime.GOARCH)
}

// manual writes man pages and completions, as they are below share of an installed waldo.
func (r *release) manual() error {
	own, err := r.own()
	if err != nil {
		return err
	}
	share := filepath.Join(r.work, "share")
	if _, err := output(r.work, own.path, "man", filepath.Join(share, "man", "man1")); err != nil {
		return err
	}
	for shell, file := range map[string]string{
		"bash": "bash-completion/completions/waldo", "zsh": "zsh/site-functions/_waldo", "fish": "fish/vendor_completions.d/waldo.fish",
	} {
		text, err := output(r.work, own.path, "completion", shell)
		if err != nil {
			return err
		}
		path := filepath.Join(share, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// info returns the build information of a binary.
func (b binary) info() (*buildinfo.BuildInfo, error) { return buildinfo.ReadFile(b.path) }

// name returns the name of a file of this target, without its end.
func (b binary) name(version string) string {
	return strings.Join([]string{"waldo", version, b.OS, b.Arch}, "_")
}
