package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// issuer is an authorization server and the server it issues tokens for, in one. Its fields change
// what it says; the zero issuer is honest.
type issuer struct {
	t   *testing.T
	url string

	change    func(place string, doc map[string]any) // of the documents it shows
	answer    func(q url.Values)                     // of the page's way back
	lasts     int                                    // seconds of a token
	refuses   string                                 // an error of the token endpoint
	asked     []url.Values                           // at the token endpoint
	pages     []url.Values
	clients   []map[string]any // that registered
	auth      []string         // Authorization at the token endpoint
	n         int
	wants     string // scope in the challenge
	elsewhere int    // requests to places that it does not have
	mu        sync.Mutex
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{t: t}
	srv := httptest.NewServer(i)
	i.url = srv.URL
	t.Cleanup(srv.Close)
	return i
}

func (i *issuer) show(w http.ResponseWriter, place string, doc map[string]any) {
	if i.change != nil {
		i.change(place, doc)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(doc)
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/mcp":
		w.Header().Set("WWW-Authenticate",
			fmt.Sprintf(`Bearer error="invalid_token", scope=%q,`+
				` resource_metadata="%s/.well-known/oauth-protected-resource/mcp"`, i.wants, i.url))
		w.WriteHeader(http.StatusUnauthorized)
	case "/.well-known/oauth-protected-resource/mcp":
		i.show(w, "resource", map[string]any{
			"resource": i.url + "/mcp", "authorization_servers": []string{i.url}, "scopes_supported": []string{"all"},
		})
	case "/.well-known/oauth-authorization-server":
		i.show(w, "issuer", map[string]any{"issuer": i.url, "authorization_endpoint": i.url + "/authorize",
			"token_endpoint": i.url + "/token", "registration_endpoint": i.url + "/register",
			"code_challenge_methods_supported":               []string{"S256"},
			"token_endpoint_auth_methods_supported":          []string{"none", "client_secret_basic"},
			"authorization_response_iss_parameter_supported": true})
	case "/register":
		var doc map[string]any
		_ = json.NewDecoder(r.Body).Decode(&doc)
		i.clients = append(i.clients, doc)
		w.WriteHeader(http.StatusCreated)
		i.show(w, "client", map[string]any{
			"client_id": fmt.Sprintf("client-%d", len(i.clients)), "token_endpoint_auth_method": "none",
		})
	case "/authorize":
		q := r.URL.Query()
		i.pages = append(i.pages, q)
		back := url.Values{"code": {"c0de"}, "state": {q.Get("state")}, "iss": {i.url}}
		if i.answer != nil {
			i.answer(back)
		}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	case "/token":
		_ = r.ParseForm()
		i.asked, i.auth = append(i.asked, r.PostForm), append(i.auth, r.Header.Get("Authorization"))
		if i.refuses != "" {
			w.WriteHeader(http.StatusBadRequest)
			i.show(w, "refusal", map[string]any{"error": i.refuses})
			return
		}
		i.n++
		doc := map[string]any{
			"access_token": fmt.Sprintf("token-%d", i.n), "token_type": "Bearer",
			"refresh_token": fmt.Sprintf("refresh-%d", i.n),
		}
		if i.lasts > 0 {
			doc["expires_in"] = i.lasts
		}
		i.show(w, "token", doc)
	default:
		i.elsewhere++
		http.NotFound(w, r)
	}
}

// memory is a store of a test.
type memory struct{ b []byte }

func (m *memory) Load() ([]byte, error) { return m.b, nil }
func (m *memory) Save(b []byte) error   { m.b = slices.Clone(b); return nil }

// person goes through the page, as a browser would.
func person(_ context.Context, page string) error {
	resp, err := http.Get(page)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Body.Close()
}

func (i *issuer) client(store *memory) *Client {
	return &Client{
		Server: i.url + "/mcp", HTTP: http.DefaultTransport, Store: store, Browser: person, Name: "waldo",
		Config: Config{Grant: "authorization_code"},
	}
}

func refusedWith(status int, challenge string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Www-Authenticate": {challenge}}}
}

