package site

import (
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// TestForms: an operator's forms act on the thing they name, with a record; a lesser login, a request without the
// token and one of another site do nothing.
func TestForms(t *testing.T) {
	for _, row := range []struct{ page, path, want, action string }{
		{"/sandboxes", "/sandboxes/" + url.PathEscape(hostile) + "/resume", "resume " + hostile, "sandbox.resume"},
		{"/sandboxes", "/sandboxes/" + url.PathEscape(hostile) + "/stop", "stop " + hostile, "sandbox.stop"},
		{"", "/sandboxes/box/pause", "pause box", "sandbox.pause"},
		{"/webhooks", "/webhooks/" + url.PathEscape(hostile) + "/retry", "retry " + hostile, "webhook.retry"},
		{"/webhooks", "/webhooks/" + url.PathEscape(hostile) + "/drop", "drop " + hostile, "webhook.drop"},
		{"/servers/x", "/servers/" + url.PathEscape(hostile) + "/restart", "restart " + hostile, "server.restart"},
		{"/sessions", "/sessions/" + url.PathEscape(hostile) + "/stop", hostile + " release=false", "stop"},
		{"/sessions", "/sessions/" + url.PathEscape(hostile) + "/release", hostile + " release=true", "release"},
	} {
		f := &fake{role: RoleOperator}
		s := newServer(f)
		in := enter(t, s)
		send := func(csrf string, more ...string) int {
			with := map[string]string{"Cookie": in["Cookie"], "Content-Type": "application/x-www-form-urlencoded"}
			for i := 0; i < len(more); i += 2 {
				with[more[i]] = more[i+1]
			}
			return visit(s, "POST", row.path, url.Values{"csrf": {csrf}}.Encode(), with).Code
		}
		if row.page != "" {
			page := html.UnescapeString(visit(s, "GET", row.page, "", in).Body.String())
			// The fake's sandbox is paused, so the page offers resume.
			if !strings.Contains(page, `formaction="`+row.path+`"`) ||
				!strings.Contains(page, `name="csrf" value="`+in["X-CSRF-Token"]+`"`) {
				t.Errorf("%s has no form for %s:\n%s", row.page, row.action, page)
			}
		}
		if got := send(""); got != http.StatusForbidden {
			t.Errorf("%s without the token: %d", row.path, got)
		}
		if got := send(in["X-CSRF-Token"], "Origin", "https://evil.example"); got != http.StatusForbidden {
			t.Errorf("%s from another site: %d", row.path, got)
		}
		if len(f.acts) > 0 {
			t.Errorf("%s was done: %q", row.path, f.acts)
		}
		if got := send(in["X-CSRF-Token"]); got != http.StatusSeeOther || !slices.Equal(f.acts, []string{row.want}) {
			t.Errorf("control: %s: %d %q, want %q", row.path, got, f.acts, row.want)
		}
		if n := len(f.events); n < 2 || f.events[n-2].Action != row.action || f.events[n-2].Result != "begun" ||
			f.events[n-1].Result != "done" {
			t.Errorf("%s: records %+v", row.path, f.events)
		}
		for _, role := range []Role{RoleViewer, RoleApprover} {
			f = &fake{role: role}
			s = newServer(f)
			in = enter(t, s)
			if got := send(in["X-CSRF-Token"]); got != http.StatusForbidden || len(f.acts) > 0 {
				t.Errorf("%s as %s: %d %q", row.path, role, got, f.acts)
			}
			if row.page != "" {
				if page := visit(s, "GET", row.page, "", in).Body.String(); strings.Contains(page, "formaction") ||
					!strings.Contains(page, "Your login looks only") {
					t.Errorf("%s offers a %s what it cannot do:\n%s", row.page, role, page)
				}
			}
		}
	}
}

// TestVerifyPage: the result of a verification is shown with its problems, and the request needs the token.
func TestVerifyPage(t *testing.T) {
	f := &fake{role: RoleViewer}
	s := newServer(f)
	in := enter(t, s)
	form := map[string]string{"Cookie": in["Cookie"], "Content-Type": "application/x-www-form-urlencoded"}
	if w := visit(s, "POST", "/log/verify", "", form); w.Code != http.StatusForbidden {
		t.Errorf("without the token: %d", w.Code)
	}
	w := visit(s, "POST", "/log/verify", url.Values{"csrf": {in["X-CSRF-Token"]}}.Encode(), form)
	page := w.Body.String()
	for _, want := range []string{"The log does NOT verify.", "9 records in 1 segments", "<strong>problem</strong>",
		"chain.broken", "record 9"} {
		if w.Code != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%d, without %q:\n%s", w.Code, want, page)
		}
	}
	for _, bad := range []string{"<script>alert", "<img", "\x1b", "\u202e", "The log verifies"} {
		if strings.Contains(page, bad) {
			t.Errorf("the result holds %q:\n%s", bad, page)
		}
	}
}
