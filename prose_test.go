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
	"unicode/utf8"
)

// The constructions that docs/terms.md and CONTRIBUTING.md ask to avoid, and how many of them 1,000 words may hold.
// Plain projects of the field have 0.3 to 0.7.
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
	err := texts(func(path string) error {
		if strings.HasSuffix(path, ".go") {
			return readGo(path, read)
		}
		return readMarkdown(path, read)
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

// The width that lines of Go and Markdown keep to, and the part of them that may be longer: programs of another
// language in a test, expressions of a pattern, a key in base64.
const (
	mostColumns = 120
	mostWider   = 0.005
)

// TestWidth keeps lines short enough to be read side by side. A row of a Markdown table cannot be broken.
func TestWidth(t *testing.T) {
	lines, wider := 0, map[string]int{}
	err := texts(func(path string) error {
		b, err := os.ReadFile(path)
		for line := range strings.Lines(string(b)) {
			lines++
			row := strings.HasSuffix(path, ".md") && strings.HasPrefix(strings.TrimSpace(line), "|")
			if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > mostColumns && !row {
				wider[path]++
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if lines < 100_000 {
		t.Errorf("control: only %d lines were read", lines)
	}
	all := 0
	for _, n := range wider {
		all += n
	}
	if float64(all) > mostWider*float64(lines) {
		t.Errorf("%d of %d lines have more than %d columns: %v", all, lines, mostColumns, wider)
	}
}

// texts calls each for every Go and Markdown file of the repository.
func texts(each func(path string) error) error {
	return filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." &&
			(strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go"), strings.HasSuffix(path, ".md"):
			return each(path)
		}
		return nil
	})
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
