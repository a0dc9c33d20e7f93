package contract

import (
	"strings"

	"waldo/internal/detect"
)

// LooksSecret detects a token pasted in place of its name: a vendor's token form, a token's suffix, or a long run of
// letters mixed with digits. A configuration refuses such a text where a secret must not stand.
func LooksSecret(s string) bool {
	return detect.Secret(s) || detect.Begins(s) ||
		len(s) >= 20 && strings.ContainsAny(s, "0123456789") && !strings.ContainsAny(s, "_-.")
}
