package redact

import (
	"encoding/base64"
	"encoding/hex"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"waldo/internal/model/contract"
)

// TestEncoded: personal data is found in base64 and hexadecimal, also in one another, and its run is hidden whole.
func TestEncoded(t *testing.T) {
	p := New(contract.Redaction{Model: []string{"email", "phone", "credit_card"}}, &Registry{}, nil).pass(contract.Contract{})
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	bare := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	h := func(s string) string { return hex.EncodeToString([]byte(s)) }
	const mail = "ada.lovelace@example.com"
	for text, want := range map[string]string{
		"a " + b64(mail) + " b":                                  "a [EMAIL] b",
		"as " + b64("to: "+mail+"\n") + ";":                      "as [EMAIL];",
		"/x/" + bare("{\"mail\":\""+mail+"\"}") + "/y":           "",
		"a " + h(mail) + " b":                                    "a [EMAIL] b",
		"a " + strings.ToUpper(h(mail)) + " b":                   "a [EMAIL] b",
		"a " + b64(b64(mail)) + " b":                             "a [EMAIL] b",
		"a " + h(b64(mail)) + " b":                               "a [EMAIL] b",
		"a " + b64(url.QueryEscape(mail)) + " b":                 "a [EMAIL] b",
		"a " + url.QueryEscape(b64(mail+"?")) + " b":             "a [EMAIL] b",
		`{"data":"` + b64(mail) + `"}`:                           `{"data":"[EMAIL]"}`,
		"a " + b64("card 4111 1111 1111 1111 of é") + " b":       "a [CREDIT_CARD] b",
		"q=%28555%29+123-4567":                                   "q=[PHONE]",
		"a " + b64("nothing to see in this line of text") + " b": "a " + b64("nothing to see in this line of text") + " b",
	} {
		got := p.textOrJSON(text)
		if want != "" && got != want || strings.Contains(got, text) && want == "" {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	none := New(contract.Redaction{Model: []string{"secrets"}}, &Registry{}, nil).pass(contract.Contract{})
	if text := "a " + b64(mail) + " b"; none.textOrJSON(text) != text {
		t.Error("control: a pass that hides no personal data hid some")
	}
}

// TestEncodedLines: what crosses the lines of wrapped base64 is found, however they are broken.
func TestEncodedLines(t *testing.T) {
	p := New(contract.Redaction{Model: []string{"email", "credit_card"}}, &Registry{}, nil).pass(contract.Contract{})
	const columns = 28
	for offset := range 40 {
		code := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + " 4111111111111111 and some words behind it"))
		plain := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + " 4111111111111112 and some words behind it"))
		for _, br := range []string{"\n", "\r\n", "\n    ", "\n> "} {
			if got := p.textOrJSON("a " + wrapped(code, columns, br) + " b"); !strings.HasPrefix(got, "a [CREDIT_CARD]") {
				t.Errorf("offset %d, break %q: %s", offset, br, got)
			}
			if text := "a " + wrapped(plain, columns, br) + " b"; p.textOrJSON(text) != text {
				t.Errorf("control, offset %d, break %q: a number with a wrong check digit is hidden", offset, br)
			}
		}
		if got := p.textOrJSON(`{"a":"` + wrapped(code, columns, `\n`) + `"}`); !strings.HasPrefix(got, `{"a":"[CREDIT_CARD]`) {
			t.Errorf("offset %d, in JSON: %s", offset, got)
		}
	}
	ids := strings.Repeat("0123456789abcdef0123456789abcdef0123\n", 20_000)
	if got := p.textOrJSON(ids); got != ids {
		t.Error("a column of ids changed")
	}
}

func wrapped(s string, columns int, br string) string {
	var lines []string
	for ; len(s) > columns; s = s[columns:] {
		lines = append(lines, s[:columns])
	}
	return strings.Join(append(lines, s), br)
}

// TestEncodedChance: digests, keys and bytes are no text, and are left alone.
func TestEncodedChance(t *testing.T) {
	p := New(contract.Redaction{Model: []string{"email", "phone", "credit_card", "ssn", "iban", "ip"}}, &Registry{}, nil).
		pass(contract.Contract{})
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		b := make([]byte, 8+r.IntN(60))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		for _, s := range []string{base64.StdEncoding.EncodeToString(b), hex.EncodeToString(b)} {
			if f := p.encoded([]byte(s)); len(f) > 0 {
				t.Fatalf("%s: %+v", s, f)
			}
		}
	}
}

// FuzzEncoded: each match is a run of the text, and personal data that is encoded alone is found.
func FuzzEncoded(f *testing.F) {
	f.Add([]byte("x YWRhQGV4YW1wbGUuY29t= y"), "a")
	p := New(contract.Redaction{Model: []string{"email"}}, &Registry{}, nil).pass(contract.Contract{})
	f.Fuzz(func(t *testing.T, text []byte, who string) {
		last := 0
		for _, find := range p.encoded(text) {
			if find.Start < last || find.End > len(text) || find.End-find.Start < minEncoded {
				t.Fatalf("%+v in %d bytes", find, len(text))
			}
			last = find.End
		}
		for _, c := range who {
			if c|0x20 < 'a' || c|0x20 > 'z' {
				return
			}
		}
		if who != "" && len(who) < 40 && len(p.encoded([]byte(hex.EncodeToString([]byte(who+"@example.com"))))) != 1 {
			t.Errorf("%s@example.com is not found in hexadecimal", who)
		}
	})
}
