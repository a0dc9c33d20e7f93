package sandboxflags

import (
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/cli/exitcode"
	"waldo/internal/model/call"
)

// maxScript is the size limit of a script, in bytes.
const maxScript = 1 << 20

// others are endings of languages that waldo run has not. Every other unknown ending is Python, as in mktemp's names.
var others = []string{".c", ".cc", ".cpp", ".go", ".ipynb", ".java",
	".jsx", ".lua", ".php", ".pl", ".ps1", ".r", ".R", ".rb", ".rs", ".tsx"}

// Language returns the capability that runs a language, and the name of its code argument.
func Language(lang, name string) (call.Capability, string, error) {
	if lang == "" {
		end := filepath.Ext(name)
		if slices.Contains(others, end) {
			return "", "", exitcode.Mistake("--lang python, javascript, typescript or shell; waldo exec runs any other program",
				"the ending %s names no language that waldo run knows", end)
		}
		lang = map[string]string{".js": "javascript", ".mjs": "javascript", ".cjs": "javascript",
			".ts": "typescript", ".mts": "typescript", ".sh": "shell", ".bash": "shell"}[end]
		if lang == "" {
			lang = "python"
		}
	}
	switch strings.ToLower(lang) {
	case "python", "py", "python3":
		return "run_python", "code", nil
	case "javascript", "js", "node":
		return "run_javascript", "code", nil
	case "typescript", "ts":
		return "run_typescript", "code", nil
	case "shell", "sh", "bash":
		return "run_shell", "command", nil
	}
	return "", "", exitcode.Mistake("python, javascript, typescript or shell", "unknown language %q", lang)
}
