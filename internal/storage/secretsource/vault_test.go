package secretsource

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"waldo/internal/model/secret"
)

// fakeVault answers as Vault 1.15 does: the shapes are those of its HTTP API documentation for
// sys/internal/ui/mounts, KV version 1 and 2, and AppRole.
type fakeVault struct {
	*httptest.Server
	logins atomic.Int32
	token  atomic.Pointer[string] // that is accepted
	field  atomic.Pointer[string]
	away   *httptest.Server // where a redirect leads
	caught atomic.Int32     // requests there
}

func newVault(t *testing.T) *fakeVault {
	t.Helper()
	f := &fakeVault{}
	good, field := "hvs.root", canary
	f.token.Store(&good)
	f.field.Store(&field)
	f.Server = httptest.NewServer(f)
	f.away = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { f.caught.Add(1) }))
	t.Cleanup(f.Close)
	t.Cleanup(f.away.Close)
	return f
}

func (f *fakeVault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	say := func(status int, body any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	wrapped := func(lease int, data any) map[string]any {
		return map[string]any{
			"request_id": "b0d0", "lease_id": "", "renewable": false, "lease_duration": lease, "data": data, "wrap_info": nil,
			"warnings": nil, "auth": nil, "mount_type": "kv",
		}
	}
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	if path == "auth/approle/login" && r.Method == http.MethodPost {
		var in struct {
			Role   string `json:"role_id"`
			Secret string `json:"secret_id"`
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		if in.Role != "role" || in.Secret != "sid" {
			say(400, map[string]any{"errors": []string{"invalid role or secret ID"}})
			return
		}
		f.logins.Add(1)
		token := "hvs.login" + string(rune('0'+f.logins.Load()))
		f.token.Store(&token)
		out := wrapped(0, nil)
		out["auth"] = map[string]any{
			"client_token": token, "accessor": "a", "policies": []string{"default"}, "lease_duration": 1200, "renewable": true,
		}
		say(200, out)
		return
	}
	if r.Header.Get("X-Vault-Token") != *f.token.Load() || r.Header.Get("X-Vault-Request") != "true" {
		say(403, map[string]any{"errors": []string{"permission denied"}})
		return
	}
	mounted := func(path, kind, version string) map[string]any {
		return wrapped(0, map[string]any{
			"path": path, "type": kind, "accessor": "kv_1", "config": map[string]any{},
			"options": map[string]any{"version": version},
		})
	}
	switch path {
	case "sys/internal/ui/mounts/secret/app", "sys/internal/ui/mounts/secret/gone",
		"sys/internal/ui/mounts/secret/deleted", "sys/internal/ui/mounts/secret/away":
		say(200, mounted("secret/", "kv", "2"))
	case "sys/internal/ui/mounts/old/kv/app":
		say(200, mounted("old/kv/", "kv", "1"))
	case "sys/internal/ui/mounts/transit/keys":
		say(200, mounted("transit/", "transit", ""))
	case "secret/data/app":
		say(200, wrapped(0, map[string]any{"data": map[string]any{"password": *f.field.Load(), "port": 5432, "empty": ""},
			"metadata": map[string]any{
				"created_time": "2026-11-01T00:00:00Z", "deletion_time": "", "destroyed": false, "version": 3,
			}}))
	case "secret/data/deleted":
		say(404, wrapped(0, map[string]any{
			"data": nil, "metadata": map[string]any{"deletion_time": "2026-11-02T00:00:00Z", "destroyed": false, "version": 1},
		}))
	case "secret/data/away":
		http.Redirect(w, r, f.away.URL, http.StatusTemporaryRedirect)
	case "old/kv/app":
		say(200, wrapped(60, map[string]any{"password": *f.field.Load(), "ttl": "60s"}))
	case "sys/internal/ui/mounts/closed/app":
		say(403,
			map[string]any{"errors": []string{"preflight capability check returned 403, please ensure client's policies grant " +
				"access to path \"closed/app/\""}})
	default:
		say(404, map[string]any{"errors": []string{}})
	}
}

func value(s string) func() (secret.Value, error) {
	return func() (secret.Value, error) { return secret.NewValue(s), nil }
}

// TestVault reads with a token from both versions of KV, and each failure has its own words.
func TestVault(t *testing.T) {
	f := newVault(t)
	s := Sources{Vault: &Vault{Address: f.URL, Token: value("hvs.root")}}
	for _, ref := range []secret.Ref{"vault:secret/app#password", "vault:old/kv/app#password"} {
		if v, err := s.Resolve(ref); err != nil || v.Reveal() != canary {
			t.Errorf("control %s: %v", ref, err)
		}
	}
	if got, err := s.from(mustPlace(t, "vault:old/kv/app#password")); err != nil || got.lasts.Seconds() != 60 {
		t.Errorf("a lease shorter than ours: %v, %v", got.lasts, err)
	}
	rows := []struct {
		why string
		ref secret.Ref
		v   *Vault
		err error
	}{
		{"no such secret", "vault:secret/gone#password", s.Vault, ErrMissing},
		{"a deleted version", "vault:secret/deleted#password", s.Vault, ErrMissing},
		{"no such field", "vault:secret/app#nope", s.Vault, ErrMissing},
		{"an empty field", "vault:secret/app#empty", s.Vault, ErrEmpty},
		{"a number is no secret", "vault:secret/app#port", s.Vault, errVaultText},
		{"not allowed", "vault:closed/app#password", s.Vault, errVaultDenied},
		{"a token that is not known", "vault:secret/app#password", &Vault{Address: f.URL, Token: value("hvs." + canary)},
			errVaultDenied},
		{"a wrong secret id", "vault:secret/app#password", &Vault{Address: f.URL, RoleID: "role", SecretID: value(canary)},
			errVaultLogin},
		{"the token would travel in the clear", "vault:secret/app#password",
			&Vault{Address: "http://vault.example.com:8200", Token: value(canary)}, errVaultAddress},
		{"a password in the address", "vault:secret/app#password",
			&Vault{Address: "https://u:" + canary + "@127.0.0.1", Token: value("x")}, errVaultAddress},
		{"Vault is not set up", "vault:secret/app#password", nil, ErrClosed},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			_, err := Sources{Vault: r.v}.Resolve(r.ref)
			if !errors.Is(err, r.err) {
				t.Fatalf("got %v, want %v", err, r.err)
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
	for why, ref := range map[string]secret.Ref{
		"another secrets engine": "vault:transit/keys#a", "a redirect": "vault:secret/away#a",
	} {
		if _, err := s.Resolve(ref); err == nil || errors.Is(err, ErrMissing) {
			t.Errorf("%s: %v", why, err)
		}
	}
	if f.caught.Load() > 0 {
		t.Error("the token followed a redirect")
	}
}

// TestVaultAppRole logs in once, and again when the token has become bad.
func TestVaultAppRole(t *testing.T) {
	f := newVault(t)
	var learned []string
	s := Sources{Vault: &Vault{
		Address: f.URL, RoleID: "role", SecretID: value("sid"), Learned: func(_ secret.Ref, v secret.Value) {
			learned = append(learned, v.Reveal())
		},
	}}
	for range 3 {
		if v, err := s.Resolve("vault:secret/app#password"); err != nil || v.Reveal() != canary {
			t.Fatal(err)
		}
	}
	if f.logins.Load() != 1 {
		t.Errorf("%d logins for three reads", f.logins.Load())
	}
	revoked := "hvs.another"
	f.token.Store(&revoked)
	if v, err := s.Resolve("vault:secret/app#password"); err != nil || v.Reveal() != canary || f.logins.Load() != 2 {
		t.Errorf("after the token was revoked: %v, %d logins", err, f.logins.Load())
	}
	if len(learned) != 2 || learned[0] != "hvs.login1" {
		t.Errorf("redaction was told of %d tokens", len(learned))
	}
}

func mustPlace(t *testing.T, ref secret.Ref) secret.Place {
	t.Helper()
	p, ok := ref.Place()
	if !ok {
		t.Fatalf("%s is no place", ref)
	}
	return p
}
