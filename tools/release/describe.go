package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// component is a part of a binary, as CycloneDX 1.6 has it.
type component struct {
	Type       string      `json:"type"`
	Ref        string      `json:"bom-ref"`
	Name       string      `json:"name"`
	Version    string      `json:"version,omitempty"`
	PURL       string      `json:"purl,omitempty"`
	Hashes     []hash      `json:"hashes,omitempty"`
	Components []component `json:"components,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

// dependency names what a component is made of.
type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn,omitempty"`
}

// materials writes a bill of materials for each binary (CycloneDX 1.6), read from the binaries themselves.
func (r *release) materials() error {
	for _, b := range r.built {
		if b.Lean {
			continue
		}
		info, err := b.info()
		if err != nil {
			return err
		}
		content, err := os.ReadFile(b.path)
		if err != nil {
			return err
		}
		root := component{Type: "application", Ref: "waldo", Name: "waldo", Version: r.version, PURL: "pkg:golang/waldo@" + r.version,
			Hashes: []hash{{"SHA-256", digest(content)}}}
		parts := modules("waldo", info.GoVersion, info.Deps)
		parts = append(parts, r.payloads()...)
		if b.gvisor != "" {
			inner, err := r.inner(b)
			if err != nil {
				return err
			}
			parts = append(parts, inner)
		}
		on := make([]string, len(parts))
		deps := []dependency{}
		for i, p := range parts {
			on[i] = p.Ref
			if len(p.Components) > 0 {
				d := dependency{Ref: p.Ref}
				for _, c := range p.Components {
					d.On = append(d.On, c.Ref)
				}
				deps = append(deps, d)
			}
		}
		bom := map[string]any{
			"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
			"metadata": map[string]any{
				"timestamp": r.at.Format(time.RFC3339), "component": root,
				"tools": map[string]any{"components": []component{{Type: "application", Ref: "tool", Name: "waldo/tools/release",
					Version: r.version}}},
			},
			"components": parts, "dependencies": append([]dependency{{Ref: root.Ref, On: on}}, deps...),
		}
		if err := writeJSON(filepath.Join(r.out, b.name(r.version)+".cdx.json"), bom); err != nil {
			return err
		}
	}
	return nil
}

// modules returns the Go modules of a binary, and Go's own library.
func modules(of, goVersion string, deps []*debug.Module) []component {
	version := strings.TrimPrefix(goVersion, "go")
	out := []component{{Type: "library", Ref: of + ":std", Name: "std", Version: version, PURL: "pkg:golang/std@" + version}}
	for _, m := range deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := component{Type: "library", Ref: of + ":" + m.Path, Name: m.Path, Version: m.Version,
			PURL: "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")}
		out = append(out, c)
	}
	return out
}

// inner is the waldo-gvisor inside a waldo, with its own modules.
func (r *release) inner(b binary) (component, error) {
	f, err := os.Open(b.gvisor)
	if err != nil {
		return component{}, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return component{}, err
	}
	content, err := io.ReadAll(z)
	if err != nil {
		return component{}, err
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return component{}, fmt.Errorf("waldo-gvisor: %w", err)
	}
	return component{Type: "application", Ref: "waldo-gvisor", Name: "waldo-gvisor", Version: r.version,
		Hashes: []hash{{"SHA-256", digest(content)}}, Components: modules("waldo-gvisor", info.GoVersion, info.Deps)}, nil
}

// payloads are the parts of waldo that are no Go: by the digests of their files in the source.
func (r *release) payloads() (out []component) {
	for _, p := range []struct{ name, version, purl, file string }{
		{"cpython", "3.11.3", "pkg:npm/%40runno/sandbox@0.10.2", "internal/sandbox/engine/cpython/payload/python.wasm.gz"},
		{"quickjs", "", "pkg:npm/quickjs-wasi@3.6.2", "internal/sandbox/engine/quickjs/quickjs.wasm"},
		{"sucrase", "3.35.0", "pkg:npm/sucrase@3.35.0", "internal/sandbox/guest/javascript/strip.min.js"},
	} {
		content, err := os.ReadFile(filepath.Join(r.source, p.file))
		if err != nil {
			continue
		}
		out = append(out, component{Type: "library", Ref: "payload:" + p.name, Name: p.name, Version: p.version, PURL: p.purl,
			Hashes: []hash{{"SHA-256", digest(content)}}})
	}
	return out
}

