package launch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"waldo/internal/storage/safefile"
)

// Login says how a host renews the login that it keeps in a file. The names are fields of that file, as in a.b.
type Login struct {
	URL     string            `yaml:"url"`     // of the issuer's token end-point
	Client  string            `yaml:"client"`  // its public id of the host
	Public  string            `yaml:"public"`  // what goes with that id, where the issuer wants it; no secret
	Form    bool              `yaml:"form"`    // asked as a form, not as JSON
	Own     string            `yaml:"own"`     // the field with another id; empty: none
	Scope   string            `yaml:"scope"`   // asked for; empty: the issuer's usual one
	Refresh string            `yaml:"refresh"` // the field with the refresh token
	Expires string            `yaml:"expires"` // the field with the end, in ms since 1970; empty: the token is a JWT
	Renewed string            `yaml:"renewed"` // the field with the time of the last renewal; empty: none
	Fields  map[string]string `yaml:"fields"`  // of the answer, to fields of the file
	Inside  string            `yaml:"inside"`  // what waldo answers a host that asks in its sandbox; empty: that is off
}

// inside returns the line of egress by which a host in a sandbox asks its issuer for a renewal, and what waldo answers
// there itself: the session's placeholder, which does not end, and others for what a host has besides.
func (l Login) inside(holder string) (line, answer string, err error) {
	u, err := url.Parse(l.URL)
	if l.Inside == "" || err != nil {
		return "", "", err
	}
	return "POST " + u.Hostname() + ":" + cmp.Or(u.Port(), "443") + u.Path,
		strings.NewReplacer("{token}", holder, "{random}", placeholder(""), "{jwt}", placeholder("jwt")).Replace(l.Inside), nil
}

// ahead is how long before its end a login is renewed. A session asks for the token at least as often.
const ahead = 10 * time.Minute

// there reports whether a host keeps a login in its file.
func (k Credential) there(person string) bool {
	login, err := readLogin(filepath.Join(person, k.File))
	return err == nil && field(login, k.Field) != ""
}

// token returns the token of a login. One that is about to end is renewed first, by one process at a time, and written to
// the host's own file as the host itself does: a refresh token is good for one use.
func (k Credential) token(ctx context.Context, person string, web *http.Client) (string, error) {
	file, err := filepath.EvalSymlinks(filepath.Join(person, k.File))
	if err != nil {
		return "", err
	}
	login, err := readLogin(file)
	if err != nil {
		return "", err
	}
	if k.Renew.URL == "" || !k.ends(login, time.Now().Add(ahead)) {
		return field(login, k.Field), nil
	}
	folder, err := os.Open(filepath.Dir(file)) // a lock file of another program's form could confuse the host
	if err != nil {
		return "", err
	}
	defer folder.Close()
	if err := safefile.LockWithin(ctx, folder); err != nil {
		return "", err
	}
	if login, err = readLogin(file); err != nil { // another process can have renewed it meanwhile
		return "", err
	}
	if now := time.Now(); k.ends(login, now.Add(ahead)) {
		if err := k.Renew.renew(ctx, login, web, now); err != nil && !k.ends(login, now) {
			return field(login, k.Field), nil // it is still good
		} else if err != nil {
			return "", err
		}
		b, err := json.MarshalIndent(login, "", "  ")
		if err != nil {
			return "", err
		}
		if err := safefile.Replace(file, b, 0o600); err != nil {
			return "", fmt.Errorf("the renewed login cannot be written: %w", err)
		}
	}
	return field(login, k.Field), nil
}

// ends reports whether a login has a refresh token, and its token ends before a time. One whose end is not known does not.
func (k Credential) ends(login map[string]any, before time.Time) bool {
	var end time.Time
	if k.Renew.Expires != "" {
		ms, _ := at(login, k.Renew.Expires).(json.Number)
		if n, err := ms.Int64(); err == nil {
			end = time.UnixMilli(n)
		}
	} else {
		end = expiry(field(login, k.Field))
	}
	return field(login, k.Renew.Refresh) != "" && !end.IsZero() && end.Before(before)
}

// expiry returns the end that a JWT names. Its signature is the issuer's business.
func expiry(token string) time.Time {
	parts := strings.Split(token, ".")
	var claims struct{ Exp int64 }
	if len(parts) != 3 {
		return time.Time{}
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil || json.Unmarshal(b, &claims) != nil || claims.Exp == 0 {
		return time.Time{}
	}
	return time.Unix(claims.Exp, 0)
}

// renew asks the issuer for new tokens and puts them into the login. Its errors show neither tokens nor answers.
func (l Login) renew(ctx context.Context, login map[string]any, web *http.Client, now time.Time) error {
	ask := map[string]string{"grant_type": "refresh_token", "refresh_token": field(login, l.Refresh), "client_id": l.Client}
	if own := field(login, l.Own); own != "" {
		ask["client_id"] = own
	}
	if l.Scope != "" {
		ask["scope"] = l.Scope
	}
	if l.Public != "" {
		ask["client_secret"] = l.Public
	}
	body, kind, err := l.body(ask)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", kind)
	here := *web // a refresh token goes to no other place
	here.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := here.Do(req)
	if err != nil {
		return fmt.Errorf("the issuer of the login cannot be reached: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the issuer did not renew the login: HTTP %d", resp.StatusCode)
	}
	var got map[string]any
	d := json.NewDecoder(io.LimitReader(resp.Body, 1<<20))
	d.UseNumber()
	if err := d.Decode(&got); err != nil || field(got, "access_token") == "" {
		return errors.New("the issuer's answer has no token")
	}
	for from, to := range l.Fields {
		if text := field(got, from); text != "" { // what is missing stays
			set(login, to, text)
		}
	}
	if seconds, ok := got["expires_in"].(json.Number); ok && l.Expires != "" {
		n, err := seconds.Int64()
		if err != nil {
			return errors.New("the issuer's answer has no end that can be read")
		}
		set(login, l.Expires, now.Add(time.Duration(n)*time.Second).UnixMilli())
	}
	if l.Renewed != "" {
		set(login, l.Renewed, now.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// body returns what an issuer is asked, and its type.
func (l Login) body(ask map[string]string) (b []byte, kind string, err error) {
	if !l.Form {
		b, err = json.Marshal(ask)
		return b, "application/json", err
	}
	form := url.Values{}
	for k, v := range ask {
		form.Set(k, v)
	}
	return []byte(form.Encode()), "application/x-www-form-urlencoded", nil
}

func readLogin(file string) (login map[string]any, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&login); err != nil {
		return nil, errors.New("the login of the host cannot be read")
	}
	return login, nil
}

// at returns a field of JSON, as in a.b; nil: it is not there.
func at(v any, field string) any {
	for name := range strings.SplitSeq(field, ".") {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// field is at for a text.
func field(v any, name string) string {
	s, _ := at(v, name).(string)
	return s
}

// set sets a field of JSON whose object is there.
func set(v map[string]any, name string, to any) {
	above, last := "", name
	if i := strings.LastIndex(name, "."); i >= 0 {
		above, last = name[:i], name[i+1:]
		v, _ = at(v, above).(map[string]any)
	}
	if v != nil {
		v[last] = to
	}
}
