package site

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"time"

	template "github.com/DataDog/datadog-agent/pkg/template/html"

	"waldo/internal/model/display"
	"waldo/internal/model/facts"
)

// pageRoutes are the pages. A new page adds its route here, its handler in page_NAME.go and templates/NAME.html.
func (s *Server) pageRoutes() []route {
	get, post := http.MethodGet, http.MethodPost
	return []route{
		{get, "/{$}", RoleViewer, false, s.pageStart},
		{get, "/login", RoleNone, true, s.pageLogin},
		{post, "/login", RoleNone, true, s.postLogin},
		{get, pathOIDC, RoleNone, true, s.pageOIDC},
		{get, pathOIDCBack, RoleNone, true, s.pageOIDCBack},
		{post, "/logout", RoleViewer, false, s.postLogout},
		{get, "/enrol", RoleNone, true, s.pageEnrol},
		{get, "/approvals", RoleViewer, false, s.pageApprovals},
		{get, "/approvals/{id}", RoleViewer, false, s.pageApproval},
		{get, "/approvals/{id}/state", RoleViewer, false, s.pageState},
		{get, "/calls", RoleViewer, false, s.pageCalls},
		{get, "/calls/{id}", RoleViewer, false, s.pageCall},
		{get, "/sessions", RoleViewer, false, pagePart(s, "sessions", "Sessions", Backend.Agents)},
		{get, "/sessions/{name}", RoleViewer, false, s.pageSession},
		{post, "/sessions/{name}/stop", RoleOperator, false, s.stop(false)},
		{post, "/sessions/{name}/release", RoleOperator, false, s.stop(true)},
		{get, "/sandboxes", RoleViewer, false, pageAll(s, "sandboxes", "Sandboxes", Backend.Sandboxes)},
		{post, "/sandboxes/{name}/pause", RoleOperator, false, s.sandbox("pause")},
		{post, "/sandboxes/{name}/resume", RoleOperator, false, s.sandbox("resume")},
		{post, "/sandboxes/{name}/stop", RoleOperator, false, s.sandbox("stop")},
		{get, "/servers", RoleViewer, false, pageAll(s, "servers", "Servers", Backend.Upstreams)},
		{get, "/servers/{name}", RoleViewer, false, s.pageServer},
		{post, "/servers/{name}/restart", RoleOperator, false, s.restart},
		{get, "/egress", RoleViewer, false, s.pageEgress},
		{get, "/webhooks", RoleViewer, false, s.pageWebhooks},
		{post, "/webhooks/{id}/retry", RoleOperator, false, s.deliver("retry")},
		{post, "/webhooks/{id}/drop", RoleOperator, false, s.deliver("drop")},
		{get, "/contracts", RoleViewer, false, s.pageContracts},
		{post, "/contracts/dry-run", RoleViewer, false, s.postDryRun},
		{post, "/contracts/what-if", RoleOperator, false, s.postWhatIf},
		{get, "/pins", RoleViewer, false, pageAll(s, "pins", "Pins", Backend.Pins)},
		{get, "/usage", RoleViewer, false, s.pageUsage},
		{get, "/log", RoleViewer, false, s.pageLog},
		{post, "/log/verify", RoleViewer, false, s.postVerify},
	}
}

// link is one entry of the navigation.
type link struct{ Path, Name, Icon string }

// nav are the links beside each page.
var nav = []struct {
	Name  string
	Pages []link
}{
	{"Now", []link{{"/", "Overview", "home"}, {"/approvals", "Approvals", "inbox"}, {"/sessions", "Sessions", "agent"},
		{"/calls", "Calls", "calls"}}},
	{"Set-up", []link{{"/servers", "Servers", "server"}, {"/contracts", "Contracts", "file"},
		{"/sandboxes", "Sandboxes", "box"}, {"/webhooks", "Webhooks", "hook"}}},
	{"History", []link{{"/egress", "Egress", "globe"}, {"/usage", "Usage", "chart"}, {"/log", "Log", "list"}}},
}

// here is the value of aria-current of a link on the page at a path.
func here(of, at string) string {
	switch {
	case of == at:
		return "page"
	case of != "/" && strings.HasPrefix(at, of+"/"):
		return "true"
	}
	return ""
}

// pages are the parsed templates, by name.
type pages struct{ by map[string]*template.Template }

