package waldo_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

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

var link = regexp.MustCompile(`\[([^]]*)\]\(([^)]*)\)`)

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