func TestLogin(t *testing.T) {
	i := newIssuer(t)
	i.wants = "read write"
	store, learned := &memory{}, []string{}
	c := i.client(store)
	c.Learned = func(s string) error { learned = append(learned, s); return nil }
	if err := c.Login(context.Background()); err != nil {
		t.Fatal(err)
	}
	page, asked := i.pages[0], i.asked[0]
	sum := sha256.Sum256([]byte(asked.Get("code_verifier")))
	for what, ok := range map[string]bool{
		"PKCE": page.Get("code_challenge") == base64.RawURLEncoding.EncodeToString(sum[:]) &&
			page.Get("code_challenge_method") == "S256",
		"a long verifier": len(asked.Get("code_verifier")) >= 43,
		"the resource":    page.Get("resource") == i.url+"/mcp" && asked.Get("resource") == i.url+"/mcp",
		"the scopes":      page.Get("scope") == "read write",
		"the client":      page.Get("client_id") == "client-1" && asked.Get("client_id") == "client-1",
		"the way back": strings.HasPrefix(page.Get("redirect_uri"), "http://127.0.0.1:") &&
			page.Get("redirect_uri") == asked.Get("redirect_uri"),
		"the registration":   i.clients[0]["application_type"] == "native",
		"what is hidden":     strings.Join(learned, " ") == "token-1 refresh-1",
		"the code, once":     asked.Get("code") == "c0de" && len(i.asked) == 1,
		"nothing by the way": i.elsewhere == 0,
	} {
		if !ok {
			t.Errorf("%s: page %v token %v learned %v", what, page, asked, learned)
		}
	}
	again := i.client(store) // another run
	again.Browser = nil
	if token, err := again.Token(context.Background()); token != "token-1" || err != nil {
		t.Errorf("kept: %q %v", token, err)
	}
	if err := c.Login(context.Background()); err != nil || len(i.clients) != 1 {
		t.Errorf("a second login registers again: %v %d", err, len(i.clients))
	}
}

