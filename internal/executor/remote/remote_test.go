package remote

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/storage/secretstore"
)

// A secret that would break the head of a request, or say more in it, is not sent.
func TestSecretsThatBreakAHead(t *testing.T) {
	for _, row := range []struct {
		value string
		ok    bool
	}{{"k-1 2", true}, {"a\r\nX-Admin: 1", false}, {"a\x00", false}, {"é", false}} {
		get := func(secret.Ref) (secret.Value, error) { return secret.NewValue(row.value), nil }
		h, err := headers(map[string]secret.Ref{"X-Key": "k"}, get)
		if (err == nil) != row.ok || row.ok && h.Get("X-Key") != row.value {
			t.Errorf("%q as a header: %v %v", row.value, h, err)
		}
		if row.value == "k-1 2" {
			continue
		}
		if token, err := bearer(func() (secret.Value, error) { return get("") }).Token(t.Context()); err == nil {
			t.Errorf("%q as a token: %q", row.value, token)
		}
	}
}

// TestOptions: a server gets the authentication that its entry names, from a fresh secret at each request.
func TestOptions(t *testing.T) {
	value := "first"
	d := &Dialer{Secret: func(secret.Ref) (secret.Value, error) { return secret.NewValue(value), nil }}
	o, err := d.Options(t.Context(), contract.Server{
		Name: "s", URL: "https://s.example/mcp", Auth: contract.Auth{
			Bearer: "b", Headers: map[string]secret.Ref{"X-Key": "k"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, value = range []string{"first", "second"} {
		token, err := o.Auth.Token(t.Context())
		var h http.Header
		if err == nil {
			h, err = o.Header()
		}
		if err != nil || token != value || h.Get("X-Key") != value {
			t.Errorf("%q %v %v", token, h, err)
		}
	}
	if again, err := o.Auth.Refused(t.Context(), "second", nil); again || err != nil {
		t.Errorf("the same token is sent again: %v", err)
	}
}

// TestBoundLogin: requests to a server whose login is bound to a key go with a proof.
func TestBoundLogin(t *testing.T) {
	var got http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer srv.Close()
	store := secretstore.Open(t.TempDir())
	key := `"dpop_key":{"kty":"EC","crv":"P-256","x":"HltuUmp8-H6UP6EP7NQe8BTdjDHPTuM0yzhVgQ2uOMY",` +
		`"y":"XwzlODwSO_t-DqPvVLgFPijUcD3expXP0KgRU8x_zrk","d":"Pm33C5cZe3wkZonMANDozHougXZHfDfyFbYdpiD-DjA"}`
	for kept, want := range map[string]string{
		`{"access":"t-1"}`: "Bearer t-1", `{"access":"t-1",` + key + `}`: "DPoP t-1",
	} {
		if err := store.Set("oauth-s", secret.NewValue(kept)); err != nil {
			t.Fatal(err)
		}
		d := &Dialer{
			Safe: func() *secretstore.Store { return store }, Learned: func(secret.Ref, secret.Value) error { return nil },
		}
		o, err := d.Options(t.Context(), contract.Server{
			Name: "s", URL: srv.URL, Auth: contract.Auth{OAuth: &contract.OAuth{}},
		})
		if err != nil {
			t.Fatal(err)
		}
		token, err := o.Auth.Token(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequest(http.MethodPost, srv.URL, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := o.Transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got.Get("Authorization") != want || (got.Get("DPoP") != "") != strings.HasPrefix(want, "DPoP") {
			t.Errorf("%s: %v", want, got)
		}
	}
}
