package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestBuilds: every mutant in Go compiles. One that does not would fail its test for no reason of the guard's.
func TestBuilds(t *testing.T) {
	t.Chdir("../..")
	guards, err := read(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := stand(guards); err != nil {
		t.Fatal(err)
	}
	c := newCompiler(t)
	for _, g := range guards {
		if filepath.Ext(g.file) != ".go" {
			continue
		}
		_, at, err := g.locate()
		if err != nil {
			t.Fatal(err)
		}
		src, err := os.ReadFile(g.file)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.check(g.file, slices.Concat(src[:at], []byte(g.to), src[at+len(g.from):])); err != nil {
			t.Errorf("%v: %v", g, err)
		}
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

// A compiler checks packages of the checkout as the Go compiler does. It reads each package once.
type compiler struct {
	imports  types.Importer
	fset     *token.FileSet
	files    map[string][]string             // of each folder: the Go files that this system builds
	hollow   map[string]map[string]*ast.File // of each folder, by name: files without the bodies of functions
	packages map[string]string               // import paths by folder
}

func newCompiler(t *testing.T) *compiler {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles,Module", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	c := &compiler{
		fset: token.NewFileSet(), files: map[string][]string{}, packages: map[string]string{},
		hollow: map[string]map[string]*ast.File{},
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	export := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir, ImportPath, Export string
			GoFiles                 []string
			Module                  *struct{ Main bool }
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		export[p.ImportPath] = p.Export
		if dir, err := filepath.Rel(here, p.Dir); err == nil && p.Module != nil && p.Module.Main {
			c.files[dir], c.packages[dir] = p.GoFiles, p.ImportPath
		}
	}
	c.imports = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(export[path])
	})
	return c
}

// check compiles the package of a file, with another text for that file. It trusts the bodies of functions elsewhere:
// no error in one can come from here, since none of those texts changed.
func (c *compiler) check(file string, text []byte) error {
	dir, name := filepath.Split(file)
	dir = filepath.Clean(dir)
	if !slices.Contains(c.files[dir], name) {
		return fmt.Errorf("%s is not built on this system", file)
	}
	if c.hollow[dir] == nil {
		c.hollow[dir] = map[string]*ast.File{}
		for _, name := range c.files[dir] {
			f, err := parser.ParseFile(c.fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, d := range f.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					f.Body = nil
				}
			}
			c.hollow[dir][name] = f
		}
	}
	f, err := parser.ParseFile(c.fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	files := []*ast.File{f}
	for other, f := range c.hollow[dir] {
		if other != name {
			files = append(files, f)
		}
	}
	var errs []error
	conf := types.Config{Importer: c.imports, Error: func(err error) {
		// elsewhere: imports of bodies that are gone
		if at := c.fset.Position(err.(types.Error).Pos); at.Filename == file {
			errs = append(errs, err)
		}
	}}
	_, _ = conf.Check(c.packages[dir], c.fset, files, nil)
	return errors.Join(errs...)
}