// A malformed answer of a server or an issuer ends the login before any code or secret is sent.
func TestLoginRefuses(t *testing.T) {
	for _, row := range []struct {
		why, place string
		change     func(doc map[string]any)
		answer     func(q url.Values)
		want       string
		tokens     int
	}{
		{"control", "", nil, nil, "", 1},
		{"another server's resource", "resource", func(d map[string]any) { d["resource"] = "https://bank.example.com/mcp" },
			nil, "names another resource", 0},
		{"a resource of another scheme", "resource", func(d map[string]any) {
			d["resource"] = strings.Replace(d["resource"].(string), "http://", "https://", 1)
		}, nil, "names another resource", 0},
		{
			"a resource of a user", "resource", func(d map[string]any) {
				d["resource"] = strings.Replace(d["resource"].(string), "://", "://u@", 1)
			}, nil, "names another resource", 0,
		},
		{"a resource with a query", "resource", func(d map[string]any) { d["resource"] = d["resource"].(string) + "?a=b" },
			nil, "names another resource", 0},
		{"a resource with a fragment", "resource", func(d map[string]any) { d["resource"] = d["resource"].(string) + "#a" },
			nil, "names another resource", 0},
		{"a resource of another port", "resource", func(d map[string]any) { d["resource"] = "http://127.0.0.1:1/mcp" }, nil,
			"names another resource", 0},
		{
			"an issuer with a user", "resource", func(d map[string]any) {
				d["authorization_servers"] = []string{"https://u@as.example.com"}
			}, nil, "not an address", 0,
		},
		{
			"an issuer with a fragment", "resource", func(d map[string]any) {
				d["authorization_servers"] = []string{"https://as.example.com/#x"}
			}, nil, "not an address", 0,
		},
		{
			"a resource beside it", "resource", func(d map[string]any) {
				d["resource"] = strings.Replace(d["resource"].(string), "/mcp", "/mc", 1)
			}, nil, "names another resource", 0,
		},
		{"nobody issues tokens", "resource", func(d map[string]any) { d["authorization_servers"] = []string{} }, nil,
			"names no authorization server", 0},
		{"an issuer in the clear, elsewhere", "resource",
			func(d map[string]any) { d["authorization_servers"] = []string{"http://as.example.com"} }, nil, "is not https", 0},
		{"an issuer that is a file", "resource",
			func(d map[string]any) { d["authorization_servers"] = []string{"file:///etc/passwd"} }, nil, "not an address", 0},
		{"an issuer by another name", "issuer", func(d map[string]any) { d["issuer"] = "https://other.example.com" },
			nil, "calls itself", 0},
		{"an issuer with a slash more", "issuer", func(d map[string]any) { d["issuer"] = d["issuer"].(string) + "/" },
			nil, "calls itself", 0},
		{"no PKCE", "issuer", func(d map[string]any) { delete(d, "code_challenge_methods_supported") }, nil, "PKCE", 0},
		{"PKCE in the clear", "issuer", func(d map[string]any) { d["code_challenge_methods_supported"] = []string{"plain"} },
			nil, "PKCE", 0},
		{"a page that is a script", "issuer", func(d map[string]any) { d["authorization_endpoint"] = "javascript:alert(1)" },
			nil, "not an address", 0},
		{"tokens in the clear", "issuer", func(d map[string]any) { d["token_endpoint"] = "http://as.example.com/token" },
			nil, "is not https", 0},
		{"nobody registers", "issuer", func(d map[string]any) { delete(d, "registration_endpoint") }, nil,
			"has no dynamic registration", 0},
		{"an answer of another issuer", "", nil, func(q url.Values) { q.Set("iss", "https://other.example.com") },
			"not come from the issuer", 0},
		{"an answer of nobody", "", nil, func(q url.Values) { q.Del("iss") }, "not come from the issuer", 0},
		{"no", "", nil, func(q url.Values) { q.Del("code"); q.Set("error", "access_denied\x1b[2J") },
			"refused: access_denied2J", 0},
		{"no, from another issuer", "", nil, func(q url.Values) { q.Set("iss", "x"); q.Set("error", "access_denied") },
			"not come from the issuer", 0},
		{"no code", "", nil, func(q url.Values) { q.Del("code") }, "without a code", 0},
		{"a token that breaks a header", "token", func(d map[string]any) { d["access_token"] = "a\r\nX: b" }, nil,
			"no bearer token", 1},
		{"the longest token", "token", func(d map[string]any) { d["access_token"] = strings.Repeat("a", 16<<10) },
			nil, "", 1},
		{"a longer token", "token", func(d map[string]any) { d["access_token"] = strings.Repeat("a", 16<<10+1) }, nil,
			"no bearer token", 1},
		{"a token that is padding", "token", func(d map[string]any) { d["access_token"] = "==" }, nil, "no bearer token", 1},
		{"an answer that is too long", "token", func(d map[string]any) { d["x"] = strings.Repeat("a", maxBody) }, nil,
			"more than 1048576 bytes", 1},
		{"an answer of another shape", "token", func(d map[string]any) { d["access_token"] = 1 }, nil,
			"cannot parse json", 1},
		{"a client without a name", "client", func(d map[string]any) { d["client_id"] = "" }, nil,
			"does not register waldo", 0},
		{"a token of another kind", "token", func(d map[string]any) { d["token_type"] = "mac" }, nil, "no bearer token", 1},
		{"no token", "token", func(d map[string]any) { delete(d, "access_token") }, nil, "missing access_token", 1},
	} {
		t.Run(row.why, func(t *testing.T) {
			i := newIssuer(t)
			i.change = func(place string, d map[string]any) {
				if place == row.place {
					row.change(d)
				}
			}
			i.answer = row.answer
			store := &memory{}
			err := i.client(store).Login(context.Background())
			if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("%v", err)
			}
			if len(i.asked) != row.tokens {
				t.Errorf("the token endpoint was asked %d times", len(i.asked))
			}
			if row.want != "" && strings.Contains(string(store.b), `"access"`) {
				t.Errorf("kept: %s", store.b)
			}
		})
	}
}

