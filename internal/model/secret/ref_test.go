package secret_test

import (
	"strings"
	"testing"

	"waldo/internal/model/secret"
)

// TestPlace: the accepted places, and texts that are refused.
func TestPlace(t *testing.T) {
	rows := []struct {
		ref  secret.Ref
		want secret.Place
		ok   bool
		why  string
	}{
		{"env:TOKEN", secret.Place{Kind: "env", Name: "TOKEN"}, true, "a variable"},
		{"file:/run/keys/token", secret.Place{Kind: "file", Path: "/run/keys/token"}, true, "a file"},
		{"dotenv:/srv/.env#A", secret.Place{Kind: "dotenv", Path: "/srv/.env", Name: "A"}, true, "one variable of a file"},
		{"age:/srv/prod.age", secret.Place{Kind: "age", Path: "/srv/prod.age"}, true, "a sealed file"},
		{"age:/srv/prod.age#A", secret.Place{Kind: "age", Path: "/srv/prod.age", Name: "A"}, true,
			"one variable of a sealed file"},
		{"keyring:github/alice@example.com", secret.Place{Kind: "keyring", Path: "github", Name: "alice@example.com"}, true,
			"an item of the keyring"},
		{"vault:secret/app/prod#password", secret.Place{Kind: "vault", Path: "secret/app/prod", Name: "password"}, true,
			"a field in Vault"},
		{"store:github", secret.Place{Kind: "store", Name: "github"}, true, "waldo's own store"},
		{"github", secret.Place{}, false, "a name is no place"},
		{"env:1A", secret.Place{}, false, "no variable begins with a digit"},
		{"file:token", secret.Place{}, false, "a relative path depends on where waldo stands"},
		{"file:/a/../b", secret.Place{}, false, "a path is what it says"},
		{"dotenv:/srv/.env", secret.Place{}, false, "which variable is not said"},
		{"age:/srv/x#", secret.Place{}, false, "an empty variable"},
		{"keyring:github", secret.Place{}, false, "which account is not said"},
		{"vault:secret/app", secret.Place{}, false, "which field is not said"},
		{"vault:app#f", secret.Place{}, false, "a mount alone holds no secret"},
		{"vault:secret/../sys/raw#f", secret.Place{}, false, "dots would reach another part of Vault"},
		{"vault:secret//app#f", secret.Place{}, false, "an empty part"},
		{"vault:secret/a?list=true#f", secret.Place{}, false, "a query"},
		{"vault:secret/a%2f..#f", secret.Place{}, false, "an escape"},
		{"store:../key", secret.Place{}, false, "a name is no path"},
		{"gopass:x", secret.Place{}, false, "a kind that nobody knows"},
		{"", secret.Place{}, false, "nothing"},
		{secret.Ref("file:/" + strings.Repeat("a", 600)), secret.Place{}, false, "longer than anybody means"},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			if got, ok := r.ref.Place(); ok != r.ok || ok && got != r.want {
				t.Errorf("%s: %+v, %v", r.ref, got, ok)
			}
		})
	}
}

// FuzzPlace states that a place written again is the Ref that it came from, and that no path of it
// leads elsewhere than it says.
func FuzzPlace(f *testing.F) {
	for _, s := range []string{"env:A", "file:/a", "dotenv:/a#B", "age:/a#B", "keyring:a/b", "vault:a/b#c", "store:a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, ok := secret.Ref(s).Place()
		if !ok {
			return
		}
		again := p.Kind + ":" + p.Path
		switch {
		case p.Kind == "keyring":
			again += "/" + p.Name
		case p.Path != "" && p.Name != "":
			again += "#" + p.Name
		case p.Path == "":
			again += p.Name
		}
		if again != s {
			t.Errorf("%q became %q", s, again)
		}
		if strings.Contains("/"+p.Path+"/", "/../") || strings.ContainsAny(s, "\x00\n") {
			t.Errorf("%q is taken for a place", s)
		}
	})
}
