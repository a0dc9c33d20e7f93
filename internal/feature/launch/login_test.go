package launch

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// issuer is a token end-point whose refresh tokens are good for one use each.
type issuer struct {
	mu     sync.Mutex
	good   string // the refresh token that is
	asked  []map[string]string
	status int
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var ask map[string]string
	if r.URL.Path == "/elsewhere" {
		i.asked = append(i.asked, ask)
	}
	w.Header().Set("Location", "/elsewhere")
	if strings.HasSuffix(r.Header.Get("Content-Type"), "form-urlencoded") && r.ParseForm() == nil {
		ask = map[string]string{}
		for k := range r.PostForm {
			ask[k] = r.PostForm.Get(k)
		}
	} else if json.NewDecoder(r.Body).Decode(&ask) != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	if r.Method != http.MethodPost || ask["grant_type"] != "refresh_token" ||
		ask["refresh_token"] != i.good || i.status != 0 {
		http.Error(w, `{"error":"invalid_grant"}`, cmp.Or(i.status, http.StatusBadRequest))
		return
	}
	i.asked = append(i.asked, ask)
	i.good = fmt.Sprintf("refresh-%d", len(i.asked)+1)
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": jwtUntil(time.Now().Add(time.Hour)), "refresh_token": i.good,
		"id_token": "id-new", "expires_in": 3600})
}

func jwtUntil(end time.Time) string {
	part := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, end.Unix()))
	return "e30." + part + ".sig"
}

// TestRenew: a login that is about to end is renewed once, also by many at a time, and written as the host keeps it. One
// that lasts is not; one that cannot be renewed is an error that shows no token; the file then stays as it was.
func TestRenew(t *testing.T) {
	soon, late := time.Now().Add(time.Minute), time.Now().Add(time.Hour)
	files := map[string]func(end time.Time) string{
		"claude": func(end time.Time) string {
			return fmt.Sprintf(`{"claudeAiOauth": {"accessToken": "sk-ant-oat01-old", "refreshToken": "refresh-1", "expiresAt": %d,
				"scopes": ["user:inference"], "subscriptionType": "pro"}, "other": 12345678901234567890}`, end.UnixMilli())
		},
		"codex": func(end time.Time) string {
			return `{"auth_mode": "chatgpt", "OPENAI_API_KEY": null, "tokens": {"id_token": "id-old", "access_token": "` +
				jwtUntil(end) + `", "refresh_token": "refresh-1", "account_id": "a"}, "last_refresh": "2025-01-01T00:00:00Z"}`
		},
		"gemini": func(end time.Time) string {
			return fmt.Sprintf(`{"access_token": "ya29.old", "refresh_token": "refresh-1", "expiry_date": %d, "scope": "a b",
				"token_type": "Bearer", "id_token": "id-old"}`, end.UnixMilli())
		},
	}
	for name, file := range files {
		for _, row := range []struct {
			what    string
			end     time.Time
			status  int
			renewed bool
			err     string
		}{
			{"it lasts", late, 0, false, ""}, // the control
			{"it ends soon", soon, 0, true, ""},
			{"it has ended", time.Now().Add(-time.Hour), 0, true, ""},
			{"the issuer refuses", time.Now().Add(-time.Hour), http.StatusUnauthorized, false, "HTTP 401"},
			{"the issuer names another place", time.Now().Add(-time.Hour), http.StatusTemporaryRedirect, false, "HTTP 307"},
			{"it is still good", soon, http.StatusServiceUnavailable, false, ""},
		} {
			t.Run(name+" "+row.what, func(t *testing.T) {
				p, err := Find(name)
				if err != nil {
					t.Fatal(err)
				}
				var k Credential
				for _, c := range p.Credentials {
					if c.File != "" {
						k = c
					}
				}
				i := &issuer{good: "refresh-1", status: row.status}
				srv := httptest.NewServer(i)
				defer srv.Close()
				if !strings.HasPrefix(k.Renew.URL, "https://") {
					t.Errorf("%s is renewed in the clear", k.Renew.URL)
				}
				k.Renew.URL = srv.URL
				person := t.TempDir()
				at, before := filepath.Join(person, k.File), file(row.end)
				if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(at, []byte(before), 0o600); err != nil {
					t.Fatal(err)
				}
				var all sync.WaitGroup
				for range 5 {
					all.Go(func() {
						token, err := k.token(t.Context(), person, srv.Client())
						if row.err != "" {
							if err == nil || !strings.Contains(err.Error(), row.err) || strings.Contains(err.Error(), "refresh-1") {
								t.Errorf("%q %v", token, err)
							}
							return
						}
						if old := strings.Contains(before, token); err != nil || token == "" || old == row.renewed {
							t.Errorf("%q %v", token, err)
						}
					})
				}
				all.Wait()
				now, err := os.ReadFile(at)
				if err != nil {
					t.Fatal(err)
				}
				if !row.renewed {
					if string(now) != before || len(i.asked) > 0 {
						t.Errorf("%v\n%s", i.asked, now)
					}
					return
				}
				if len(i.asked) != 1 || i.asked[0]["client_id"] != k.Renew.Client || i.asked[0]["client_secret"] != k.Renew.Public {
					t.Errorf("asked %v", i.asked)
				}
				for _, want := range map[string][]string{
					"claude": {`"refreshToken": "refresh-2"`, `"subscriptionType": "pro"`, "12345678901234567890"},
					"gemini": {`"refresh_token": "refresh-2"`, `"id_token": "id-new"`, `"scope": "a b"`},
					"codex":  {`"refresh_token": "refresh-2"`, `"id_token": "id-new"`, `"account_id": "a"`, `"OPENAI_API_KEY": null`},
				}[name] {
					if !strings.Contains(string(now), want) {
						t.Errorf("%s is not in %s", want, now)
					}
				}
				login, err := readLogin(at)
				if err != nil || k.ends(login, time.Now().Add(ahead)) || strings.Contains(string(now), "2025-01-01") {
					t.Errorf("%v %s", err, now)
				}
				if info, err := os.Stat(at); err != nil || info.Mode().Perm() != 0o600 {
					t.Error(info, err)
				}
			})
		}
	}
}
