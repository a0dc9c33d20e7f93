package waldo_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest   = regexp.MustCompile("`(?:[a-z]+\\.)?((?:Test|Fuzz)[A-Za-z0-9_]+)(?:/[a-z]+)?`")
	namedScript = regexp.MustCompile("testscripts?\\s((?:`[a-z-]+`(?:,\\s|\\sand\\s)?)+)")
	quoted      = regexp.MustCompile("`([a-z-]+)`")
)

// TestSecurityNamesTests: every test and testscript that SECURITY.md, docs/security/threats.md and its reviews name as a
// proof exists.
func TestSecurityNamesTests(t *testing.T) {
	out, err := exec.Command("git", "grep", "-hoE", `^func (Test|Fuzz)[A-Za-z0-9_]+\(`, "--", "*_test.go").Output()
	if err != nil {
		t.Skipf("no git here: %v", err)
	}
	for path, most := range map[string]int{"SECURITY.md": 60, "docs/security/threats.md": 120, "docs/security/reviews.md": 30} {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		named := 0
		for _, m := range namedTest.FindAllStringSubmatch(string(page), -1) {
			if named++; !strings.Contains(string(out), "func "+m[1]+"(") {
				t.Errorf("%s names %s, and no test has that name", path, m[1])
			}
		}
		for _, m := range namedScript.FindAllStringSubmatch(string(page), -1) {
			for _, name := range quoted.FindAllStringSubmatch(m[1], -1) {
				named++
				if found, _ := filepath.Glob("cmd/waldo/testdata/script/" + name[1] + ".txtar"); len(found) == 0 {
					t.Errorf("%s names the testscript %s, which is not there", path, name[1])
				}
			}
		}
		if named < most {
			t.Errorf("control: only %d names were found in %s", named, path)
		}
	}
}

// TestThreatTable: each row of the table of SECURITY.md has five short cells, the first with a link to its section of threats.md.
func TestThreatTable(t *testing.T) {
	page, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		for _, cell := range cells {
			if n := len(strings.Fields(cell)); n > 25 {
				t.Errorf("a cell of %d words, 25 at most: %s", n, cell)
			}
		}
		if rows > 2 && !strings.Contains(cells[0], "](docs/security/threats.md#") {
			t.Errorf("no link to its section: %s", line)
		}
		if len(cells) != 5 {
			t.Errorf("%d cells, not 5: %s", len(cells), line)
		}
	}
	if rows < 35 {
		t.Errorf("control: only %d rows were found", rows)
	}
}

// TestShortPages: the pages that a reader must be able to read whole have at most 2,500 words.
func TestShortPages(t *testing.T) {
	for _, path := range []string{"SECURITY.md", "ROUGH_EDGES.md"} {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(strings.Fields(string(page))); n > 2500 {
			t.Errorf("%s has %d words, 2,500 at most", path, n)
		}
	}
}
