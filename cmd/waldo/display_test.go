package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// printing are the folders whose code prints.
var printing = []string{".", "demo", "../../internal/cli", "../../internal/cli/records", "../../internal/cli/exitcode",
	"../../internal/cli/sandboxflags", "../../internal/feature/gen", "../../internal/feature/webhook", "../../internal/frontend/terminal"}

// TestEveryTextIsEscaped checks that the commands print with package display only. It lists the texts that display
// accepts unescaped, with reasons.
func TestEveryTextIsEscaped(t *testing.T) {
	ready := map[string]string{
		"doctor.go":       "display.Lines escapes the hint",
		"lockshow.go":     "display.Lines escapes the text of a definition",
		"command_list.go": "display.Lines escapes the body of a webhook",
		"watch.go":        "JSON, and Question.Show, which escapes each part",
		"table.go":        "cells that display.Line has escaped, with spaces between them",
		"approve.go":      "Question.Show escapes each part",
		"result.go":       "a tool's own words, cleaned, and its JSON",
		"call.go":         "a tool's own words, cleaned, and its JSON",
		"check.go":        "Problem.Render escapes each part",
		"story.go":        "the demo's own script, and texts that were escaped before",
		"commands.go":     "hints that were escaped before",
		"paint.go":        "waldo's own escapes",
		"question.go":     "Question.Show and display.Fit, which escape each part",
		"record.go":       "JSON",
		"run.go":          "Report and artifacts escape each part",
	}
	var files []string
	for _, dir := range printing {
		some, err := filepath.Glob(dir + "/*.go")
		if err != nil || len(some) == 0 {
			t.Fatal(err, dir)
		}
		files = append(files, some...)
	}
	printed := 0
	for _, path := range files {
		name := filepath.Base(path)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			s, ok := c.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			what := s.Sel.Name
			if x, ok := s.X.(*ast.Ident); ok {
				what = x.Name + "." + what
			}
			switch {
			case strings.HasPrefix(what, "fmt.Fprint"), strings.HasPrefix(what, "fmt.Print"), what == "os.Stdout.Write":
				t.Errorf("%s prints with %s, which escapes nothing", name, what)
			case what == "display.Fprintf":
				printed++
			case what == "display.Text" && ready[name] == "":
				t.Errorf("%s says that a text is ready, and is not listed here", name)
			}
			return true
		})
	}
	if printed < 80 {
		t.Errorf("control: only %d texts are printed", printed)
	}
}
