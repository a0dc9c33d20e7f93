// Package starter holds the configurations that waldo init writes.
package starter

import (
	_ "embed"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"waldo/internal/config/strictyaml"
	"waldo/internal/model/contract"
)

// Init returns the text that `waldo init` writes as waldo.yaml in folder: tight, commented, and
// free of warnings. Beside it belongs Schema as waldo.schema.json, for editors.
func Init(folder string) []byte {
	name := strings.Map(func(r rune) rune {
		if strictyaml.Hidden(r) || r < ' ' || r == utf8.RuneError {
			return '_'
		}
		return r
	}, filepath.Base(folder))
	return []byte(strings.Replace(usual, "FOLDER", contract.Cut(name, 60), 1))
}

//go:embed waldo.yaml
var usual string
