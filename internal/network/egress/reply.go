package egress

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"

	"waldo/internal/model/secret"
)

// Reply is the answer that waldo itself gives to a program that asks a token end-point to renew its login (RFC 6749
// §6). Nothing of such a request goes out.
type Reply struct {
	Body  []byte                       // JSON, with placeholders
	Fresh func() (secret.Value, error) // renews the login outside; its error refuses
}

// reply returns the answer that waldo itself gives to a request; nil: there is none.
func (p *Policy) reply(method string, t Target) *Reply {
	for _, r := range p.rules(t.Host, t.Port) {
		if r.Reply != nil && r.allows(method, t.Path) {
			return r.Reply
		}
	}
	return nil
}

var (
	errReplied = refuse("replied", "waldo has answered this itself")
	errRenewal = refuse("secret.missing", "the login could not be renewed outside")
)

// renew answers a request in place of a token end-point. Requests for another grant are off, as logins inside are.
func (s *Server) renew(w http.ResponseWriter, r *http.Request, t Target, with *Reply) {
	if grantType(r) != "refresh_token" {
		s.answerRefusal(w, t.Host, t.Port, methodOf(r), errOff)
		return
	}
	status, body, why := http.StatusOK, with.Body, errReplied
	if _, err := with.Fresh(); err != nil { // a client that is answered so asks no more (RFC 6749 §5.2)
		status, why = http.StatusBadRequest, errRenewal
		body = []byte(`{"error":"invalid_grant","error_description":"waldo: ` + why.Error() + `"}`)
	}
	s.attempts.find(t.Host, t.Port, why.Code, methodOf(r), true)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// grantType returns the grant that a request to a token end-point asks for, in a form or in JSON; empty: none.
func grantType(r *http.Request) string {
	b, err := io.ReadAll(io.LimitReader(r.Body, maxLooked))
	if kind, _, bad := mime.ParseMediaType(r.Header.Get("Content-Type")); bad == nil && kind == "application/json" {
		var ask struct {
			Grant string `json:"grant_type"`
		}
		if err = errors.Join(err, json.Unmarshal(b, &ask)); err == nil {
			return ask.Grant
		}
		return ""
	}
	form, bad := url.ParseQuery(string(b))
	if errors.Join(err, bad) != nil {
		return ""
	}
	return form.Get("grant_type")
}
