package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestList: every guard is found exactly once, and its package has a test of that name. make test thus finds moved
// code at once.
func TestList(t *testing.T) {
	t.Chdir("../..")
	guards, err := read(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := stand(guards); err != nil {
		t.Error(err)
	}
	tests := map[string][]string{}
	for _, g := range guards {
		if tests[g.pkg] == nil {
			tests[g.pkg] = names(t, g.pkg)
		}
		if !named(g.run, tests[g.pkg]) {
			t.Errorf("%s:%d: %s: %s has no test %s", list, g.line, g.name, g.pkg, g.run)
		}
	}
	if named("TestNobody", tests["./internal/sandbox/initproc"]) ||
		!named("TestSealed$/part", tests["./internal/sandbox/initproc"]) {
		t.Error("control: names are not told apart")
	}
}

// named reports whether go test -run would find one of the tests; parts of them it makes by itself.
func named(run string, tests []string) bool {
	top, _, _ := strings.Cut(run, "/")
	re := regexp.MustCompile(top)
	for _, name := range tests {
		if re.MatchString(name) {
			return true
		}
	}
	return false
}

var runnable = regexp.MustCompile("^(Test|Fuzz|Example)")

// names are the tests, fuzz targets and examples of a package, or of all below it.
func names(t *testing.T, pkg string) []string {
	t.Helper()
	dir, below := strings.CutSuffix(pkg, "/...")
	var out []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != dir && !below:
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, bytes.NewReader(text), parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && runnable.MatchString(f.Name.Name) {
				out = append(out, f.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
