package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"time"

	"waldo/internal/model/display"
)

// pageRoutes are the pages. A new page adds its route here, its handler in page_NAME.go and templates/NAME.html.
func (s *Server) pageRoutes() []route {
	get, post := http.MethodGet, http.MethodPost
	return []route{
		{get, "/{$}", RoleViewer, false, func(q *request) error { return redirect(q, "/approvals") }},
		{get, "/login", RoleNone, true, s.pageLogin},
		{post, "/login", RoleNone, true, s.postLogin},
		{get, pathOIDC, RoleNone, true, s.pageOIDC},
		{get, pathOIDCBack, RoleNone, true, s.pageOIDCBack},
		{post, "/logout", RoleViewer, false, s.postLogout},
		{get, "/enrol", RoleNone, true, s.pageEnrol},
		{get, "/approvals", RoleViewer, false, s.pageApprovals},
		{get, "/approvals/{id}", RoleViewer, false, s.pageApproval},
		{get, "/calls", RoleViewer, false, s.pageCalls},
		{get, "/calls/{id}", RoleViewer, false, s.pageCall},
		{get, "/sessions", RoleViewer, false, s.pageSessions},
		{post, "/sessions/{name}/stop", RoleOperator, false, s.postSession(false)},
		{post, "/sessions/{name}/release", RoleOperator, false, s.postSession(true)},
		{get, "/sandboxes", RoleViewer, false, s.pageSandboxes},
		{post, "/sandboxes/{name}/pause", RoleOperator, false, s.postSandbox("pause")},
		{post, "/sandboxes/{name}/resume", RoleOperator, false, s.postSandbox("resume")},
		{post, "/sandboxes/{name}/stop", RoleOperator, false, s.postSandbox("stop")},
		{get, "/servers", RoleViewer, false, s.pageServers},
		{get, "/webhooks", RoleViewer, false, s.pageWebhooks},
		{post, "/webhooks/{id}/retry", RoleOperator, false, s.postDelivery("retry")},
		{post, "/webhooks/{id}/drop", RoleOperator, false, s.postDelivery("drop")},
		{get, "/contracts", RoleViewer, false, s.pageContracts},
		{post, "/contracts/dry-run", RoleViewer, false, s.postDryRun},
		{post, "/contracts/what-if", RoleOperator, false, s.postWhatIf},
		{get, "/pins", RoleViewer, false, s.pagePins},
		{get, "/usage", RoleViewer, false, s.pageUsage},
		{get, "/log", RoleViewer, false, s.pageLog},
		{post, "/log/verify", RoleViewer, false, s.postVerify},
	}
}

// nav are the links at the top of each page.
var nav = []struct{ Path, Name string }{
	{"/approvals", "Approvals"}, {"/calls", "Calls"}, {"/sessions", "Sessions"}, {"/sandboxes", "Sandboxes"},
	{"/servers", "Servers"}, {"/webhooks", "Webhooks"}, {"/contracts", "Contracts"}, {"/usage", "Usage"}, {"/log", "Log"},
}

// pages are the parsed templates, by name.
type pages struct{ by map[string]*template.Template }

// parsePages parses each template with layout.html around it. The templates are part of the program, so an error is a
// mistake in it.
func parsePages() *pages {
	p := &pages{by: map[string]*template.Template{}}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		panic(err)
	}
	base := template.New("").Funcs(template.FuncMap{
		"ago": ago, "line": line, "gist": gist, "pretty": pretty, "clock": clock, "lines": lines, "base": base,
		"change": change, "size": size, "when": when, "segment": url.PathEscape,
	})
	layout := template.Must(base.ParseFS(files, "templates/layout.html"))
	for _, name := range names {
		if page := strings.TrimSuffix(path.Base(name), ".html"); page != "layout" {
			p.by[page] = template.Must(template.Must(layout.Clone()).ParseFS(files, name))
		}
	}
	return p
}

// view is the data of layout.html; Data is the page's own.
type view struct {
	Title, Path, CSRF, Version string
	Who                        Who
	Nav                        any
	Data                       any
}

// show draws a page.
func (s *Server) show(q *request, status int, page, title string, data any) error {
	var b bytes.Buffer
	v := view{Title: title, Path: q.URL.Path, CSRF: q.csrf, Version: s.o.Version, Who: q.who, Nav: nav, Data: data}
	if err := s.pages.by[page].ExecuteTemplate(&b, "layout.html", v); err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	q.w.WriteHeader(status)
	_, _ = b.WriteTo(q.w)
	return nil
}

// failPage draws an error. A page that needs a login leads to it.
func (s *Server) failPage(w http.ResponseWriter, r *http.Request, p *Problem) {
	if p.Status == http.StatusUnauthorized {
		http.Redirect(w, r, "/login", http.StatusSeeOther)
		return
	}
	q := &request{Request: r, w: w}
	if n := s.session(r); n != nil {
		q.n, q.csrf, q.who = n, n.csrf, n.who
	}
	if err := s.show(q, p.Status, "error", p.Title, p); err != nil {
		http.Error(w, p.Detail, p.Status)
	}
}

func redirect(q *request, to string) error {
	http.Redirect(q.w, q.Request, to, http.StatusSeeOther)
	return nil
}

// line makes a text from outside safe to show: controls, invisible characters and changes of direction are spelled out.
func line(s any) string { return string(display.Line(fmt.Sprint(s))) }

// change is the class of one line of a preview: a line of a diff that adds or removes.
func change(s string) string {
	switch {
	case strings.HasPrefix(s, "+"):
		return "added"
	case strings.HasPrefix(s, "-"):
		return "removed"
	}
	return ""
}

// lines is line for a text of several lines.
func lines(s string) string {
	all := strings.Split(s, "\n")
	for i, l := range all {
		all[i] = string(display.Line(l))
	}
	return strings.Join(all, "\n")
}

// pretty indents JSON for a page, each line made safe.
func pretty(b json.RawMessage) string {
	var out bytes.Buffer
	if len(b) == 0 || json.Indent(&out, b, "", "  ") != nil {
		return ""
	}
	return lines(out.String())
}

// base is the name of a file without its folder.
func base(file string) string { return line(path.Base(filepath.ToSlash(file))) }

// when shortens a record's time to a second; other text stays.
func when(at string) string {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return line(at)
	}
	return t.UTC().Format("Jan 2 15:04:05")
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// ago says how far a time is away.
func ago(t time.Time) string {
	d := time.Since(t).Round(time.Second)
	if d < 0 {
		return "in " + short(-d)
	}
	return short(d) + " ago"
}

func short(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
