package egress

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestAnswerEnds: an answer that breaks off within the secret shows no part of it. The same number of bytes is dropped
// for every text.
func TestAnswerEnds(t *testing.T) {
	dots := func(n int) string { return strings.Repeat(".", n) }
	stars := strings.Repeat("*", len(hidden))
	part := hidden[:len(hidden)-1]
	raw := func(head, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head+"\r\n"+body)
			_ = c.Close()
		}
	}
	chunk := func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
	const closing, chunked, limit = "Connection: close\r\n", "Transfer-Encoding: chunked\r\n", 20000
	for _, row := range []struct {
		why        string
		bytes      int64
		head, body string
		want       string
		whole      bool
		code       string
	}{
		{"control: all of a length", 0, "Content-Length: 1723\r\n", dots(1700) + hidden, dots(1700) + stars, true, ""},
		{"cut, of a length", 0, "Content-Length: 5000\r\n", dots(1700) + part, dots(1700 + len(part) - 512), false, ""},
		{"cut, of a length, without a secret", 0, "Content-Length: 5000\r\n", dots(1700 + len(part)),
			dots(1700 + len(part) - 512), false, ""},
		{"control: all chunks", 0, chunked, chunk(dots(1700)+hidden) + chunk("")[:3] + "\r\n", dots(1700) + stars, true, ""},
		{"cut within a chunk", 0, chunked, "800\r\n" + dots(1700) + part, dots(1700 + len(part) - 512), false, ""},
		{"cut after a chunk", 0, chunked, chunk(dots(1700) + part), dots(1700 + len(part) - 512), false, ""},
		{"control: until the close, with a line end", 0, closing, dots(1700) + hidden + ".\n",
			dots(1700) + stars + ".\n", true, ""},
		{"until the close", 0, closing, dots(1700) + "\n" + part, dots(1700) + "\n", false, "egress.secret.end"},
		{"control: within the limit", limit * 2, "Content-Length: 20023\r\n", dots(limit) + hidden,
			dots(limit) + stars, true, ""},
		{"beyond the limit", limit + int64(len(part)), "Content-Length: 20023\r\n", dots(limit) + hidden,
			dots(limit + len(part) - 512), false, "egress.limit.bytes"},
		{"far beyond the limit", limit, "Content-Length: 90000\r\n", dots(90000), dots(limit - 512), false, "egress.limit.bytes"},
	} {
		for _, h2 := range []bool{false, true} {
			options := Options{Credentials: []Credential{brokered(Bearer, "")}}
			g := newRigWith(t, Limits{Bytes: row.bytes}, options, "api.example.com")
			g.answer, g.transport.ForceAttemptHTTP2 = raw(row.head, row.body), false
			resp, err := g.client(t, h2).Get("https://api.example.com/repos/x")
			if err != nil {
				t.Errorf("%s: %v", row.why, err)
				continue
			}
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if string(got) != row.want || (err == nil) != row.whole {
				t.Errorf("%s, h2 %v: %d bytes, want %d: %q (%v)", row.why, h2, len(got), len(row.want),
					strings.TrimLeft(string(got), "."), err)
			}
			if codes := fmt.Sprint(g.codes()); row.code != "" && !strings.Contains(codes, row.code) ||
				row.code == "" && strings.Contains(codes, "secret.end") {
				t.Errorf("%s: %s", row.why, codes)
			}
		}
	}
}

// TestEscapedEcho: escapes of URLs, JSON and HTML hide the secret nowhere, also where all of it is escaped.
func TestEscapedEcho(t *testing.T) {
	all := func(form string) (s string) {
		for _, c := range []byte(hidden) {
			s += fmt.Sprintf(form, c)
		}
		return s
	}
	for _, s := range []string{all("%%%02X"), all("%%%02x"), all(`\u%04x`), all(`\u%04X`), all("&#%d;"), all("&#%03d"),
		all("&#x%x;"), all("&#X%08X;"), fmt.Sprintf(`%%%02x\u%04x&#%d;`, hidden[0], hidden[1], hidden[2]) + hidden[3:]} {
		g := credentialRig(t, brokered(Bearer, ""))
		g.answer = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Echo", s)
			w.Header()["X-"+strings.ReplaceAll(all("%%%02X"), "x", "y")] = []string{"1"}
			for _, c := range "<%41&" + s + ">" {
				_, _ = io.WriteString(w, string(c))
			}
		}
		resp, got := g.ask(t, false, "GET", "https://api.example.com/repos/x", nil, "")
		stars := strings.Repeat("*", len(s))
		if want := "<%41&" + stars + ">"; got != want {
			t.Errorf("%q became %q", s, got)
		}
		if resp.Header.Get("X-Echo") != stars || strings.Contains(fmt.Sprint(resp.Header), "X-%") {
			t.Errorf("%q: %q", s, resp.Header)
		}
	}
	// The control: an escaped text that is not the secret passes.
	g := credentialRig(t, brokered(Bearer, ""))
	other := strings.Replace(all("%%%02X"), "%", "%25%", 1) + base64.StdEncoding.EncodeToString([]byte("other"))
	g.answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, other[:len(other)-20]) }
	if _, got := g.ask(t, false, "GET", "https://api.example.com/repos/x", nil, ""); got != other[:len(other)-20] {
		t.Errorf("%q became %q", other, got)
	}
}

// TestNameThatLooksEscaped: a secret with a percent sign is found as it is, too.
func TestNameThatLooksEscaped(t *testing.T) {
	const like = "Zq7Rw2%41Kx9Lm4Np8Tv3Yb6Hc1"
	for name, want := range map[string]int{"x-" + like: 0, "X-" + strings.ToLower(like): 0, "X-" + like[1:]: 1} {
		h := http.Header{name: {"1"}}
		newScrubber([]string{like}).header(h)
		if len(h) != want {
			t.Errorf("%s: %v", name, h)
		}
	}
}
