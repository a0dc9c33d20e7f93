package a2a

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/id"
	"waldo/internal/network/egress"
	"waldo/internal/network/send"
	"waldo/internal/storage/database"
)

// Limits of push notifications.
const (
	maxPushes = 8 // configurations of one task
	pushTries = 8 // of one change, one after the other
	pushing   = 8 // at a time
)

// pusher sends clients the changes of their tasks, each change at least once: the newest state, not each on the way.
// The addresses of a receiver are checked when its configuration is made, and again at each try.
type pusher struct {
	tasks    *tasks
	private  func(host string) bool // whether a receiver can have an address that is not public
	resolver egress.Resolver        // nil: the machine's own
	wake     chan struct{}
	log      *audit.Log
}

// Kind is the kind of the records about push notifications.
const Kind = "push"

// pushed is a record: a receiver was named, got a change, or is given up.
type pushed struct {
	Event     string         `json:"event"` // named, sent or dead
	Task      string         `json:"task_id"`
	Principal call.Principal `json:"principal"`
	Config    string         `json:"config"`
	Host      string         `json:"host"`
	Tries     int64          `json:"tries,omitempty"`
	Reason    string         `json:"reason,omitempty"`
}

// record writes to the log what became of a receiver, without its address beyond the host.
func (p *pusher) record(
	ctx context.Context, event string, who call.Principal, c PushConfig, tries int64, why error,
) error {
	e := pushed{Event: event, Task: c.TaskID, Principal: who, Config: c.ID, Tries: tries}
	if u, err := send.Target(c.URL, true); err == nil {
		e.Host = u.Hostname()
	}
	if why != nil {
		e.Reason = why.Error()
	}
	b, err := json.Marshal(e)
	if err == nil {
		_, err = p.log.Append(context.WithoutCancel(ctx), Kind, b, event == "named")
	}
	return err
}

// line summarises a record in one line of waldo log.
func line(p terminal.Paint, body json.RawMessage) display.Text {
	var e pushed
	_ = json.Unmarshal(body, &e)
	switch e.Event {
	case "named":
		return display.Sprintf("%s named %s to hear of %s", e.Principal, e.Host, e.Task)
	case "dead":
		return display.Sprintf("%s: %s hears no more of %s: %s", p.Bad("given up"), e.Host, e.Task, e.Reason)
	}
	return display.Sprintf("%s heard of %s of %s", e.Host, e.Task, e.Principal)
}

// push is a configuration that is due.
type push struct {
	PushConfig
	want, tries int64
	by          call.Principal
	event       Event
}

// request is a try of a configuration without its body.
func (p *pusher) request(c PushConfig) send.Request {
	r := send.Request{URL: c.URL, Resolver: p.resolver}
	if u, err := send.Target(c.URL, true); err == nil {
		r.Private = p.private(u.Hostname())
	}
	return r
}

