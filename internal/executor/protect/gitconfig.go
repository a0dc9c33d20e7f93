package protect

import (
	"strings"

	"waldo/internal/detect/pattern"
)

// harmlessKeys are those of a new clone or submodule. None names a program or another file.
var harmlessKeys = pattern.Lazy(`^(core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|` +
	`precomposeunicode|symlinks)|extensions\.(objectformat|refstorage|compatobjectformat)|init\.defaultbranch|` +
	`remote\.(url|fetch|pushurl|tagopt|prune)|branch\.(remote|merge|rebase|description)|user\.(name|email)|` +
	`submodule\.(url|active|branch))$`)

var section = pattern.Lazy(`^\[\s*([A-Za-z0-9.-]+)\s*(?:"(?:[^"\\]|\\.)*")?\s*\]\s*(.*)$`)

// harmlessConfig reports whether a configuration of git holds harmless keys alone. What it does not understand is not
// harmless: continued lines, and more than one statement a line.
func harmlessConfig(b []byte) bool {
	at := ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if strings.HasSuffix(line, `\`) {
			return false
		}
		if line[0] == '[' {
			m := section().FindStringSubmatch(line)
			if m == nil || m[2] != "" {
				return false
			}
			at, _, _ = strings.Cut(strings.ToLower(m[1]), ".") // [a.b] is the old form of [a "b"]
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		name := at + "." + strings.ToLower(strings.TrimSpace(key))
		if !harmlessKeys().MatchString(name) {
			return false
		}
		// ext:: and other helpers of transport run programs
		if strings.HasSuffix(name, "url") && strings.Contains(value, "::") {
			return false
		}
	}
	return true
}
