package secrets

import (
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/core/redact"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/storage/secretstore"
)

// No name in a configuration reaches the login of a server: its refresh token and key stay in waldo.
func TestLoginsAreNotSecretsOfAConfiguration(t *testing.T) {
	state := t.TempDir()
	store := secretstore.Open(filepath.Join(state, "secrets"))
	for _, name := range []string{"plain", "oauth-s"} {
		if err := store.Set(name, secret.NewValue("a-value-0123456789")); err != nil {
			t.Fatal(err)
		}
	}
	known := &redact.Registry{}
	cfg := &contract.Config{}
	k := New(state, cfg, known, nil)
	for ref, want := range map[secret.Ref]string{
		"plain": "", "store:plain": "", "oauth-s": "the login of a server", "store:oauth-s": "the login of a server",
	} {
		v, err := k.Get(ref)
		if want == "" && (err != nil || v.Reveal() == "") || want != "" &&
			(err == nil || v.Reveal() != "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if named := Named(state, cfg); !named["plain"] || named["oauth-s"] {
		t.Errorf("%v", named)
	}
}