// parsePages parses each template with layout.html around it. The templates are part of the program, so an error is a
// mistake in it. The package's templates call functions, never methods: so the linker can leave unused methods out.
func parsePages() *pages {
	p := &pages{by: map[string]*template.Template{}}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		panic(err)
	}
	base := template.New("").Funcs(template.FuncMap{
		"ago": ago, "line": line, "pretty": pretty, "colour": colour, "lines": lines, "base": base, "change": change,
		"size":    size,
		"segment": url.PathEscape, "standing": standing, "here": here, "icon": icon, "moment": momentOf, "pill": pillOf,
		"millis": millis, "story": storyOf, "host": hostOf, "place": placeOf, "count": display.Count, "left": left,
		"waited": waited, "share": share, "because": Because, "texts": callView.Texts, "plain": callView.Plain,
		"acted": ran.Acted, "ended": ran.Ended, "uses": ran.Uses, "level": Used.Level, "result": facts.Attempt.Result,
		"diff": Pin.Lines,
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
	Here                       Here
	Nav                        any
	MayAct                     bool // an operator
	Data                       any
}

// show draws a page.
func (s *Server) show(q *request, status int, page, title string, data any) error {
	var b bytes.Buffer
	v := view{Title: title, Path: q.URL.Path, CSRF: q.csrf, Version: s.o.Version, Who: q.who, Nav: nav, Data: data,
		MayAct: q.who.Role >= RoleOperator}
	if q.n != nil {
		var err error
		if v.Here, err = s.o.Backend.Here(q.Context()); err != nil {
			return err
		}
	}
	if err := s.pages.by[page].ExecuteTemplate(&b, "layout.html", v); err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	q.w.WriteHeader(status)
	_, _ = b.WriteTo(q.w)
	return nil
}

// pageAll draws what a method of the backend returns.
func pageAll[T any](s *Server, page, title string, from func(Backend, context.Context) (T, error)) func(*request) error {
	return func(q *request) error {
		v, err := from(s.o.Backend, q.Context())
		if err != nil {
			return err
		}
		return s.show(q, http.StatusOK, page, title, v)
	}
}

// pagePart draws a part of a list.
func pagePart[T any](s *Server, page, title string, from func(Backend, context.Context, Page) (T, error)) func(*request) error {
	return func(q *request) error {
		p, err := q.page()
		if err != nil {
			return err
		}
		v, err := from(s.o.Backend, q.Context(), p)
		if err != nil {
			return err
		}
		return s.show(q, http.StatusOK, page, title, v)
	}
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

// moment is a time as pages show it: script puts it into the reader's zone.
type moment struct{ ISO, UTC, Text string }

// momentOf reads a record's time or a time.Time. Other text is shown as it is.
func momentOf(at any) moment {
	t, ok := at.(time.Time)
	if text, is := at.(string); is {
		var err error
		if t, err = time.Parse(time.RFC3339, text); err != nil {
			return moment{Text: line(text)}
		}
		ok = true
	}
	if !ok || t.IsZero() {
		return moment{}
	}
	t = t.UTC()
	return moment{t.Format(time.RFC3339), t.Format("2006-01-02 15:04:05 UTC"), t.Format("2 Jan 15:04:05 UTC")}
}

// pill is a result with its colour and its glyph.
type pill struct{ Class, Icon, Word string }

func pillOf(word string) pill {
	p := pill{"", "clock", word}
	switch word {
	case Done, "ok", "yes", "allow", "allowed", facts.Reached, "ready", "resumed":
		p.Class, p.Icon = "good", "check"
	case WaitsFor, "ask", "asked", Approved, "idle", "paused", "pending", "changed":
		p.Class = "warn"
	case DeniedBy, "deny", "no", facts.Refused, "stopped", "problem":
		p.Class, p.Icon = "bad", "cross"
	case Failed, Timeout, OOM, Lost, facts.Unreached, "failing", "unknown":
		p.Class, p.Icon = "bad", "warn"
	case Running:
		p.Class, p.Icon = "run", "play"
	}
	return p
}

// icons are paths in a square of 16.
var icons = map[string]string{
	"home": "M2.5 7.5 8 3l5.5 4.5V13h-11z", "inbox": "M2.5 9 4 3.5h8L13.5 9v3.5h-11zM2.5 9h3l1 1.5h3l1-1.5h3",
	"agent": "M3 5.5h10v7H3zM8 5.5V3M6 9h.01M10 9h.01", "calls": "M3 4.5h10M3 8h7M3 11.5h4.5",
	"server": "M2.5 3h11v4h-11zM2.5 9h11v4h-11z", "file": "M4 2.5h5l3 3v8H4zM6.5 8h3M6.5 10.5h3",
	"box":   "m8 2.5 5 2.75v5.5L8 13.5l-5-2.75v-5.5zM3 5.25 8 8l5-2.75M8 8v5.5",
	"hook":  "M2.5 11a1.5 1.5 0 1 0 3 0 1.5 1.5 0 1 0-3 0M10.5 11a1.5 1.5 0 1 0 3 0 1.5 1.5 0 1 0-3 0M5.5 11h5M5 9.5 8 4l2.5 4.5",
	"globe": "M2.5 8a5.5 5.5 0 1 0 11 0 5.5 5.5 0 1 0-11 0M2.5 8h11M8 2.5c3.5 3.5 3.5 7.5 0 11-3.5-3.5-3.5-7.5 0-11",
	"chart": "M3 13V8M8 13V3M13 13V6", "list": "M5.5 4h8M5.5 8h8M5.5 12h8M2.5 4h.01M2.5 8h.01M2.5 12h.01",
	"menu": "M2.5 4.5h11M2.5 8h11M2.5 11.5h11", "check": "m3.5 8.5 3 3 6-7", "cross": "m4 4 8 8M12 4l-8 8",
	"warn": "M8 2.5 14 13H2zM8 6.5V9M8 11h.01", "clock": "M2.5 8a5.5 5.5 0 1 0 11 0 5.5 5.5 0 1 0-11 0M8 5v3l2 1.5",
	"play": "M5 3.5 12 8l-7 4.5z", "pin": "M8 9.5V14M5 9.5h6M6 2.5h4L9.5 6l1.5 3.5H5L6.5 6z",
}

func icon(name string) string { return icons[name] }

// hostOf names an agent: as its host calls itself, else by who calls.
func hostOf(agent, principal string) string { return line(cmp.Or(agent, principal, "unknown")) }

// placeOf returns where a session is: a folder, with ~ for a home; else how it calls.
func placeOf(folder, channel string) string {
	if folder == "" {
		return "over " + line(channel)
	}
	for _, homes := range []string{"/home/", "/Users/"} {
		if rest, ok := strings.CutPrefix(folder, homes); ok {
			if _, below, ok := strings.Cut(rest, "/"); ok {
				return "in " + line("~/"+below)
			}
		}
	}
	return "in " + line(folder)
}

// share is a part of a whole in percent.
func share(part, whole int) int { return 100 * part / max(1, whole) }

// left is how long a question still waits.
func left(t time.Time) string {
	if d := time.Until(t); d > 0 {
		return short(d) + " left"
	}
	return "over"
}

// ago returns how far a time is away.
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
