package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"waldo/internal/cli"

	"waldo/internal/cli/manual"
)

// Every command has a man page with its flags and examples, which a formatter takes without a warning.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	var out, errw bytes.Buffer
	if code := run([]string{"man", dir}, strings.NewReader(""), &out, &errw); code != 0 {
		t.Fatalf("exit code %d: %s", code, errw.String())
	}
	pages, _ := filepath.Glob(filepath.Join(dir, "*.1"))
	for _, c := range newRoot(withFeatures(&cli.Context{})).Commands() {
		if !c.Hidden && c.Name() != "help" && !hasFile(pages, manual.Name(c)+".1") {
			t.Errorf("waldo %s has no page", c.Name())
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "waldo-run.1"))
	for _, want := range []string{".TH \"WALDO\\-RUN\" 1", ".B \\-\\-allow\\-host HOST", ".SH EXAMPLES", ".BR waldo (1)"} {
		if err != nil || !strings.Contains(string(page), want) {
			t.Errorf("waldo-run.1 lacks %q: %v", want, err)
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		return // the pages were written; judging them needs the formatter
	}
	for _, p := range pages {
		if said, err := exec.Command(groff, "-ww", "-man", "-Tutf8", "-rLL=200n", "-z", p).CombinedOutput(); err != nil ||
			len(said) > 0 {
			t.Errorf("%s: %v %s", p, err, said)
		}
	}
}

func hasFile(paths []string, name string) bool {
	for _, p := range paths {
		if filepath.Base(p) == name {
			return true
		}
	}
	return false
}