// TestStatuses: an answer counts by its status too. Metadata is read from a success alone, and so is a token.
func TestStatuses(t *testing.T) {
	for _, row := range []struct {
		path   string
		status int
		want   string
	}{
		{"/mcp", 401, ""}, // control: as ever
		{"/.well-known/oauth-protected-resource/mcp", 203, "HTTP status 203"},
		{"/.well-known/oauth-protected-resource/mcp", 404, "is not there"},
		{"/.well-known/oauth-protected-resource/mcp", 500, "HTTP status 500"},
		{"/.well-known/oauth-authorization-server", 404, "does not describe itself"},
		{"/.well-known/oauth-authorization-server", 500, "HTTP status 500"},
		{"/register", 500, "does not register waldo"},
		{"/token", 500, "gives no token"},
	} {
		i := newIssuer(t)
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == row.path {
				w = &says{w, row.status}
			}
			i.ServeHTTP(w, r)
		}))
		defer front.Close()
		i.url = front.URL
		err := i.client(&memory{}).Login(context.Background())
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s %d: %v, wanted %q", row.path, row.status, err, row.want)
		}
	}
}

// says answers with a status of its own.
type says struct {
	http.ResponseWriter
	status int
}

func (s *says) WriteHeader(int) {
	if s.status > 0 {
		s.ResponseWriter.WriteHeader(s.status)
	}
	s.status = 0
}

func (s *says) Write(b []byte) (int, error) {
	s.WriteHeader(0)
	return s.ResponseWriter.Write(b)
}

// A page of somebody else that leads to our door does not end the login, and is not believed.
func TestForeignAnswers(t *testing.T) {
	i := newIssuer(t)
	c := i.client(&memory{})
	c.Browser = func(ctx context.Context, page string) error {
		u, _ := url.Parse(page)
		back := u.Query().Get("redirect_uri")
		for _, q := range []string{
			"?code=evil", "?code=evil&state=x&iss=" + url.QueryEscape(i.url), "?error=access_denied&state=",
			"/../other?code=evil&state=" + url.QueryEscape(u.Query().Get("state")),
		} {
			resp, err := http.Get(back + q)
			if err != nil || resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: %v %v", q, resp, err)
			}
		}
		good := "?code=evil&state=" + url.QueryEscape(u.Query().Get("state")) + "&iss=" + url.QueryEscape(i.url)
		if resp, err := http.Post(back+good, "text/plain", nil); err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("a form that another page sends: %v %v", resp, err)
		}
		return person(ctx, page)
	}
	if err := c.Login(context.Background()); err != nil || i.asked[0].Get("code") != "c0de" {
		t.Errorf("%v %v", err, i.asked)
	}
}

func TestRenewal(t *testing.T) {
	i := newIssuer(t)
	i.lasts = 20 // less than early: it is over as soon as it is there
	store := &memory{}
	if err := i.client(store).Login(context.Background()); err != nil {
		t.Fatal(err)
	}
	c := i.client(store)
	c.Browser = nil
	if token, err := c.Token(context.Background()); token != "token-2" || err != nil ||
		i.asked[1].Get("refresh_token") != "refresh-1" || i.asked[1].Get("resource") != i.url+"/mcp" {
		t.Errorf("%q %v %v", token, err, i.asked)
	}
	i.lasts = 3600
	c.issued = time.Now().Add(-time.Minute)
	if again, err := c.Refused(context.Background(), "token-2", refusedWith(401, "Bearer")); !again || err != nil {
		t.Fatalf("%v %v", again, err)
	}
	if again, err := c.Refused(context.Background(), "token-2", refusedWith(401, "Bearer")); !again ||
		err != nil || i.n != 3 {
		t.Errorf("a call that used the token before: %v %v, %d tokens", again, err, i.n)
	}
	if again, err := c.Refused(context.Background(), "token-3", refusedWith(401, "Bearer")); again ||
		err != nil || i.n != 3 {
		t.Errorf("a token that was only just issued is refused: %v %v, %d tokens", again, err, i.n)
	}
	i.refuses = "invalid_grant"
	c.issued = time.Now().Add(-time.Minute)
	if again, err := c.Refused(context.Background(), "token-3", refusedWith(401, "Bearer")); again ||
		!errors.Is(err, ErrLogin) {
		t.Errorf("a login that is over: %v %v", again, err)
	}
	if strings.Contains(string(store.b), "refresh-") {
		t.Errorf("kept: %s", store.b)
	}
}

