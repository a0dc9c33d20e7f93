package sigv4

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// The keys and the instant of Amazon's own test suite (aws-sig-v4-test-suite).
var (
	suite = Key{
		ID: "AKIDEXAMPLE", Secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", Region: "us-east-1", Service: "service",
	}
	then = time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
)

// TestSuite signs requests of the suite and looks for the signatures that it publishes.
func TestSuite(t *testing.T) {
	for _, row := range []struct {
		name, method, target, body, headers, signature string
	}{
		{"get-vanilla", "GET", "/", "", "host;x-amz-date",
			"5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		{"get-unreserved", "GET", "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "",
			"host;x-amz-date", "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
		{"get-slashes", "GET", "//example//", "", "host;x-amz-date",
			"9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84"},
		{"get-vanilla-query-order-key-case", "GET", "/?Param2=value2&Param1=value1", "", "host;x-amz-date",
			"b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
		{"get-vanilla-query-order-value", "GET", "/?Param1=value2&Param1=value1", "", "host;x-amz-date",
			"5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694"},
		{"get-vanilla-utf8-query", "GET", "/?\u1234=bar", "", "host;x-amz-date",
			"2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
		{"post-x-www-form-urlencoded", "POST", "/", "Param1=value1", "content-type;host;x-amz-date",
			"ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
		{"get-vanilla-with-session-token", "GET", "/", "", "host;x-amz-date;x-amz-security-token",
			"07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"},
	} {
		u := &url.URL{Scheme: "https", Host: "example.amazonaws.com"}
		u.Path, u.RawQuery, _ = strings.Cut(row.target, "?")
		r := &http.Request{
			Method: row.method, URL: u, Host: u.Host, Header: http.Header{"Authorization": {"what the client wrote"}},
		}
		k, sum := suite, sha256.Sum256([]byte(row.body))
		if row.body != "" {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		if strings.Contains(row.headers, "token") {
			k.Token = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"
		}
		Sign(r, hex.EncodeToString(sum[:]), k, then)
		want := "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=" +
			row.headers + ", Signature=" + row.signature
		if got := r.Header["Authorization"]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q\nwanted %q", row.name, got, want)
		}
	}
}

// TestCanonical writes paths and queries as they are signed.
func TestCanonical(t *testing.T) {
	for _, row := range []struct{ raw, other, s3 string }{
		{"/a%2Fb", "/a%252Fb", "/a%2Fb"},
		{"/example%20space/", "/example%2520space/", "/example%20space/"},
		{"/a/../b", "/b", "/a/../b"},
		{"", "/", "/"},
		{"/a(b)", "/a%2528b%2529", "/a%28b%29"},
	} {
		u, err := url.Parse("https://x.example" + row.raw)
		if err != nil {
			t.Fatal(err)
		}
		if got, s3 := canonicalPath(u, "service"), canonicalPath(u, "s3"); got != row.other || s3 != row.s3 {
			t.Errorf("%q: %q and %q", row.raw, got, s3)
		}
	}
	for raw, want := range map[string]string{
		"a=10&a=9": "a=10&a=9", "x=a.b&x=a%2Fb": "x=a%2Fb&x=a.b", "q=a+b": "q=a%2Bb", "b&a=1": "a=1&b=",
		"a=1=2": "a=1%3D2", "q=%7Ea": "q=~a",
	} {
		if got := canonicalQuery(raw); got != want {
			t.Errorf("%q: %q", raw, got)
		}
	}
}
