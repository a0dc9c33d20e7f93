package webhook

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sign "waldo/internal/feature/webhook/signature"
	"waldo/internal/model/secret"
	receiver "waldo/internal/network/send"
	"waldo/internal/storage/inbox"
)

// remote is a receiver whose answers a test chooses.
type remote struct {
	*httptest.Server
	answers []int
	after   string
	got     []*http.Request
	bodies  []string
}

func newRemote(t *testing.T, answers ...int) *remote {
	r := &remote{answers: answers}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		r.got, r.bodies = append(r.got, q), append(r.bodies, string(b))
		status := 200
		if n := len(r.got); n <= len(r.answers) {
			status = r.answers[n-1]
		}
		if status/100 == 3 {
			w.Header().Set("Location", "/elsewhere")
		}
		if r.after != "" {
			w.Header().Set("Retry-After", r.after)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (b *bench) outgoing(url string, private bool) Outgoing {
	b.secrets["env:OUT"] = standardSecret
	return Outgoing{URL: url, Key: "env:OUT", ContentType: "application/json", Body: []byte(`{"a":1}`),
		Private: private,
		By:      "os:1"}
}

// until tries a delivery each time that it is due, at most n times.
func (b *bench) until(t *testing.T, d *inbox.Delivery, n int) *inbox.Delivery {
	t.Helper()
	for range n {
		if d.State != inbox.Queued {
			break
		}
		b.set(d.Due.Unix() + 1)
		next, err := b.Again(t.Context(), d.ID)
		if err != nil || next == nil {
			t.Fatal(next, err)
		}
		d = next
	}
	return d
}

// TestCorpusOut are the rows of the corpus about outgoing webhooks, by their reason.
func TestCorpusOut(t *testing.T) {
	judges := map[string]func(t *testing.T, b *bench){
		"receiver answers 200 slowly": func(t *testing.T, b *bench) {
			end := make(chan struct{})
			slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
			t.Cleanup(func() { close(end); slow.Close() })
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // in place of its 10 s
			defer cancel()
			d, err := b.Send(ctx, b.outgoing(slow.URL, true))
			if err != nil || d.State != inbox.Queued || !strings.Contains(d.Reason, "did not answer within") {
				t.Errorf("%+v %v", d, err)
			}
		},
		"receiver redirects to metadata": redirected, "receiver redirects to itself": redirected,
		"receiver answers 410": func(t *testing.T, b *bench) {
			r := newRemote(t, 503, 410)
			first, err1 := b.Send(t.Context(), b.outgoing(r.URL+"/a", true))
			gone, err2 := b.Send(t.Context(), b.outgoing(r.URL+"/a", true))
			if err := errors.Join(err1, err2); err != nil || first.State != inbox.Queued || gone.State != inbox.Dead {
				t.Fatalf("%v %v %v", first, gone, err)
			}
			if d, err := b.o.Queue.Get(t.Context(), first.ID); err != nil || d.State != inbox.Dead {
				t.Errorf("an earlier one to the same receiver: %+v %v", d, err)
			}
		},
		"receiver answers 500 for a day": func(t *testing.T, b *bench) {
			r := newRemote(t, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500)
			d, err := b.Send(t.Context(), b.outgoing(r.URL, true))
			if err != nil {
				t.Fatal(err)
			}
			began := b.now()
			d = b.until(t, d, 20)
			if d.State != inbox.Dead || len(r.got) != inbox.MaxTries || b.now().Sub(began) > 3*time.Hour {
				t.Errorf("%s after %d tries and %v", d.State, len(r.got), b.now().Sub(began))
			}
		},
		"receiver answers 429 Retry-After": func(t *testing.T, b *bench) {
			r := newRemote(t, 429)
			r.after = "30"
			d, err := b.Send(t.Context(), b.outgoing(r.URL, true))
			if wait := d.Due.Sub(b.now()); err != nil || wait < 30*time.Second || wait > 31*time.Second {
				t.Errorf("%v %v", wait, err)
			}
		},
		"URL points at loopback": func(t *testing.T, b *bench) {
			r := newRemote(t)
			for _, url := range []string{r.URL, "https://127.0.0.1/", "https://localhost/", "https://[::1]/",
				"https://169.254.169.254/", "https://10.0.0.1/", "https://[::ffff:127.0.0.1]/"} {
				d, err := b.Send(t.Context(), b.outgoing(url, false))
				if err == nil && d.State != inbox.Dead {
					t.Errorf("%s: %+v", url, d)
				}
			}
			if len(r.got) != 0 {
				t.Error("it was reached")
			}
			if d, err := b.Send(t.Context(), b.outgoing(r.URL, true)); err != nil || d.State != "" || len(r.got) != 1 {
				t.Errorf("control: %+v %v", d, err)
			}
		},
		"crash between send and record": func(t *testing.T, b *bench) {
			r := newRemote(t)
			d := &inbox.Delivery{Hook: "h", Target: inbox.Out, About: inbox.About{URL: r.URL, Key: "env:OUT",
				Private: true}}
			b.outgoing("", true)
			gone := map[string]bool{}
			b.o.Queue.Gone = func(h string) bool { return gone[h] }
			ended := *b.o.Queue
			ended.Holder = "ended"
			if err := ended.Add(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			e := b.about(d, "queued")
			e.Row = d.Digest()
			if err := b.record(t.Context(), e, true); err != nil {
				t.Fatal(err)
			}
			if why := b.Hooks.send(t.Context(), d); why != nil { // and the process ends here
				t.Fatal(why)
			}
			gone["ended"] = true
			ctx, end := context.WithCancel(t.Context())
			go b.Run(ctx)
			defer end()
			for len(waitingIn(t, b)) > 0 {
				time.Sleep(20 * time.Millisecond)
			}
			if len(r.got) != 2 || r.got[0].Header.Get("webhook-id") != r.got[1].Header.Get("webhook-id") {
				t.Errorf("%d requests", len(r.got))
			}
		},
	}
	for _, r := range rows(t) {
		if r.Class != "outgoing" {
			continue
		}
		judge := judges[r.Why]
		if judge == nil {
			t.Errorf("%s: no judge for %q", r.ID, r.Why)
			continue
		}
		t.Run(r.ID, func(t *testing.T) { judge(t, newBench(t)) })
	}
}

func waitingIn(t *testing.T, b *bench) []*inbox.Delivery {
	t.Helper()
	all, err := b.o.Queue.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func redirected(t *testing.T, b *bench) {
	r := newRemote(t, 302)
	d, err := b.Send(t.Context(), b.outgoing(r.URL, true))
	if err != nil || d.State != inbox.Dead || len(r.got) != 1 || !strings.Contains(d.Reason, "not followed") {
		t.Errorf("%+v %v: %d requests", d, err, len(r.got))
	}
}

// TestSent: a webhook that was sent verifies at its receiver, with a new time at each try.
func TestSent(t *testing.T) {
	b := newBench(t)
	r := newRemote(t, 503, 503)
	d, err := b.Send(t.Context(), b.outgoing(r.URL, true))
	if err != nil {
		t.Fatal(err)
	}
	if d = b.until(t, d, 5); d.State != "" || len(r.got) != 3 || len(waitingIn(t, b)) != 0 {
		t.Fatalf("%+v: %d requests", d, len(r.got))
	}
	k, err := sign.Standard.Key(standardSecret)
	if err != nil {
		t.Fatal(err)
	}
	last := time.Time{}
	for i, q := range r.got {
		m, err := sign.Standard.Verify(q.Header, []byte(r.bodies[i]), []sign.Key{k}, b.now(), time.Hour)
		if err != nil || m.Name != d.ID || !m.Signed.After(last) || q.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%d: %+v %v", i, m, err)
		}
		last = m.Signed
	}
}

// TestNoSecretNoSending: without its secret nothing is stored.
func TestNoSecretNoSending(t *testing.T) {
	b := newBench(t)
	o := b.outgoing("https://example.com", false)
	for text, ok := range map[secret.Ref]string{"env:NONE": "", "env:SHORT": "short"} {
		b.secrets[text] = ok
		o.Key = text
		if _, err := b.Send(t.Context(), o); err == nil || len(waitingIn(t, b)) != 0 {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestTarget(t *testing.T) {
	for address, row := range map[string][2]bool{ // public, private
		"https://hooks.example.com/x": {true, true}, "http://hooks.example.com/x": {false, true}, "": {},
		"ftp://h.example": {},
		"https://":        {}, "https://u:p@hooks.example.com": {}, "https:hooks.example.com": {}, "https://h.example/#a": {},
	} {
		for i, private := range []bool{false, true} {
			if _, err := receiver.Target(address, private); (err == nil) != row[i] {
				t.Errorf("%q, private %v: %v", address, private, err)
			}
		}
	}
}

// TestForgedDeliveries: a delivery that the log did not record as its row has it is not handed over, and one that was
// delivered is not handed over again.
func TestForgedDeliveries(t *testing.T) {
	for _, set := range []string{
		"", `body = 'e30='`, `about = replace(about, '/a', '/b')`, `about = replace(about, 'env:OUT', 'env:NEW')`, `hook = 'other'`,
	} {
		b := newBench(t)
		r := newRemote(t, 503)
		d, err := b.Send(t.Context(), b.outgoing(r.URL+"/a", true))
		if err != nil || d.State != inbox.Queued {
			t.Fatal(d, err)
		}
		b.secrets["env:NEW"] = standardSecret
		if set != "" {
			b.edit(t, `UPDATE deliveries SET `+set)
		}
		b.set(d.Due.Unix() + 1)
		next, err := b.Again(t.Context(), d.ID)
		if err != nil || (len(r.got) == 2) != (set == "") || set != "" &&
			(next.State != inbox.Dead || !strings.HasPrefix(next.Reason, "row.forged: ")) {
			t.Errorf("%q: %+v %v, %d requests", set, next, err, len(r.got))
		}
	}
	b := newBench(t)
	r := newRemote(t, 503)
	d, err := b.Send(t.Context(), b.outgoing(r.URL, true))
	if err != nil {
		t.Fatal(err)
	}
	b.edit(t, `CREATE TABLE kept AS SELECT * FROM deliveries`)
	b.until(t, d, 1)
	b.edit(t, `INSERT INTO deliveries SELECT * FROM kept`)
	next, err := b.Again(t.Context(), d.ID)
	if err != nil || next == nil || next.State != inbox.Dead || len(r.got) != 2 {
		t.Errorf("delivered again: %+v %v, %d requests", next, err, len(r.got))
	}
}

// TestDeadIsTheEnd: a dead delivery whose row is queued again, by another than its operator, is not handed over. Nor is
// one that was edited before the operator retried it. The control is retried as it was.
func TestDeadIsTheEnd(t *testing.T) {
	for _, row := range []struct {
		set            string
		retried, again bool
	}{
		{`size = size`, true, true}, {`state = 'queued', due = '2000-01-01T00:00:00Z', tries = 0`, false, false},
		{`about = replace(about, '/a', '/b')`, true, false}, {`state = 'queued', tries = 0`, true, true},
	} {
		b := newBench(t)
		r := newRemote(t, 400, 503)
		d, err := b.Send(t.Context(), b.outgoing(r.URL+"/a", true))
		if err != nil || d.State != inbox.Dead || len(r.got) != 1 {
			t.Fatal(d, err)
		}
		b.edit(t, `UPDATE deliveries SET `+row.set)
		if row.retried {
			if _, err := b.Retry(t.Context(), d.ID, "os:7"); err != nil {
				t.Fatal(err)
			}
		}
		next, err := b.Again(t.Context(), d.ID)
		if err != nil || next == nil || (len(r.got) == 2) != row.again ||
			!row.again && (next.State != inbox.Dead || !strings.HasPrefix(next.Reason, "row.forged: ")) {
			t.Errorf("%s: %+v %v, %d requests", row.set, next, err, len(r.got))
		}
	}
	b := newBench(t) // one that died with another to its receiver
	r := newRemote(t, 503, 410)
	d, err := b.Send(t.Context(), b.outgoing(r.URL, true))
	if _, gone := b.Send(t.Context(), b.outgoing(r.URL, true)); err != nil || gone != nil {
		t.Fatal(err, gone)
	}
	b.edit(t, `UPDATE deliveries SET state = 'queued', due = '2000-01-01T00:00:00Z'`)
	next, err := b.Again(t.Context(), d.ID)
	if err != nil || next == nil || next.State != inbox.Dead || !strings.HasPrefix(next.Reason, "row.forged: ") {
		t.Errorf("abandoned: %+v %v, %d requests", next, err, len(r.got))
	}
}

// TestDeadIsRecordedFirst: a delivery whose end cannot be recorded is not dead: the next waldo finds it claimed.
func TestDeadIsRecordedFirst(t *testing.T) {
	for recorded, want := range map[bool]string{true: inbox.Dead, false: inbox.Claimed} {
		b := newBench(t)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if !recorded {
				_ = b.log.Close()
			}
			w.WriteHeader(http.StatusBadRequest)
		}))
		defer srv.Close()
		_, err := b.Send(t.Context(), b.outgoing(srv.URL, true))
		all, lerr := b.o.Queue.List(t.Context())
		if (err == nil) != recorded || lerr != nil || len(all) != 1 || all[0].State != want {
			t.Errorf("recorded %v: %+v %v %v", recorded, all, err, lerr)
		}
	}
}

// edit changes the database as another process of the user can.
func (b *bench) edit(t *testing.T, query string) {
	t.Helper()
	err := b.o.Queue.Store.Update(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec(query)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestForgedWork: a delivery that nobody signed reaches neither a tool nor an agent.
func TestForgedWork(t *testing.T) {
	b := standardBench(t)
	if w := b.serve(b.signed(t, "m", `{"a":1}`)); w.Code != 202 {
		t.Fatalf("control: %d", w.Code)
	}
	b.edit(t, `INSERT INTO deliveries (id, hook, target, state, due, tries, claim, holder, work, reason, size, about, body)
		SELECT 'h_forged', hook, target, state, '2000-01-01T00:00:00Z', 0, 0, holder, work, reason, size, about, body
		FROM deliveries`)
	d, err := b.Deliveries().Claim(t.Context(), inbox.Agent)
	if err != nil || d == nil || d.ID == "h_forged" || string(d.Body) != `{"a":1}` {
		t.Errorf("%+v %v", d, err)
	}
	if d, err := b.Deliveries().Claim(t.Context(), inbox.Agent); d != nil || err != nil {
		t.Errorf("the forged one: %+v %v", d, err)
	}
	if f, err := b.o.Queue.Get(t.Context(), "h_forged"); err != nil || f.State != inbox.Dead ||
		!strings.HasPrefix(f.Reason, "row.forged: ") {
		t.Errorf("%+v %v", f, err)
	}
	// One whose waldo was killed after it was recorded is nowhere: the sender got no answer, and its next try is accepted.
	b.edit(t, `DELETE FROM deliveries`)
	b.edit(t, `DELETE FROM seen_webhooks`)
	if w := b.serve(b.signed(t, "m", `{"a":1}`)); w.Code != 202 {
		t.Errorf("the sender's next try: %d", w.Code)
	}
	if d, err := b.Deliveries().Claim(t.Context(), inbox.Agent); d == nil || err != nil {
		t.Errorf("the sender's next try: %+v %v", d, err)
	}
}