// More scopes are requested once if the server names some that the token lacks, never in a loop.
func TestStepUp(t *testing.T) {
	i := newIssuer(t)
	i.wants = "read"
	c := i.client(&memory{})
	if err := c.Login(context.Background()); err != nil {
		t.Fatal(err)
	}
	need := `Bearer error="insufficient_scope", scope="write"`
	if again, err := c.Refused(context.Background(), "token-1", refusedWith(403, need)); !again || err != nil {
		t.Fatalf("%v %v", again, err)
	}
	if got := i.pages[1].Get("scope"); got != "read write" {
		t.Errorf("asked for %q", got)
	}
	if again, err := c.Refused(context.Background(), "token-2", refusedWith(403, need)); again || err != nil ||
		len(i.pages) != 2 {
		t.Errorf("the same again: %v %v, %d pages", again, err, len(i.pages))
	}
	if again, err := c.Refused(context.Background(), "token-2", refusedWith(403, `Basic realm="x"`)); again || err != nil {
		t.Errorf("a refusal for another reason: %v %v", again, err)
	}
	c.Browser = nil
	if again, err := c.Refused(context.Background(), "token-2", refusedWith(403, `Bearer scope="admin"`)); again ||
		!errors.Is(err, ErrLogin) {
		t.Errorf("without a person: %v %v", again, err)
	}
	c.Browser = person
	if err := c.Login(context.Background()); err != nil || i.pages[2].Get("scope") != "read write admin" {
		t.Errorf("the next login: %v %v", err, i.pages[2])
	}
}

func TestClientCredentials(t *testing.T) {
	i := newIssuer(t)
	i.wants = "read"
	c := i.client(&memory{})
	c.Browser = nil
	c.Config = Config{Grant: "client_credentials", ClientID: "w:1", Secret: func() (string, error) { return "s&1", nil }}
	if again, err := c.Refused(context.Background(), "", refusedWith(401, `Bearer scope="read"`)); !again || err != nil {
		t.Fatalf("%v %v", again, err)
	}
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("w%3A1:s%261"))
	if i.auth[0] != want || i.asked[0].Get("grant_type") != "client_credentials" || i.asked[0].Get("scope") != "read" ||
		i.asked[0].Has("client_secret") {
		t.Errorf("%q %v", i.auth, i.asked)
	}
}

// Credentials of one issuer never go to another.
func TestAnotherIssuer(t *testing.T) {
	i, other := newIssuer(t), newIssuer(t)
	store := &memory{}
	if err := i.client(store).Login(context.Background()); err != nil {
		t.Fatal(err)
	}
	i.change = func(place string, d map[string]any) {
		if place == "resource" {
			d["authorization_servers"] = []string{other.url}
		}
	}
	if err := i.client(store).Login(context.Background()); err != nil || len(other.clients) != 1 ||
		other.asked[0].Get("client_id") != "client-1" || strings.Contains(fmt.Sprint(other.asked, other.pages), "refresh-") {
		t.Errorf("%v %v", err, other.asked)
	}
	c := i.client(store)
	c.Config.ClientID, c.Config.Secret = "mine", func() (string, error) { return "s", nil }
	i.change = nil
	if err := c.Login(context.Background()); err == nil || !strings.Contains(err.Error(), "another issuer") {
		t.Errorf("a client that is registered elsewhere: %v", err)
	}
	c.Config.Issuer = "https://as.example.com"
	if err := c.Login(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "other issuers than oauth.issuer") {
		t.Errorf("an issuer that is not named: %v", err)
	}
}

// FuzzChallenge: for any header of a server, the parsed scopes are valid in a request and at most maxScopes.
func FuzzChallenge(f *testing.F) {
	for _, s := range []string{
		`Bearer scope="a b", resource_metadata="https://h/x"`, `Bearer a=b,c="d\"e"`,
		`bearer realm=x scope=`, `Bearer scope="`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := challenged(http.Header{"Www-Authenticate": {s}})
		if len(c.scopes) > maxScopes || (c.metadata != "" || c.scopes != nil) && !c.bearer {
			t.Fatalf("%q: %+v", s, c)
		}
		for _, one := range c.scopes {
			if !scope(one) || !strings.Contains(strings.ReplaceAll(s, `\`, ""), one) {
				t.Fatalf("%q: scope %q", s, one)
			}
		}
	})
}