// checked returns a configuration with an id, if its receiver can be reached under the rules of egress.
func (p *pusher) checked(ctx context.Context, c PushConfig) (*PushConfig, *fault) {
	switch {
	case c.Tenant != "":
		return nil, badParams.says("waldo has no tenants")
	case len(c.URL) > maxURL || len(c.Token) > maxURL:
		return nil, badParams.says("url and token have at most %d bytes", maxURL)
	case c.ID != "" && !nameable(c.ID):
		return nil, badParams.says("the id of a configuration must be 1 to %d printable characters", maxName)
	case c.Authentication != nil && (!nameable(c.Authentication.Scheme) || !sendable(c.Authentication.Credentials)):
		return nil, badParams.says("authentication has a scheme, as in Bearer, and credentials of printable characters")
	case !sendable(c.Token):
		return nil, badParams.says("a token must be of printable characters")
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := send.Check(ctx, p.request(c)); err != nil {
		return nil, badParams.says("url: %v", err)
	}
	if c.ID == "" {
		c.ID = id.New(id.Delivery)
	}
	return &c, nil
}

// sendable reports whether a text can be a header: printable ASCII or empty.
func sendable(s string) bool {
	for _, r := range s {
		if r < ' ' || r > '~' {
			return false
		}
	}
	return len(s) <= maxURL
}

// shownTo is a configuration without what authenticates waldo.
func (c PushConfig) shown() PushConfig {
	c.Token = ""
	if c.Authentication != nil {
		c.Authentication = &Credential{Scheme: c.Authentication.Scheme}
	}
	return c
}

// put stores a configuration of a task. It gets the changes from now on.
func (s *tasks) putPush(tx *sql.Tx, c PushConfig, seq int64) error {
	n, err := count(tx, `SELECT COUNT(*) FROM a2a_pushes WHERE task = $1 AND id <> $2`, c.TaskID, c.ID)
	if err != nil {
		return err
	}
	if n >= maxPushes {
		return tooMuch.says("a task has at most %d push notification configurations", maxPushes)
	}
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	body, err := s.db.Mark(string(b), pushTable, c.TaskID, c.ID)
	if err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO a2a_pushes (task, id, due, tries, sent, want, body) VALUES ($1, $2, $3, 0, $4, $4, $5)
		ON CONFLICT (task, id) DO UPDATE SET due = excluded.due, tries = 0, body = excluded.body`,
		c.TaskID, c.ID, stamp(time.Now()), seq, body)
	return err
}

const pushTable = "a2a_pushes" // in marks

// owned runs fn in a transaction if the task is one of the principal.
func (p *pusher) owned(ctx context.Context, who call.Principal, task string, fn func(tx *sql.Tx, j *job) error) *fault {
	err := p.tasks.db.Update(ctx, func(tx *sql.Tx) error {
		j, _, err := p.tasks.scan(tx.QueryRow(`SELECT `+columns+` FROM a2a_tasks WHERE id = $1 AND principal = $2`, task,
			string(who)).Scan)
		if err != nil {
			return err
		}
		return fn(tx, j)
	})
	if err != nil {
		return faultOf(err)
	}
	return nil
}

func (p *pusher) create(ctx context.Context, who call.Principal, c PushConfig) (PushConfig, *fault) {
	if _, err := p.tasks.get(ctx, who, c.TaskID); err != nil { // before a name is looked up for a stranger
		return c, faultOf(err)
	}
	made, f := p.checked(ctx, c)
	if f == nil { // a receiver that is not on record gets nothing
		if err := p.record(ctx, "named", who, *made, 0, nil); err != nil {
			f = faultOf(err)
		}
	}
	if f == nil {
		f = p.owned(ctx, who, c.TaskID, func(tx *sql.Tx, j *job) error { return p.tasks.putPush(tx, *made, j.Seq) })
	}
	if f != nil {
		return c, f
	}
	return made.shown(), nil
}

func (p *pusher) list(ctx context.Context, who call.Principal, task string) (all []PushConfig, f *fault) {
	all = []PushConfig{}
	f = p.owned(ctx, who, task, func(tx *sql.Tx, _ *job) error {
		rows, err := tx.Query(`SELECT id, body FROM a2a_pushes WHERE task = $1 ORDER BY id`, task)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var id, body string
			var c PushConfig
			if err := rows.Scan(&id, &body); err != nil {
				return err
			}
			text, err := p.tasks.db.Unmark(body, pushTable, task, id)
			if errors.Is(err, database.ErrForged) {
				continue
			}
			if err := errors.Join(err, json.Unmarshal([]byte(text), &c)); err != nil {
				return err
			}
			all = append(all, c.shown())
		}
		return rows.Err()
	})
	return all, f
}

func (p *pusher) get(ctx context.Context, who call.Principal, task, name string) (c PushConfig, f *fault) {
	all, f := p.list(ctx, who, task)
	for _, c := range all {
		if c.ID == name {
			return c, nil
		}
	}
	if f == nil {
		f = noTask.says("the task has no such push notification configuration")
	}
	return c, f
}

func (p *pusher) drop(ctx context.Context, who call.Principal, task, name string) *fault {
	return p.owned(ctx, who, task, func(tx *sql.Tx, _ *job) error {
		_, err := tx.Exec(`DELETE FROM a2a_pushes WHERE task = $1 AND id = $2`, task, name)
		return err
	})
}

// run sends what is due until ctx is done.
func (p *pusher) run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		due, err := p.due(ctx)
		if err != nil && ctx.Err() == nil {
			slog.Warn("push notifications wait", "why", err)
		}
		var all sync.WaitGroup
		free := make(chan struct{}, pushing)
		for _, d := range due {
			free <- struct{}{}
			all.Go(func() {
				defer func() { <-free }()
				if err := p.send(ctx, d); err != nil && ctx.Err() == nil {
					slog.Warn("the end of a push notification was not stored", "task", d.TaskID, "why", err)
				}
			})
		}
		all.Wait()
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-tick.C:
		}
	}
}

// due returns the configurations whose receiver lacks a change, at most a few.
func (p *pusher) due(ctx context.Context) (out []push, err error) {
	err = p.tasks.db.View(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query(`SELECT t.`+strings.ReplaceAll(columns, ", ", ", t.")+`, p.id, p.body, p.want, p.tries
			FROM a2a_pushes p JOIN a2a_tasks t ON t.id = p.task
			WHERE p.sent < p.want AND p.due <= $1 AND p.tries < $2 ORDER BY p.due LIMIT $3`, stamp(time.Now()),
			pushTries, 2*pushing)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var d push
			var id, body string
			j, _, err := p.tasks.scan(rows.Scan, &id, &body, &d.want, &d.tries)
			if err == nil {
				body, err = p.tasks.db.Unmark(body, pushTable, j.ID, id)
			}
			if errors.Is(err, database.ErrForged) {
				continue
			}
			if err := errors.Join(err, json.Unmarshal([]byte(body), &d.PushConfig)); err != nil {
				return err
			}
			t := j.view(nil, true)
			d.by = j.Principal
			d.event = Event{Task: &t}
			out = append(out, d)
		}
		return rows.Err()
	})
	return out, err
}

// send tries once. A receiver that takes it has the change; else the next try comes later, up to a number.
func (p *pusher) send(ctx context.Context, d push) error {
	body, err := json.Marshal(d.event)
	if err != nil {
		return err
	}
	r := p.request(d.PushConfig)
	r.Body = bytes.TrimSpace(body)
	r.Header = http.Header{"Content-Type": {mediaType}, "A2a-Version": {version}}
	if d.Token != "" {
		r.Header.Set("X-A2A-Notification-Token", d.Token)
	}
	if a := d.Authentication; a != nil {
		r.Header.Set("Authorization", a.Scheme+" "+a.Credentials)
	}
	err = send.Post(ctx, r)
	if ctx.Err() != nil {
		return nil // waldo ends: the next one tries
	}
	tries := d.tries + 1
	why := (*send.Failure)(nil)
	if errors.As(err, &why) && (!why.Again || why.Gone) {
		tries = pushTries
	}
	var rerr error
	switch {
	case err == nil:
		rerr = p.record(ctx, "sent", d.by, d.PushConfig, tries, nil)
	case tries >= pushTries:
		rerr = p.record(ctx, "dead", d.by, d.PushConfig, tries, err)
	}
	return errors.Join(rerr, p.tasks.db.Update(context.WithoutCancel(ctx), func(tx *sql.Tx) error {
		if err == nil {
			_, err := tx.Exec(`UPDATE a2a_pushes SET sent = $1, tries = 0 WHERE task = $2 AND id = $3`, d.want, d.TaskID, d.ID)
			return err
		}
		wait := time.Second << min(tries, 12)
		if why != nil {
			wait = max(wait, why.After)
		}
		_, err := tx.Exec(`UPDATE a2a_pushes SET tries = $1, due = $2 WHERE task = $3 AND id = $4`, tries,
			stamp(time.Now().Add(wait)), d.TaskID, d.ID)
		return err
	}))
}
