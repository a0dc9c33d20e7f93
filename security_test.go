package waldo_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityNamesTests: every test and testscript that SECURITY.md names as a proof exists.
func TestSecurityNamesTests(t *testing.T) {
	page, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("git", "grep", "-hoE", `^func (Test|Fuzz)[A-Za-z0-9_]+\(`, "--", "*_test.go").Output()
	if err != nil {
		t.Skipf("no git here: %v", err)
	}
	named := 0
	for _, m := range regexp.MustCompile("`(?:[a-z]+\\.)?((?:Test|Fuzz)[A-Za-z0-9_]+)(?:/[a-z]+)?`").FindAllStringSubmatch(string(page), -1) {
		if named++; !strings.Contains(string(out), "func "+m[1]+"(") {
			t.Errorf("SECURITY.md names %s, and no test has that name", m[1])
		}
	}
	for _, m := range regexp.MustCompile("testscripts? ((?:`[a-z-]+`(?:, | and )?)+)").FindAllStringSubmatch(string(page),
		-1) {
		for _, name := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(m[1], -1) {
			named++
			if found, _ := filepath.Glob("cmd/waldo/testdata/script/" + name[1] + ".txtar"); len(found) == 0 {
				t.Errorf("SECURITY.md names the testscript %s, which is not there", name[1])
			}
		}
	}
	if named < 60 {
		t.Errorf("only %d names were found in SECURITY.md", named)
	}
}
