package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"waldo/internal/config"
	"waldo/internal/testing/repo"
)

// fragments are shown blocks that are no configuration, by their first line.
var fragments = map[string]string{
	`network: {allow: [api.example.com, "POST api.example.com/v1/search"]}`: "a key of a contract",
}

// topKey is the first line of a configuration.
var topKey = regexp.MustCompile(`^(version|environment|servers|secrets|capabilities|internal|addresses|approval|agent|` +
	`webhooks|sessions|sandboxes|gateway|redaction|log|store|tenants|workers):(\s|$)`)

// shownBlocks returns the YAML of a document: fenced blocks, and indented ones that begin with a key of the top.
func shownBlocks(text string) (blocks []string) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		indent := lines[i][:len(lines[i])-len(strings.TrimLeft(lines[i], " "))]
		fenced := strings.TrimSpace(lines[i]) == "```yaml"
		if fenced {
			i++
		} else if len(indent) < 4 || !topKey.MatchString(lines[i][len(indent):]) {
			continue
		}
		var block strings.Builder
		for ; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
			if !fenced && lines[i] != "" && !strings.HasPrefix(lines[i], indent) {
				break
			}
			block.WriteString(strings.TrimPrefix(lines[i], indent) + "\n")
		}
		blocks = append(blocks, block.String())
	}
	return blocks
}

// A reader can paste each configuration that the documents show.
func TestDocumentsCanBePasted(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repo.Root(t), "docs", "*.md"))
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	found, excused := 0, map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range shownBlocks(string(text)) {
			found++
			first, _, _ := strings.Cut(block, "\n")
			cfg, problems := config.Parse("waldo.yaml", []byte(block))
			if err = nil; len(problems) == 0 {
				_, err = New(cfg, everything)
			}
			wrong := len(problems) > 0 || err != nil
			if fragments[first] != "" {
				excused[first] = wrong
			} else if wrong {
				t.Errorf("%s: %v %v\n%s", filepath.Base(file), problems, err, block)
			}
		}
	}
	if found < 25 {
		t.Errorf("only %d blocks were found", found)
	}
	for first := range fragments {
		if !excused[first] {
			t.Errorf("needlessly excused: %s", first)
		}
	}
	// A control: a block that an editor has wrapped is found, and is wrong.
	wrapped := shownBlocks("Text:\n\n    secrets:\n      a: {from: \"env:A\"}} capabilities: b:\n\nText.\n")
	if len(wrapped) != 1 {
		t.Fatalf("control: %q", wrapped)
	}
	if _, problems := config.Parse("waldo.yaml", []byte(wrapped[0])); len(problems) == 0 {
		t.Error("control: a wrapped block passes")
	}
}
