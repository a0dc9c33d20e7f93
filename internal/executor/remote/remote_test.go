package remote

import (
	"net/http"
	"testing"

	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
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
	o, err := d.Options(t.Context(), contract.Server{Name: "s", URL: "https://s.example/mcp", Auth: contract.Auth{Bearer: "b", Headers: map[string]secret.Ref{"X-Key": "k"}}})
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
