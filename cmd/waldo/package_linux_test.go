package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"waldo/internal/cli"

	"waldo/internal/app"
	"waldo/internal/executor/serverpackage"
	"waldo/internal/model/contract"
	"waldo/internal/pkginstall"
)

// TestInstallSandbox: code of an unpacked package can read from its registry, and reaches nothing else of this machine.
func TestInstallSandbox(t *testing.T) {
	for _, name := range []string{"npm", "curl"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skip(name + " is not on this machine")
		}
	}
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("WALDO_CANARY", "canary-7d1e")
	files := map[string]string{
		"registry/weather/1.0.0/package.json": `{"name":"weather","version":"1.0.0","bin":"x.js",` +
			`"scripts":{"postinstall":"cat /proc/self/environ >ran"}}`,
		"registry/weather/1.0.0/x.js": "", "waldo.yaml": "version: 1\n", ".npmrc": "//x/:_authToken=canary-7d1e\n",
	}
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ours := &npmRegistry{dir: filepath.Join(dir, "registry")}
	srv, other := httptest.NewServer(ours), &npmRegistry{}
	defer srv.Close()
	elsewhere := httptest.NewServer(other)
	defer elsewhere.Close()
	h, err := withFeatures(&cli.Context{Config: filepath.Join(dir, "waldo.yaml"), State: filepath.Join(dir, "state")}).Open(t.Context(), app.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	s := contract.Server{Name: "weather"}
	in, err := h.Packages.Installer(t.Context(), s, pkginstall.Wanted{})
	if err != nil {
		t.Fatal(err)
	}
	at := func(s *httptest.Server) string { return strings.Replace(s.URL, "127.0.0.1", "localhost", 1) }
	run := func(argv ...string) (string, error) {
		job := pkginstall.Job{
			Argv: argv, Reach: []string{"GET,HEAD " + strings.TrimPrefix(at(srv), "http://")},
			Seed: t.TempDir(), Out: t.TempDir(),
		}
		err := in.Run(t.Context(), job)
		b, _ := os.ReadFile(filepath.Join(job.Out, "said"))
		ran, _ := os.ReadFile(filepath.Join(job.Out, "node_modules/weather/ran"))
		return strings.TrimSpace(string(b)) + string(ran), err
	}
	const ask = "curl -s -m 5 -o /dev/null -w '%%{http_code}' -x http://198.18.0.1:3128 %s%s >said || true"
	for _, row := range []struct{ why, command, want string }{
		{"the control: the registry is read", fmt.Sprintf(ask, "", at(srv)+"/weather"), "200"},
		{"nothing is written to it", fmt.Sprintf(ask, "-d x ", at(srv)+"/weather"), "403"},
		{"another server of this machine", fmt.Sprintf(ask, "", at(elsewhere)+"/weather"), "403"},
		{"another host", fmt.Sprintf(ask, "", "http://evil.example/"), "403"},
		{"past the proxy", "curl -s -m 5 " + srv.URL + " >said || echo refused >said",
			"waldo: egress.http.host: the Host header is not the host that the connection is for"},
		{"this user's files", "cat " + dir + "/.npmrc >said 2>/dev/null || echo refused >said", "refused"},
		{"this user's environment", "env | grep -c canary >said || true", "0"},
	} {
		if got, err := run("/bin/sh", "-c", row.command); err != nil || got != row.want {
			t.Errorf("%s: %q %v", row.why, got, err)
		}
	}
	if ours.asked = slices.Compact(ours.asked); !slices.Equal(ours.asked, []string{http.MethodGet + " /weather"}) ||
		len(other.asked) > 0 {
		t.Errorf("asked: %q, another: %q", ours.asked, other.asked)
	}

	// A package script would run in that sandbox, and does not.
	npm := append(slices.Clone(in.Npm), "install", "weather", "--no-audit", "--no-fund", "--dangerously-allow-all-scripts",
		"--foreground-scripts", "--cache=/workspace/tmp/npm", "--registry="+at(srv))
	if got, err := run(npm...); err != nil || !strings.Contains(got, "HOME=/workspace/tmp") ||
		strings.Contains(got, "canary") {
		t.Errorf("control: %q %v", got, err)
	}
	acceptsQuietly(t, in, srv.URL)
}

// acceptsQuietly accepts the package as `waldo lock` does, and checks that its install script did not run.
func acceptsQuietly(t *testing.T, in *pkginstall.Installer, registry string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(os.Getenv("HOME"), ".npmrc"), []byte("registry="+registry+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	w, _, err := pkginstall.Parse([]string{"npx", "weather"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := in.Accept(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	dir, _, err := in.Open(t.Context(), p, w, serverpackage.At)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules/weather/package.json")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules/weather/ran")); err == nil {
		t.Error("the script of a package ran")
	}
}
