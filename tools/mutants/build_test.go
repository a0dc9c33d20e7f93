package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAllCompile: every mutant in Go compiles. One that does not says nothing of its test.
func TestAllCompile(t *testing.T) {
	t.Chdir("../..")
	guards, err := read(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := stand(guards); err != nil {
		t.Fatal(err)
	}
	c, err := newCompiler("./...")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range guards {
		if filepath.Ext(g.file) != ".go" {
			continue
		}
		text, err := g.mutant()
		if err == nil {
			err = c.check(g.file, text)
		}
		if err != nil {
			t.Errorf("%v: %v", g, err)
		}
	}
}

// TestBuild: it distinguishes a mutant that does not compile.
func TestBuild(t *testing.T) {
	t.Chdir("../..")
	c, err := newCompiler("./tools/mutants")
	if err != nil {
		t.Fatal(err)
	}
	const file = "tools/mutants/select.go"
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ from, to, err string }{
		{"", "", ""},
		{"if len(guards) == 0", "if guards", "non-boolean condition"},
		{"at := int(number(seed) % uint64(len(guards)))", "at, n := 0, 1", "declared and not used: n"},
		{"strings.", "bytes.", `"strings" imported and not used`},
		{"func git(", "func rotate(", "rotate redeclared"},
	} {
		err := c.check(file, bytes.ReplaceAll(src, []byte(row.from), []byte(row.to)))
		if (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("control: %q for %q: %v, wanted %q", row.to, row.from, err, row.err)
		}
	}
}
