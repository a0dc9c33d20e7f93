package contract

import (
	"strings"

	"waldo/internal/detect"
)

// LooksSecret detects a token pasted in place of its name: a vendor's token form, a token's suffix, or a run of at
// least 20 characters with a digit. Spaces, the punctuation of lists, and in a path or URL slashes end a run. A run
// with '_', '-' or '.' is words. A configuration refuses such a text where a secret must not stand.
func LooksSecret(s string) bool {
	if detect.Secret(s) || detect.Begins(s) {
		return true
	}
	ends := " \t\n,;:=@"
	if strings.HasPrefix(s, "/") || strings.HasPrefix(s, ".") || strings.HasPrefix(s, "~") || strings.Contains(s, "://") {
		ends += "/"
	}
	for run := range strings.FieldsFuncSeq(s, func(r rune) bool { return strings.ContainsRune(ends, r) }) {
		if len(run) >= 20 && strings.ContainsAny(run, "0123456789") && !strings.ContainsAny(run, "_-.") {
			return true
		}
	}
	return false
}