// formula writes the formula for Homebrew.
func (r *release) formula() error {
	var b strings.Builder
	b.WriteString("class Waldo < Formula\n  desc \"Runs AI agents' code and tools in sandboxes, under contracts\"\n")
	fmt.Fprintf(&b, "  homepage %q\n  version %q\n  license \"Apache-2.0\"\n", r.url, r.version)
	for _, system := range []struct{ brew, goos string }{{"macos", "darwin"}, {"linux", "linux"}} {
		var each strings.Builder
		for _, cpu := range []struct{ brew, arch string }{{"arm", "arm64"}, {"intel", "amd64"}} {
			name := strings.Join([]string{"waldo", r.version, system.goos, cpu.arch}, "_") + ".tar.gz"
			content, err := os.ReadFile(filepath.Join(r.out, name))
			if errors.Is(err, os.ErrNotExist) {
				continue // -only left it out
			} else if err != nil {
				return err
			}
			fmt.Fprintf(&each, "    on_%s do\n      url \"%s/%s\"\n      sha256 %q\n    end\n", cpu.brew, r.url, name, digest(content))
		}
		if each.Len() > 0 {
			fmt.Fprintf(&b, "\n  on_%s do\n%s  end\n", system.brew, each.String())
		}
	}
	b.WriteString("\n  def install\n    bin.install \"waldo\"\n    man1.install Dir[\"share/man/man1/*\"]\n" +
		"    bash_completion.install \"share/bash-completion/completions/waldo\"\n    zsh_completion.install \"share/zsh/site-functions/_waldo\"\n" +
		"    fish_completion.install \"share/fish/vendor_completions.d/waldo.fish\"\n  end\n\n" +
		"  test do\n    assert_match version.to_s, shell_output(\"#{bin}/waldo --version\")\n  end\nend\n")
	return os.WriteFile(filepath.Join(r.out, "waldo.rb"), []byte(b.String()), 0o644)
}

// provenance writes an in-toto statement with the predicate of SLSA 1: what was made, from which commit, by which Go.
func (r *release) provenance() error {
	subjects, err := digests(r.out)
	if err != nil {
		return err
	}
	type resource struct {
		Name   string            `json:"name,omitempty"`
		URI    string            `json:"uri,omitempty"`
		Digest map[string]string `json:"digest,omitempty"`
	}
	var made []resource
	for _, s := range subjects {
		made = append(made, resource{Name: s.name, Digest: map[string]string{"sha256": s.sum}})
	}
	source := resource{URI: "git+" + r.url, Digest: map[string]string{"gitCommit": r.commit}}
	return writeJSON(filepath.Join(r.out, "provenance.json"), map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "subject": made, "predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":          r.url + "/make-release/v1",
				"externalParameters": map[string]any{"source": source, "url": r.url, "version": r.version},
				"internalParameters": map[string]any{"go": runtime.Version(), "host": runtime.GOOS + "/" + runtime.GOARCH},
				"resolvedDependencies": []resource{
					source, {URI: "pkg:golang/" + strings.TrimSuffix(nfpm, "/cmd/nfpm@v2.45.2") + "@v2.45.2"},
					{URI: "pkg:golang/" + authorities, Digest: map[string]string{"dirHash1": authoritiesSum}},
				},
			},
			"runDetails": map[string]any{
				"builder": map[string]any{"id": r.url + "/tools/release"},
			},
		},
	})
}

// sums writes the digests of all files, as sha256sum --check reads them.
func (r *release) sums() error {
	all, err := digests(r.out)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "%s  %s\n", f.sum, f.name)
	}
	return os.WriteFile(filepath.Join(r.out, sumsFile), []byte(b.String()), 0o644)
}

const sumsFile = "SHA256SUMS"

// sign signs the digests with an SSH key, in the namespace file. An empty key signs nothing.
func sign(dir, key string) error {
	if key == "" {
		return nil
	}
	return run(dir, nil, "ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", key, filepath.Join(dir, sumsFile))
}

type digested struct{ name, sum string }

// digests returns the SHA-256 of each file of a folder, in the order of their names.
func digests(dir string) (all []digested, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, digested{f.Name(), digest(content)})
	}
	return all, nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// same returns an error that names each file in which two folders differ.
func same(a, b string) error {
	one, err := digests(a)
	if err != nil {
		return err
	}
	two, err := digests(b)
	if err != nil {
		return err
	}
	if len(one) == 0 || len(one) != len(two) {
		return fmt.Errorf("made %d files, and %d the second time", len(one), len(two))
	}
	var errs []error
	for i, f := range one {
		if f != two[i] {
			errs = append(errs, fmt.Errorf("%s differs when it is made again in another folder (%s, %s)", f.name, f.sum, two[i].sum))
		}
	}
	return errors.Join(errs...)
}

func writeJSON(file string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}
