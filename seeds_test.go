package waldo_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSeeds: each row of docs/seeds.md names tests, and each test is there.
func TestSeeds(t *testing.T) {
	page, err := os.ReadFile("docs/seeds.md")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, top := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if strings.HasSuffix(path, ".txtar") {
				have[d.Name()] = true
			}
			if strings.HasSuffix(path, "_test.go") {
				b, err := os.ReadFile(path)
				for _, m := range function.FindAllStringSubmatch(string(b), -1) {
					have[m[1]] = true
				}
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	rows := map[string]string{}
	named := regexp.MustCompile("`(Test\\w+|[\\w-]+\\.txtar)`")
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			continue
		}
		row := strings.TrimSpace(cells[1])
		rows[row] = cells[3]
		for _, m := range named.FindAllStringSubmatch(cells[3], -1) {
			if !have[m[1]] {
				t.Errorf("%s: %s is not in the tree", row, m[1])
			}
		}
	}
	for section, n := range map[string]int{"A": 11, "B": 7, "C": 6, "D": 4, "E": 10} {
		for i := range n {
			if row := fmt.Sprint(section, i+1); !named.MatchString(rows[row]) {
				t.Errorf("%s names no test", row)
			}
		}
	}
}
