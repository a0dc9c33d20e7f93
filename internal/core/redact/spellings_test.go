package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// FuzzForms: for any secret, each usual encoding of a text that holds it contains one of its forms.
func FuzzForms(f *testing.F) {
	for _, s := range []string{"s3cr3t/with+odd=\"letters\"", "ghp_0123456789abcdef", "<&>'ü"} {
		f.Add("me:", s)
	}
	f.Fuzz(func(t *testing.T, before, s string) {
		if len(s) < minSecret || strings.ToValidUTF8(s, "") != s || strings.ToValidUTF8(before, "") != before {
			return
		}
		all := before + s + "end"
		j, _ := json.Marshal(all)
		for name, text := range map[string]string{"as it is": all, "base64": base64.StdEncoding.EncodeToString([]byte(all)),
			"base64url": base64.RawURLEncoding.EncodeToString([]byte(all)),
			"hex":       hex.EncodeToString([]byte(all)), "query": url.QueryEscape(all), "path": url.PathEscape(all),
			"json": string(j)} {
			if !slices.ContainsFunc(Forms(s), func(f string) bool { return strings.Contains(text, f) }) {
				t.Errorf("%s of %q: no form of %q is in it", name, all, s)
			}
		}
	})
}
