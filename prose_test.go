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

// The constructions that docs/terms.md and CONTRIBUTING.md ask to avoid, and how many of them 1,000 words can hold.
// Plain projects of the field have 0.3 to 0.7.
var (
	marks = []*regexp.Regexp{
		regexp.MustCompile(`(?i)(?:^|[.;:,(]\s+|\b(?:and|or|of|for|to|from|by|with|is|in|on|at|than|but)\s+)what\b`),
		regexp.MustCompile(`(?i)\b(?:whoever|whom|nobody|no one else|whatever)\b`),
		regexp.MustCompile(`(?i)\b(?:is|are) (?:told|said|kept|looked at|asked for|held to)\b`),
		regexp.MustCompile(`(?:^|[.]\s+)(?:Of|Whose|Where|Whoever|What) `),
		regexp.MustCompile(`(?i)\b(?:is no [a-z]+|are no [a-z]+s|none is|is none)\b`),
		regexp.MustCompile(`(?i)\b(?:corridor|doorbell|wicket|nursery|errand|twins)\b`),
	}
	mostMarks = map[string]float64{"comments": 0.3, "documents": 0.8, "texts of the program": 1}
	// A document of more than 200 words has its own limit.
	mostInOne = 1.5
)

// TestProse keeps comments, documents and the texts of the program plain.
func TestProse(t *testing.T) {
	words, found := map[string]int{}, map[string]int{}
	var worst []string
	read := func(kind, at, text string) {
		text = strings.Join(strings.Fields(text), " ")
		page, _, _ := strings.Cut(at, ":")
		words[kind] += len(strings.Fields(text))
		words[page] += len(strings.Fields(text))
		for _, m := range marks {
			if n := len(m.FindAllString(text, -1)); n > 0 {
				found[kind] += n
				found[page] += n
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
	for page, n := range found {
		got := 1000 * float64(n) / float64(words[page])
		if strings.HasSuffix(page, ".md") && words[page] > 200 && got > mostInOne {
			t.Errorf("%s: %.1f marks in 1,000 words, at most %.1f", page, got, mostInOne)
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

var (
	code  = regexp.MustCompile("`[^`]*`")
	link  = regexp.MustCompile(`\[([^]]*)\]\(([^)]*)\)`)
	first = regexp.MustCompile(`^\s*([-*|#>]|\d+\.)`) // of a list item, a row, a heading, a quotation
)

// readMarkdown reads the paragraphs of a document without its code and the addresses of its links.
func readMarkdown(path string, read func(kind, at, text string)) error {
	var block []string
	start := 0
	end := func() {
		if len(block) > 0 {
			read("documents", path+":"+strconv.Itoa(start), strings.Join(block, " "))
		}
		block = nil
	}
	err := lines(path, func(n int, line string) {
		if strings.TrimSpace(line) == "" || first.MatchString(line) {
			end()
		}
		text := strings.Trim(link.ReplaceAllString(code.ReplaceAllString(line, "x"), "$1"), " #>*_-")
		if text == "" {
			return
		}
		if len(block) == 0 {
			start = n
		}
		block = append(block, text)
	})
	end()
	return err
}

// lines calls each for the lines of a document outside of its code blocks; a code block counts as an empty line.
func lines(path string, each func(n int, line string)) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	fence := false
	for i, line := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fence, line = !fence, ""
		}
		if fence {
			line = ""
		}
		each(i+1, line)
	}
	return nil
}

// TestLinks: each link within the repository leads to a file, and to a heading of it if it names one.
func TestLinks(t *testing.T) {
	headings, checked := map[string]map[string]bool{}, 0
	of := func(path string) map[string]bool {
		if headings[path] == nil {
			headings[path] = map[string]bool{}
			_ = lines(path, func(_ int, line string) {
				if strings.HasPrefix(line, "#") {
					headings[path][anchor(line)] = true
				}
			})
		}
		return headings[path]
	}
	err := texts(func(page string) error {
		if !strings.HasSuffix(page, ".md") {
			return nil
		}
		return lines(page, func(n int, line string) {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				to, heading, _ := strings.Cut(m[2], "#")
				if strings.Contains(to, ":") {
					continue // an address
				}
				checked++
				if to = filepath.Join(filepath.Dir(page), to); strings.HasPrefix(m[2], "#") {
					to = page
				}
				if _, err := os.Stat(to); err != nil {
					t.Errorf("%s:%d: %s: no such file", page, n, m[2])
				} else if heading != "" && strings.HasSuffix(to, ".md") && !of(to)[heading] {
					t.Errorf("%s:%d: %s: %s has no such heading", page, n, m[2], to)
				}
			}
		})
	})
	if err != nil || checked < 100 {
		t.Errorf("control: %d links were checked: %v", checked, err)
	}
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// anchor returns the address that GitHub gives to a heading.
func anchor(heading string) string {
	heading = strings.ToLower(strings.TrimSpace(strings.TrimLeft(link.ReplaceAllString(heading, "$1"), "#")))
	return strings.ReplaceAll(notInAnchors.ReplaceAllString(heading, ""), " ", "-")
}
