package waldo_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The constructions that docs/terms.md and CONTRIBUTING.md ask to avoid, and how many of them 1,000 words may hold. Plain
// projects of the field have 0.3 to 0.7.
var (
	marks = []*regexp.Regexp{
		regexp.MustCompile(`(?i)(?:^|[.;:,(]\s+|\b(?:and|or|of|for|to|from|by|with|is|in|on|at|than|but)\s+)what\b`),
		regexp.MustCompile(`(?i)\b(?:whoever|whom|nobody|no one else|whatever)\b`),
		regexp.MustCompile(`(?i)\b(?:is|are) (?:told|said|kept|looked at|asked for|held to)\b`),
		regexp.MustCompile(`(?:^|[.]\s+)(?:Of|Whose|Where|Whoever|What) `),
		regexp.MustCompile(`(?i)\b(?:corridor|doorbell|wicket|nursery|errand|twins)\b`),
	}
	mostMarks = map[string]float64{"comments": 0.5, "documents": 5, "texts of the program": 1.5}
)

// TestProse keeps comments, documents and the texts of the program plain.
func TestProse(t *testing.T) {
	words, found := map[string]int{}, map[string]int{}
	var worst []string
	read := func(kind, at, text string) {
		text = strings.Join(strings.Fields(text), " ")
		words[kind] += len(strings.Fields(text))
		for _, m := range marks {
			if n := len(m.FindAllString(text, -1)); n > 0 {
				found[kind] += n
				worst = append(worst, kind+" "+at+": "+text[:min(len(text), 120)])
			}
		}
	}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go"):
			return readGo(path, read)
		case strings.HasSuffix(path, ".md"):
			return readMarkdown(path, read)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for kind, most := range mostMarks {
		if words[kind] < 10_000 {
			t.Errorf("control: only %d words of %s were read", words[kind], kind)
		}
		if got := 1000 * float64(found[kind]) / float64(words[kind]); got > most {
			t.Errorf("%s: %.1f marks in 1,000 words, at most %.1f; see CONTRIBUTING.md", kind, got, most)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(worst, "\n"))
	}
}

// readGo reads the comments of a file, and the strings of more than two words of one that is not a test.
func readGo(path string, read func(kind, at, text string)) error {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, c := range f.Comments {
		read("comments", fset.Position(c.Pos()).String(), c.Text())
	}
	if strings.HasSuffix(path, "_test.go") {
		return nil
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && lit.Value[0] == '"' {
			if s, err := strconv.Unquote(lit.Value); err == nil && len(strings.Fields(s)) > 2 {
				read("texts of the program", fset.Position(lit.Pos()).String(), s)
			}
		}
		return true
	})
	return nil
}

var code = regexp.MustCompile("`[^`]*`")

// readMarkdown reads the paragraphs of a document without its code.
func readMarkdown(path string, read func(kind, at, text string)) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	fence := false
	for i, line := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fence = !fence
			continue
		}
		if !fence && strings.TrimSpace(line) != "" {
			read("documents", path+":"+strconv.Itoa(i+1), strings.Trim(code.ReplaceAllString(line, "x"), " #>*_|-"))
		}
	}
	return nil
}
