package passkey_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"waldo/internal/core/approval/passkey"
	"waldo/internal/testing/passkeytest"
)

const origin = "http://localhost:7677"

func enrolled(t testing.TB) (*passkeytest.Authenticator, passkey.Credential) {
	t.Helper()
	a := passkeytest.New(origin, "localhost")
	challenge := passkey.Challenge([]byte("new"))
	c, err := passkey.Register(a.Create(challenge), challenge, origin)
	if err != nil {
		t.Fatal(err)
	}
	return a, c
}

func TestVerify(t *testing.T) {
	a, c := enrolled(t)
	message := []byte("waldo approval answer v2\n{}")
	honest := a.Get(passkey.Challenge(message))
	small, err := passkey.Compact(honest)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Verify(message, small); err != nil {
		t.Fatalf("control: %v", err)
	}
	if err := c.Verify(message, honest); err != nil {
		t.Fatalf("control: %v", err)
	}
	back, err := passkey.Parse(c.Text())
	if err != nil || back.Verify(message, small) != nil {
		t.Fatalf("the text of the credential: %v", err)
	}

	stranger, _ := enrolled(t)
	stranger.ID = a.ID
	other, _ := enrolled(t)
	with := func(change func(*passkeytest.Authenticator)) []byte {
		b := *a
		change(&b)
		return b.Get(passkey.Challenge(message))
	}
	for name, row := range map[string]struct {
		message   string
		assertion []byte
		want      string
	}{
		"another message":        {"waldo approval answer v2\n{ }", small, "challenge"},
		"a virtual key, same id": {string(message), stranger.Get(passkey.Challenge(message)), "signature"},
		"another credential":     {string(message), other.Get(passkey.Challenge(message)), "another credential"},
		"no user verification": {string(message), with(func(b *passkeytest.Authenticator) { b.Unverified = true }),
			"User verification required"},
		"nobody there": {string(message), with(func(b *passkeytest.Authenticator) { b.Absent = true }),
			"User presence required"},
		"another port": {
			string(message), with(func(b *passkeytest.Authenticator) { b.Origin = "http://localhost:9999" }), "enrolled at",
		},
		"another site": {
			string(message), with(func(b *passkeytest.Authenticator) { b.Origin = "https://evil.example" }), "enrolled at",
		},
		"another relying party": {string(message), with(func(b *passkeytest.Authenticator) { b.RPID = "evil.example" }),
			"RP Hash mismatch"},
		"a name in other letters": {"another message", with(func(b *passkeytest.Authenticator) {
			b.Extra = map[string]any{"challengE": passkey.Challenge([]byte("another message"))}
		}), "client data: the member"},
		"framed": {string(message), with(func(b *passkeytest.Authenticator) { b.CrossOrigin = true }),
			"cross origin"},
		"a registration": {string(message), a.Create(passkey.Challenge(message)), "passkey:"},
		"nothing":        {string(message), nil, "passkey:"},
		"a member twice": {string(message), bytes.Replace(honest, []byte(`{`), []byte(`{"type":"public-key",`), 1),
			"passkey:"},
		"too long": {string(message), append(honest, bytes.Repeat([]byte(" "), 20<<10)...), "more than"},
	} {
		err := c.Verify([]byte(row.message), row.assertion)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}

func TestRegister(t *testing.T) {
	a, _ := enrolled(t)
	challenge := passkey.Challenge([]byte("new"))
	with := func(change func(*passkeytest.Authenticator)) []byte {
		b := *a
		change(&b)
		return b.Create(challenge)
	}
	for name, row := range map[string]struct {
		b    []byte
		want string
	}{
		"no user verification": {with(func(b *passkeytest.Authenticator) { b.Unverified = true }),
			"User verification required"},
		"another challenge": {a.Create(passkey.Challenge([]byte("old"))), "challenge"},
		"another site":      {with(func(b *passkeytest.Authenticator) { b.Origin = "https://evil.example" }), "made at"},
		"another party":     {with(func(b *passkeytest.Authenticator) { b.RPID = "evil.example" }), "RP Hash"},
		"framed":            {with(func(b *passkeytest.Authenticator) { b.CrossOrigin = true }), "cross origin"},
		"an assertion":      {a.Get(challenge), "passkey:"},
	} {
		if _, err := passkey.Register(row.b, challenge, origin); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}

func TestRelyingParty(t *testing.T) {
	for origin, want := range map[string]string{
		"http://localhost:7677": "localhost", "https://waldo.example.com": "waldo.example.com",
		"http://waldo.localhost": "waldo.localhost", "http://127.0.0.1:7677": "", "http://waldo.example.com": "",
		"https://[::1]": "", "https://waldo.example.com/": "", "HTTPS://waldo.example.com": "", "": "", "https://": "",
		"https://a@b.example": "", "ftp://localhost": "",
	} {
		if got, err := passkey.RelyingParty(origin); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", origin, got, err)
		}
	}
}

// FuzzParse: every credential that Parse takes has exactly that text, and no assertion of bytes makes Verify panic or
// succeed for a credential that did not sign.
func FuzzParse(f *testing.F) {
	a, c := enrolled(f)
	message := []byte("m")
	f.Add(c.Text(), a.Get(passkey.Challenge([]byte("other"))))
	f.Add("passkey:v1:", []byte(`{}`))
	f.Add("passkey:v1:"+base64.RawURLEncoding.EncodeToString([]byte(`{"origin":"http://localhost","id":"AA","key":"AA"}`)),
		[]byte(`{"id":"AA","rawId":"AA"}`))
	f.Fuzz(func(t *testing.T, text string, assertion []byte) {
		if got, err := passkey.Parse(text); err == nil && got.Text() != text {
			t.Errorf("%q reads back as %q", text, got.Text())
		}
		if c.Verify(message, assertion) == nil {
			t.Errorf("verified: %s", assertion)
		}
		if small, err := passkey.Compact(assertion); err == nil && !json.Valid(small) {
			t.Errorf("%s", small)
		}
	})
}
