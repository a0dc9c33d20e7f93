package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/testing/repo"
)

// servedE2B runs waldo e2b, which lets the tokens in, and returns its address.
func servedE2B(t testing.TB, capabilities string, tokens map[string]string) (url, dir string) {
	t.Helper()
	return servedAs(t, capabilities, tokens, "e2b")
}

// servedAs runs waldo serve or waldo e2b, which lets the tokens in, and returns its address.
func servedAs(t testing.TB, capabilities string, tokens map[string]string, command string) (url, dir string) {
	t.Helper()
	dir = installed(t, capabilities, tokens)
	return servedFrom(t, dir, command), filepath.Join(dir, "state")
}

// installed returns a folder with the program waldo and a waldo.yaml that lets the tokens in.
func installed(t testing.TB, capabilities string, tokens map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "waldo")); err != nil {
		t.Fatal(err)
	}
	text := "version: 1\ngateway: {auth: {tokens: {"
	for name, token := range tokens {
		text += fmt.Sprintf("%s: %q, ", name, identity.Hash(token))
	}
	text += "}}}\n" + capabilities
	if err := os.WriteFile(filepath.Join(dir, "waldo.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// inFolder is a command of the waldo that is installed in a folder.
func inFolder(t testing.TB, dir string, argv ...string) *exec.Cmd {
	return exec.CommandContext(t.Context(), filepath.Join(dir, "waldo"), append([]string{"--state",
		filepath.Join(dir, "state"), "--config", filepath.Join(dir, "waldo.yaml")}, argv...)...)
}

// servedFrom runs waldo serve or waldo e2b from a folder, and returns its address.
func servedFrom(t testing.TB, dir string, argv ...string) (url string) {
	t.Helper()
	c := inFolder(t, dir, append(argv, "--listen", "127.0.0.1:0")...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	said, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
	})
	r := bufio.NewReader(said)
	for {
		line, err := r.ReadString('\n')
		if _, after, ok := strings.Cut(line, "listening on "); ok {
			go func() { _, _ = io.Copy(os.Stderr, r) }()
			url, _, _ = strings.Cut(strings.TrimSpace(after), " ")
			return strings.TrimSuffix(url, "/mcp")
		}
		if err != nil {
			t.Fatalf("%s%v", line, err)
		}
	}
}

// TestE2BWithTheSDK: E2B's own SDK, unchanged, has what it expects of each operation.
func TestE2BWithTheSDK(t *testing.T) {
	node, modules := repo.Packages(t, "npm-e2b", "@e2b/code-interpreter")
	const key = "waldo_key"
	url, _ := servedE2B(t, "capabilities:\n  exec: {mode: write, approval: none, network: {allow: [packages.example.com, "+
		"other.example.com]}}\n  run_python: {mode: write, approval: none}\n  run_javascript: {mode: write, approval: none}\n",
		map[string]string{"ci": key})
	var out, errs bytes.Buffer
	c := exec.CommandContext(t.Context(), node, "testdata/e2b.mjs", modules, url)
	c.Env = append(os.Environ(), "KEY="+key)
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		t.Errorf("%v\n%s", err, errs.Bytes())
	}
	want, err := os.ReadFile("testdata/e2b.golden")
	if err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != string(want) {
		t.Errorf("%s\n%s", got, errs.Bytes())
	}
}
