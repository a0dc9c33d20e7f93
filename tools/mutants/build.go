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
)

// mutant returns the text of the guard's file with the guard switched off.
func (g guard) mutant() ([]byte, error) {
	_, at, err := g.locate()
	if err != nil {
		return nil, err
	}
	src, err := os.ReadFile(g.file)
	if err != nil {
		return nil, err
	}
	return slices.Concat(src[:at.start], []byte(g.to), src[at.end:]), nil
}

// A compiler checks packages of the checkout as the Go compiler does. It reads each package once.
type compiler struct {
	imports  types.Importer
	fset     *token.FileSet
	files    map[string][]string             // of each folder: the Go files that this system builds
	hollow   map[string]map[string]*ast.File // of each folder, by name: files without the bodies of functions
	packages map[string]string               // import paths by folder
}

// newCompiler returns one for the packages of a pattern.
func newCompiler(pattern string) (*compiler, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles,Module", pattern)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	c := &compiler{
		fset: token.NewFileSet(), files: map[string][]string{}, packages: map[string]string{},
		hollow: map[string]map[string]*ast.File{},
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
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
			return nil, err
		}
		export[p.ImportPath] = p.Export
		if dir, err := filepath.Rel(here, p.Dir); err == nil && p.Module != nil && p.Module.Main {
			c.files[dir], c.packages[dir] = p.GoFiles, p.ImportPath
		}
	}
	c.imports = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(export[path])
	})
	return c, nil
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
