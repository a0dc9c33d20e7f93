package a2a

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"waldo/internal/app"
	"waldo/internal/core/audit"
	"waldo/internal/core/delegation"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// handed is the token of a delegation of the authority of token:ann, and its id.
func (b *bench) handed(for_ call.Principal, danger int, allow ...contract.Pattern) (token, id string) {
	b.t.Helper()
	token, link, why, err := b.h.Delegate(b.t.Context(), "", "token:ann", delegation.Request{For: for_,
		Lifetime: time.Hour,
		Bounds:   delegation.Bounds{Allow: allow, Danger: danger, Calls: 10}})
	if err != nil || why != nil {
		b.t.Fatal(why, err)
	}
	return token, link.ID
}

// underToken is a message for a skill under a delegation.
func underToken(skill, token string) string {
	return fmt.Sprintf(`{"message":{"messageId":"m%d","role":"ROLE_USER","metadata":{"skill":%q,"waldo/delegation":%s},"parts":[{"text":"x"}]}}`,
		messages.Add(1), skill, token)
}

// TestDelegatedTask: a task whose message names a delegation has no more than that. The token is not stored.
func TestDelegatedTask(t *testing.T) {
	b, bob := two(t, "")
	token, link := b.handed("token:ann", 1, "t.echo")
	quoted := `"` + token + `"`
	done := b.send(underToken("t.echo", quoted))
	if done.Status.State != Completed || strings.Contains(fmt.Sprintf("%+v", done.History), token) {
		t.Errorf("control: %+v", done)
	}
	if wide := b.send(message("t.note", "x")); wide.Status.State != InputRequired {
		t.Errorf("control: without the delegation: %+v", wide)
	}
	if wide := b.send(underToken("t.note", quoted)); wide.Status.State != Rejected || !strings.Contains(said(wide),
		"delegation.capability") {
		t.Errorf("another skill: %+v %s", wide, said(wide))
	}
	high, _ := b.handed("token:ann", 1, "t.*")
	if wide := b.send(underToken("t.note", `"`+high+`"`)); wide.Status.State != Rejected ||
		!strings.Contains(said(wide), "delegation.danger") {
		t.Errorf("above its danger: %+v %s", wide, said(wide))
	}
	other, _ := b.handed("token:bob", 1, "t.echo")
	for why, row := range map[string]struct {
		who         *bench
		token, want string
	}{
		"of another principal": {b.as(bob), quoted, "delegation.principal"},
		"control: of bob":      {b.as(bob), `"` + other + `"`, ""},
		"not a token":          {b, `"x"`, "delegation.malformed"},
		"not a text":           {b, `{}`, "delegation.malformed"},
		"an empty text":        {b, `""`, "delegation.malformed"},
		"another secret":       {b, `"` + token[:len(token)-4] + `aaaa"`, "delegation."},
	} {
		_, body := row.who.do("POST", "/a2a/message:send", underToken("t.echo", row.token))
		if row.want == "" && !strings.Contains(body, string(Completed)) || row.want != "" && !strings.Contains(body,
			row.want) {
			t.Errorf("%s: %s", why, body)
		}
	}
	waits, waitsLink := b.handed("token:ann", 2, "t.note")
	asked, free := b.send(underToken("t.note", `"`+waits+`"`)), b.send(message("t.note", "y"))
	if asked.Status.State != InputRequired || free.Status.State != InputRequired {
		t.Fatalf("%+v %+v", asked, free)
	}
	s, err := app.OpenRecorded(t.Context(), b.state, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, one := range []string{link, waitsLink} {
		if _, err := s.Revoke(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	over := b.until(asked.ID, Rejected) // without any answer
	if open, err := b.h.Approvals.Pending(t.Context()); err != nil || len(open) != 2 {
		t.Errorf("its question waits still: %+v %v", open, err)
	}
	b.answerAll()
	b.until(free.ID, Completed) // control: the yes counts without a delegation
	if !strings.Contains(said(over), "delegation.revoked") || b.noted.Load() != 2 {
		t.Errorf("a task that waited: %+v %s", over, said(over))
	}
	if _, body := b.do("POST", "/a2a/message:send", underToken("t.echo", quoted)); !strings.Contains(body,
		"delegation.revoked") {
		t.Errorf("after its end: %s", body)
	}
}

// logged counts the records of the log that hold a text.
func (b *bench) logged(text string) (n int) {
	b.t.Helper()
	if err := audit.Range(b.t.Context(), audit.Dir(b.state), 0, 1<<62, func(r audit.Record) error {
		n += min(strings.Count(string(r.Body), text), 1)
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// TestUnexposed: a message to a skill that is not on the card is refused and recorded, with any arguments.
func TestUnexposed(t *testing.T) {
	b := newBench(t, "")
	if done := b.send(message("t.echo", "x")); done.Status.State != Completed || b.logged(`"a2a.unexposed"`) != 0 {
		t.Errorf("control: %+v", done)
	}
	for i, text := range []string{message("t.hidden", "x"), message("t.absent", "x"),
		`{"message":{"messageId":"n","role":"ROLE_USER","parts":[{"data":[1]}],"metadata":{"skill":"t.hidden"}}}`} {
		if _, body := b.do("POST", "/a2a/message:send", text); !strings.Contains(body, "a2a.unexposed") ||
			b.logged(`"a2a.unexposed"`) != 2*(i+1) { // the decision and its end
			t.Errorf("%s: %s, %d records", text, body, b.logged(`"a2a.unexposed"`))
		}
	}
	if b.logged(`"capability":"t.hidden"`) != 4 {
		t.Error("the records do not name the skill")
	}
}

// TestDelegatedFollowUp: a later message names the delegation of its task, or is refused. Its token is not stored.
func TestDelegatedFollowUp(t *testing.T) {
	b := newBench(t, "")
	own, link := b.handed("token:ann", 2, "t.note")
	narrow, _ := b.handed("token:ann", 1, "t.echo")
	under, free := b.send(underToken("t.note", `"`+own+`"`)), b.send(message("t.note", "x"))
	if under.Status.State != InputRequired || free.Status.State != InputRequired {
		t.Fatalf("%+v %+v", under, free)
	}
	more := func(task, message, request string) string {
		_, body := b.do("POST", "/a2a/message:send",
			fmt.Sprintf(`{"message":{"messageId":"m%d","taskId":%q,"role":"ROLE_USER",`+
				`"metadata":{"kept":1%s},"parts":[{"text":"x"}]},"metadata":{"kept":1%s},"configuration":{"returnImmediately":true}}`,
				messages.Add(1), task, message, request))
		return body
	}
	named := func(token string) string { return `,"waldo/delegation":"` + token + `"` }
	for why, row := range map[string]struct{ task, message, request, want string }{
		"control: none":           {under.ID, "", "", `"kept":1`},
		"control: its own":        {under.ID, named(own), "", `"kept":1`},
		"a narrow one":            {under.ID, named(narrow), "", "delegation.outside"},
		"one, where it has none":  {free.ID, named(own), "", "delegation.outside"},
		"not a token":             {under.ID, `,"waldo/delegation":{}`, "", "delegation.malformed"},
		"in the request":          {under.ID, "", named(own), "write it in message.metadata"},
		"in the request, not one": {under.ID, "", `,"waldo/delegation":null`, "write it in message.metadata"},
	} {
		if body := more(row.task, row.message, row.request); !strings.Contains(body, row.want) {
			t.Errorf("%s: %s", why, body)
		}
	}
	first := strings.Replace(message("t.echo", "x"), `"message":`,
		`"metadata":{"waldo/delegation":"`+own+`"},"message":`, 1)
	if _, body := b.do("POST", "/a2a/message:send", first); !strings.Contains(body, "write it in message.metadata") {
		t.Errorf("in the request of a first message: %s", body)
	}
	for path, text := range map[string]string{
		"/a2a/message:send": message("t.echo", "x"),
		"/a2a":              `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":` + message("t.echo", "x") + `}`,
	} {
		if resp, body := b.do("POST", path, text, "Waldo-Delegation", own); !strings.Contains(body, "is a header of REST") {
			t.Errorf("%s, a token in the header: %d %s", path, resp.StatusCode, body)
		}
	}
	part := strings.Replace(message("t.echo", "x"), `"text":"x"`, `"text":"x","metadata":{"waldo/delegation":"`+own+`"}`, 1)
	if _, body := b.do("POST", "/a2a/message:send", part); !strings.Contains(body, "write it in message.metadata") {
		t.Errorf("in a part: %s", body)
	}
	s, err := app.OpenRecorded(t.Context(), b.state, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Revoke(t.Context(), link); err != nil {
		t.Fatal(err)
	}
	if body := more(under.ID, named(own), ""); !strings.Contains(body, "delegation.revoked") {
		t.Errorf("after its end: %s", body)
	}
	if b.logged(`"delegation.outside"`) == 0 {
		t.Error("the refusals are not recorded")
	}
	for text, want := range map[string]int64{own: 0, narrow: 0, `"kept"`: 1} {
		if err := b.h.Store.Update(t.Context(), func(tx *sql.Tx) error {
			n, err := count(tx, `SELECT COUNT(*) FROM a2a_tasks WHERE INSTR(body, $1) > 0`, text)
			if n != want {
				t.Errorf("%d tasks hold %s, want %d", n, text, want)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}
