package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// An anchor finds the code of a guard. "in: internal/network/egress (*Policy).check" names a package and a
// declaration, so that a guard moves with its function from file to file. "file: NAME" is for other files than Go:
// from must occur there exactly once. Line breaks between its words do not matter.

// locate returns the file of a guard and the one place in it that the guard changes.
func (g guard) locate() (file string, at span, err error) {
	if g.in == "" {
		src, err := os.ReadFile(g.file)
		if err != nil {
			return "", span{}, err
		}
		at, err := once(src, span{0, len(src)}, g.from)
		if err != nil {
			return "", span{}, fmt.Errorf("%w in %s", err, g.file)
		}
		return g.file, at, nil
	}
	dir, name, ok := strings.Cut(g.in, " ")
	if !ok {
		return "", span{}, fmt.Errorf("in: %q names no declaration", g.in)
	}
	decls, err := declarations(dir)
	if err != nil {
		return "", span{}, err
	}
	var errs []error
	var found []declaration
	for _, d := range decls[name] {
		i, err := once(d.src, d.at, g.from)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w in %s of %s", err, name, d.file))
			continue
		}
		found = append(found, d)
		file, at = d.file, i
	}
	switch {
	case len(decls[name]) == 0:
		return "", span{}, fmt.Errorf("%s declares no %s", dir, name)
	case len(found) == 0:
		return "", span{}, errors.Join(errs...)
	case len(found) > 1:
		return "", span{}, fmt.Errorf("%q is in %s of %s and of %s", g.from, name, found[0].file, found[1].file)
	}
	return file, at, nil
}

// A span is a part of a file, in bytes.
type span struct{ start, end int }

// once returns the one place of text within a span of src. Zero places, or two, are an error. White space in text
// matches any white space, and a line may break after a bracket that opens, or before one that closes.
func once(src []byte, in span, text string) (span, error) {
	// A line end or a tab at an end is matched as it is: the code that takes its place has the same.
	core := strings.TrimLeftFunc(text, unicode.IsSpace)
	lead := text[:len(text)-len(core)]
	core = strings.TrimRightFunc(core, unicode.IsSpace)
	trail := text[len(lead)+len(core):]
	var rx strings.Builder
	rx.WriteString(edge(lead))
	space, opened := false, false
	for _, r := range core {
		if unicode.IsSpace(r) {
			space = true
			continue
		}
		switch closes := strings.ContainsRune(")]}", r); {
		case space:
			rx.WriteString(`\s+`)
		case closes && !opened:
			rx.WriteString(`(?:,?\n\s*)?`)
		}
		rx.WriteString(regexp.QuoteMeta(string(r)))
		space, opened = false, strings.ContainsRune("([{", r)
		if opened {
			rx.WriteString(`(?:\n\s*)?`)
		}
	}
	rx.WriteString(edge(trail))
	found := regexp.MustCompile(rx.String()).FindAllIndex(src[in.start:in.end], -1)
	if len(found) != 1 {
		return span{}, fmt.Errorf("%q is found %d times, wanted once: mend the list", text, len(found))
	}
	return span{in.start + found[0][0], in.start + found[0][1]}, nil
}

// edge is the expression for white space at an end of a text.
func edge(space string) string {
	if strings.ContainsAny(space, "\n\t") {
		return regexp.QuoteMeta(space)
	}
	return strings.Repeat(`\s+`, min(len(space), 1))
}

// A declaration is a function, or one name of a var, const or type declaration, with its source.
type declaration struct {
	file string
	src  []byte
	at   span
}

var (
	parsing sync.Mutex
	parsed  = map[string]map[string][]declaration{} // by folder
)

// declarations returns those of a folder by name: "New", "(*Policy).check", "(Rule).String". Tests are left out. A name
// that several systems declare has several.
func declarations(dir string) (map[string][]declaration, error) {
	parsing.Lock()
	defer parsing.Unlock()
	if d := parsed[dir]; d != nil {
		return d, nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	out := map[string][]declaration{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		add := func(name string, n ast.Node) {
			out[name] = append(out[name], declaration{
				file, src, span{fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset},
			})
		}
		for _, d := range f.Decls {
			declare(d, src, fset, add)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no Go files", dir)
	}
	parsed[dir] = out
	return out, nil
}

// declare calls add for each name of a declaration. The spec of a group stands for itself.
func declare(d ast.Decl, src []byte, fset *token.FileSet, add func(string, ast.Node)) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			t := d.Recv.List[0].Type
			name = fmt.Sprintf("(%s).%s", src[fset.Position(t.Pos()).Offset:fset.Position(t.End()).Offset], name)
		}
		add(name, d)
	case *ast.GenDecl:
		for _, s := range d.Specs {
			var n ast.Node = s
			if !d.Lparen.IsValid() {
				n = d
			}
			switch s := s.(type) {
			case *ast.TypeSpec:
				add(s.Name.Name, n)
			case *ast.ValueSpec:
				for _, id := range s.Names {
					add(id.Name, n)
				}
			}
		}
	}
}
