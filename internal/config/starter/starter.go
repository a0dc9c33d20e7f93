// Package starter holds the configurations that waldo init writes.
package starter

import (
	"embed"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"waldo/internal/detect/unseen"
	"waldo/internal/model/contract"
)

//go:embed *.yaml
var texts embed.FS

// Profiles returns the names that Like takes.
func Profiles() []string {
	return []string{"github-readonly", "data-analysis", "coding-agent", "prod-ops"}
}

// Init returns the text that `waldo init` writes as waldo.yaml in folder: tight, commented, and
// free of warnings. Beside it belongs Schema as waldo.schema.json, for editors.
func Init(folder string) []byte { return text("waldo", folder) }

// Like returns the text of a profile for a folder; false: unknown.
func Like(profile, folder string) ([]byte, bool) {
	for _, p := range Profiles() {
		if p == profile {
			return text(p, folder), true
		}
	}
	return nil, false
}

// Folders returns the folders that the contracts of a profile name, relative to the file.
func Folders(profile string) []string {
	if profile == "data-analysis" {
		return []string{"data", "reports"}
	}
	return nil
}

func text(file, folder string) []byte {
	b, err := texts.ReadFile(file + ".yaml")
	if err != nil {
		panic("starter: " + err.Error())
	}
	return Fill(string(b), folder)
}

// Fill returns a text with the name of a folder in place of FOLDER, and Rules at its end.
func Fill(text, folder string) []byte {
	name := strings.Map(func(r rune) rune {
		if unseen.InFile(r) || r < ' ' || r == utf8.RuneError {
			return '_'
		}
		return r
	}, filepath.Base(folder))
	return append([]byte(strings.Replace(text, "FOLDER", contract.Cut(name, 60), 1)), Rules()...)
}

// Rules returns the rules for all capabilities that every configuration begins with: top-level text of waldo.yaml.
func Rules() []byte {
	b, err := texts.ReadFile("rules.yaml")
	if err != nil {
		panic("starter: " + err.Error())
	}
	return b
}
