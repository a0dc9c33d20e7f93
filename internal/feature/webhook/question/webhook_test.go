package question

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/feature/webhook/signature"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

const hostile = "<!channel> <https://evil.example|safe> [x](https://evil.example)\u202e\x1b[2J\nwaldo: approved"

func question() approval.Question {
	return approval.Question{ID: "a_1", Capability: hostile, Principal: "os:1000", Channel: "mcp", Danger: 3,
		Args: []byte(`{"secret":"of the call"}`), Expires: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
}

// got is one request that a receiver saw.
type got struct {
	header http.Header
	body   string
}

// chat is a configuration with one webhook.
type chat struct{ url, format string }

func (c chat) Rules() contract.Approvals {
	return contract.Approvals{Webhooks: []contract.ApprovalWebhook{{URL: "env:URL", Format: c.format, Key: "env:KEY",
		Console: "https://waldo.example.com/"}}}
}

func (c chat) Secret(r secret.Ref) (secret.Value, error) {
	return secret.NewValue(map[secret.Ref]string{"env:URL": c.url, "env:KEY": "k"}[r]), nil
}

func (chat) LoginLink(context.Context, string) (string, error) { return "once", nil }

func send(t *testing.T, format string, answers ...int) []got {
	t.Helper()
	var all []got
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		all = append(all, got{r.Header, string(b)})
		if n := len(all); n <= len(answers) {
			if answers[n-1] == 302 {
				w.Header().Set("Location", "/elsewhere")
			}
			w.WriteHeader(answers[n-1])
		}
	}))
	defer s.Close()
	n := New(chat{url: s.URL, format: format})
	n.now = func() time.Time { return time.Unix(1700000000, 0) }
	n.Notify(t.Context(), question())
	return all
}

func TestFormats(t *testing.T) {
	const link = "https://waldo.example.com/login#once~a_1"
	for format, without := range map[string][]string{
		"slack": {"<!channel>", "<https://evil", "\\n waldo: approved"}, "teams": {"[x](", "<!channel>"},
		"ntfy": {"\nwaldo: approved"}, "json": nil,
	} {
		all := send(t, format)
		if len(all) != 1 {
			t.Fatalf("%s: %d requests", format, len(all))
		}
		body, h := all[0].body, all[0].header
		if !strings.Contains(body, link) || !strings.Contains(body, "a_1") || strings.Contains(body, "of the call") {
			t.Errorf("%s: %s", format, body)
		}
		text := body
		if format != "ntfy" {
			var v any
			if err := json.Unmarshal([]byte(body), &v); err != nil {
				t.Errorf("%s: %v", format, err)
			}
			text = strings.ReplaceAll(strings.ReplaceAll(body, `\u003c`, "<"), `\u003e`, ">")
		}
		for _, bad := range append(without, "\u202e", "\x1b") {
			if format != "json" && strings.Contains(text, bad) {
				t.Errorf("%s holds %q: %s", format, bad, text)
			}
		}
		m, err := signature.Standard.Verify(h, []byte(body), []signature.Key{signature.Raw("k")}, time.Unix(1700000000, 0), 0)
		if err != nil || m.Name != "a_1" {
			t.Errorf("%s: %v: %v", format, h, err)
		}
	}
}

func TestKeys(t *testing.T) {
	for text, ok := range map[string]bool{"k": true, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": true, "whsec_!": false} {
		if _, err := keyOf(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestRetries(t *testing.T) {
	for why, row := range map[string]struct {
		answers []int
		want    int
	}{
		"taken": {nil, 1}, "busy once": {[]int{503}, 2}, "refused": {[]int{400, 200}, 1}, "a redirect": {[]int{302, 200}, 1},
	} {
		if all := send(t, "json", row.answers...); len(all) != row.want {
			t.Errorf("%s: %d requests", why, len(all))
		}
	}
}

func TestTarget(t *testing.T) {
	for address, ok := range map[string]bool{"https://hooks.example.com/x": true, "http://localhost:1/x": true,
		"http://127.0.0.1:1":       true,
		"http://hooks.example.com": false, "file:///etc/passwd": false, "": false, "ftp://localhost": false,
		"https://": false} {
		if _, err := target(address); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
}
