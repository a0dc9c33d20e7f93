package protect

import (
	"strings"

	"waldo/internal/detect/pattern"
)

// harmlessKeys are those of a new clone or submodule, and of a .gitmodules. None names a program, and core.worktree alone
// another folder: harmlessConfig returns it.
var harmlessKeys = pattern.Lazy(`^(core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|` +
	`precomposeunicode|symlinks)|extensions\.(objectformat|refstorage|compatobjectformat)|init\.defaultbranch|` +
	`remote\.(url|fetch|pushurl|tagopt|prune)|branch\.(remote|merge|rebase|description)|user\.(name|email)|` +
	`submodule\.(url|active|branch|path|shallow|ignore)|core\.worktree)$`)

var section = pattern.Lazy(`^\[\s*([A-Za-z0-9.-]+)\s*(?:"(?:[^"\\]|\\.)*")?\s*\]\s*(.*)$`)

// harmlessConfig reports whether a configuration of git holds harmless keys alone, and which folder it names as its
// working tree. What it does not understand is not harmless: continued lines, more than one statement a line, and quotes
// in an address or a path.
func harmlessConfig(b []byte) (worktree string, ok bool) {
	at := ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if strings.HasSuffix(line, `\`) {
			return "", false
		}
		if line[0] == '[' {
			m := section().FindStringSubmatch(line)
			if m == nil || m[2] != "" {
				return "", false
			}
			at, _, _ = strings.Cut(strings.ToLower(m[1]), ".") // [a.b] is the old form of [a "b"]
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		name := at + "." + strings.ToLower(strings.TrimSpace(key))
		if !harmlessKeys().MatchString(name) {
			return "", false
		}
		value = strings.TrimSpace(value)
		switch part := name[strings.Index(name, ".")+1:]; part {
		case "url", "pushurl", "remote", "path", "worktree":
			// ext:: and other helpers of transport run programs; what begins with - is an option to some
			if strings.Contains(value, "::") || strings.ContainsAny(value, "\"\\") || strings.HasPrefix(value, "-") {
				return "", false
			}
			if part == "worktree" {
				worktree = value
			}
		}
	}
	return worktree, true
}
