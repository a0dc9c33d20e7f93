package contract

import "testing"

func TestFetched(t *testing.T) {
	for _, row := range []struct {
		why, ref string
		want     bool
	}{
		{"a variable of waldo's environment", "env:GITHUB_TOKEN", true},
		{"a file", "file:/run/keys/token", true},
		{"a variable in a file", "dotenv:/srv/app/.env#TOKEN", true},
		{"a stored secret is looked up by name", "github", false},
		{"no variable", "env:", false},
		{"a relative file depends on where waldo stands", "file:token", false},
		{"which variable is not said", "dotenv:/srv/app/.env", false},
		{"a source that nobody knows", "https://example.com/secret", false},
		{"a token pasted after the wrong word", "ghp_abcdefghijklmnopqrstuvwxyz0123456789", false},
	} {
		if got := fetched(row.ref); got != row.want {
			t.Errorf("%s: fetched(%q) = %v", row.why, row.ref, got)
		}
	}
}
