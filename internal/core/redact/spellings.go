package redact

import (
	"encoding/json"
	"html"
	"net/url"
	"strings"
)

// Forms returns the spellings of a secret in hosts' answers: plain, base64 at each alignment, hexadecimal, and
// escaped for URLs, JSON and HTML.
func Forms(s string) []string {
	out := append(forms(s), url.QueryEscape(s), url.PathEscape(s), html.EscapeString(s))
	if b, err := json.Marshal(s); err == nil {
		quoted := string(b[1 : len(b)-1])
		out = append(out, quoted, strings.ReplaceAll(quoted, "/", `\/`))
	}
	return out
}
