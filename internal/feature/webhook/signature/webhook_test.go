package signature

import (
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const window = 5 * time.Minute

var now = time.Unix(1_766_000_000, 0)

// secrets are good ones for each scheme.
var secrets = map[Scheme]string{
	GitHub: "It's a Secret to Everybody", Stripe: "whsec_of-a-test-of-stripe", Slack: "8f742231b10e8888abcd99yyyzzz85a5",
	Standard: Prefix + base64.StdEncoding.EncodeToString([]byte("a secret of 24 bytes or more")),
}

func key(t testing.TB, s Scheme, text string) Key {
	t.Helper()
	k, err := s.Key(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func why(err error) Refusal {
	r := Refusal("")
	errors.As(err, &r)
	return r
}

// TestDocumented are the examples of GitHub's and Slack's documentation.
func TestDocumented(t *testing.T) {
	h := http.Header{"X-Hub-Signature-256": {"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}}
	k := []Key{key(t, GitHub, secrets[GitHub])}
	body := "Hello, World!"
	if m, err := GitHub.Verify(h, []byte(body), k, now, window); err != nil || m.Name != Digest([]byte(body)) {
		t.Error(m, err)
	}
	if _, err := GitHub.Verify(h, []byte("Hello, World?"), k, now, window); why(err) != BadSignature {
		t.Error(err)
	}
	h = http.Header{"X-Slack-Request-Timestamp": {"1531420618"},
		"X-Slack-Signature": {"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"}}
	body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&" +
		"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&" +
		"response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&" +
		"trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	if _, err := Slack.Verify(h, []byte(body), []Key{key(t, Slack, "8f742231b10e8888abcd99yyyzzz85a5")},
		time.Unix(1531420618, 0), window); err != nil {
		t.Error(err)
	}
}

// TestGuards changes one thing at a time of a webhook that is accepted.
func TestGuards(t *testing.T) {
	for name, secret := range secrets {
		k, other := key(t, name, secret), Raw("another secret of the same kind!")
		good := func() http.Header { return name.Sign(k, "msg_1", now, []byte("body")) }
		verify := func(h http.Header, body string, at time.Time, keys ...Key) Refusal {
			_, err := name.Verify(h, []byte(body), keys, at, window)
			return why(err)
		}
		if r := verify(good(), "body", now, k); r != "" {
			t.Fatalf("%s: control: %s", name, r)
		}
		if r := verify(good(), "body", now, other, Key{}, k); r != "" {
			t.Errorf("%s: the second of two keys: %s", name, r)
		}
		for what, got := range map[string][2]Refusal{
			"another body":           {verify(good(), "bodY", now, k), BadSignature},
			"a longer body":          {verify(good(), "body\n", now, k), BadSignature},
			"an empty body":          {verify(good(), "", now, k), BadSignature},
			"another key":            {verify(good(), "body", now, other), BadSignature},
			"no key":                 {verify(good(), "body", now), NoKey},
			"an empty key":           {verify(name.Sign(Raw("x"), "msg_1", now, []byte("body")), "body", now, Key{}), NoKey},
			"no headers":             {verify(http.Header{}, "body", now, k), NoHeader},
			"headers of another key": {verify(name.Sign(other, "msg_1", now, []byte("body")), "body", now, k), BadSignature},
		} {
			if got[0] != got[1] {
				t.Errorf("%s: %s: %q, not %q", name, what, got[0], got[1])
			}
		}
		last := headers[name][len(headers[name])-1]
		for _, back := range []int{10, 2} { // the end of the signature counts as its beginning does
			h, text := good(), []byte(good().Get(last))
			if text[len(text)-back]++; text[len(text)-back] == ':' || text[len(text)-back] == 'g' {
				text[len(text)-back] = '0'
			}
			if h.Set(last, string(text)); verify(h, "body", now, k) != BadSignature {
				t.Errorf("%s: the byte %d before its end is not compared", name, back)
			}
		}
		for header, values := range good() {
			h := good()
			h.Add(header, values[0])
			if r := verify(h, "body", now, k); r != NoHeader {
				t.Errorf("%s: %s twice: %q", name, header, r)
			}
			h.Set(header, "")
			if r := verify(h, "body", now, k); r != NoHeader {
				t.Errorf("%s: %s empty: %q", name, header, r)
			}
		}
		if name == GitHub {
			continue
		}
		for shift, want := range map[time.Duration]Refusal{window: "", -window: "", window + time.Second: BadTime,
			-window - time.Second: BadTime, 100 * 365 * 24 * time.Hour: BadTime} {
			if r := verify(good(), "body", now.Add(shift), k); r != want {
				t.Errorf("%s: %v later: %q, not %q", name, shift, r, want)
			}
		}
	}
}

func TestNames(t *testing.T) {
	k := key(t, Standard, secrets[Standard])
	for name, ok := range map[string]bool{
		"msg_1": true, strings.Repeat("m", MaxName): true, "": false, strings.Repeat("m", MaxName+1): false, "a b": false,
		"a.1766000000": false, "a\x7f": false, "ä": false,
	} {
		_, err := Standard.Verify(Standard.Sign(k, name, now, nil), nil, []Key{k}, now, window)
		if (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	// Without the rule for dots these two would have one signature.
	a := Standard.Sign(k, "a", now, []byte("1766000001.body")).Get(standardSigned)
	b := Standard.Sign(k, "a."+strconv.FormatInt(now.Unix(), 10), now.Add(time.Second), []byte("body")).Get(standardSigned)
	if a != b {
		t.Error("control: the two messages differ")
	}
}

func TestTimes(t *testing.T) {
	for text, ok := range map[string]bool{
		"1766000000": true, "": false, "-1": false, "+1": false, "1.5": false, "1e9": false, "NaN": false, " 1": false,
		"0x1": false, "1766000000000": false, "１７６６００００００": false, "1_0": false, "99999999999": true,
	} {
		if _, got := seconds(text); got != ok {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestKeys(t *testing.T) {
	for text, row := range map[string]map[Scheme]bool{
		"":                                       {},
		"short":                                  {},
		strings.Repeat("x", 700):                 {},
		"whsec_!!!":                              {},
		"AAA=":                                   {},
		"It's a Secret to Everyone":              {GitHub: true, Stripe: true, Slack: true},
		"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw":       {GitHub: true, Stripe: true, Slack: true, Standard: true},
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": {GitHub: true, Stripe: true, Slack: true, Standard: true},
	} {
		for name := range secrets {
			_, err := name.Key(text)
			if (err == nil) != row[name] {
				t.Errorf("%s: %q: %v", name, text, err)
			}
			if err != nil && text != "" && strings.Contains(err.Error(), text) {
				t.Errorf("%s: the error holds the secret: %v", name, err)
			}
		}
	}
}

// TestManySignatures: a list of signatures is read to a bound.
func TestManySignatures(t *testing.T) {
	k := key(t, Standard, secrets[Standard])
	h := Standard.Sign(k, "m", now, nil)
	good, bad := h.Get(standardSigned), "v1,"+base64.StdEncoding.EncodeToString(make([]byte, 32))
	for before, want := range map[int]Refusal{0: "", maxSignatures - 1: "", maxSignatures: BadSignature} {
		h.Set(standardSigned, strings.Join(append(slices.Repeat([]string{bad}, before), good), " "))
		if _, err := Standard.Verify(h, nil, []Key{k}, now, window); why(err) != want {
			t.Errorf("%d before it: %v", before, err)
		}
	}
}

// FuzzVerify: headers that are accepted bear the signature of exactly this id, time and body.
func FuzzVerify(f *testing.F) {
	for i, s := range Schemes() {
		h := Scheme(s).Sign(key(f, Scheme(s), secrets[Scheme(s)]), "msg_1", now, []byte(`{"a":1}`))
		var texts [3]string
		for j, name := range headers[Scheme(s)] {
			texts[j] = h.Get(name)
		}
		f.Add(i, texts[0], texts[1], texts[2], []byte(`{"a":1}`))
	}
	f.Add(1, "t=1,t=2,v1=00,v1", "", "", []byte(nil))
	f.Fuzz(func(t *testing.T, i int, a, b, c string, body []byte) {
		s := Scheme(Schemes()[uint(i)%4])
		k := key(t, s, secrets[s])
		h := http.Header{}
		for j, text := range []string{a, b, c}[:len(headers[s])] {
			h.Set(headers[s][j], text)
		}
		m, err := s.Verify(h, body, []Key{k}, now, window)
		if err != nil {
			if why(err) == "" {
				t.Fatalf("not a refusal: %v", err)
			}
			return
		}
		want := s.Sign(k, m.Name, m.Signed, body)
		last := headers[s][len(headers[s])-1]
		signature := want.Get(last)
		if s == Stripe {
			_, signature, _ = strings.Cut(signature, "v1=")
		}
		if !strings.Contains(strings.ToLower(h.Get(last)), strings.ToLower(signature)) {
			t.Fatalf("%s: accepted %v, which lacks %s", s, h, signature)
		}
		if _, err := s.Verify(h, append(body, '!'), []Key{k}, now, window); err == nil {
			t.Fatalf("%s: a longer body is accepted", s)
		}
	})
}

// headers are those of each scheme, the signature last.
var headers = map[Scheme][]string{
	GitHub: {hubSignature}, Stripe: {stripeHeader}, Slack: {slackTime, slackSignature},
	Standard: {standardID, standardTime, standardSigned},
}
