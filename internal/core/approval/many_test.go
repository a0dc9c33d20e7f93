package approval

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/id"
	"waldo/internal/storage/database"
	"waldo/internal/testing/storetest"
)

// fill enters n waiting questions, each of a session of its own.
func (h *fixture) fill(t testing.TB, q Question, n int) {
	t.Helper()
	err := h.Store.Update(ctx, func(tx *sql.Tx) error {
		for i := range n {
			one := q
			one.ID, one.Session, one.Created = id.New(id.Approval), call.Session(fmt.Sprint("n_", i)),
				q.Created.Add(time.Duration(i)*time.Millisecond)
			b, err := json.Marshal(one)
			if err != nil {
				return err
			}
			_, err = tx.Exec(`INSERT INTO approvals (id, binding, session, state, created, expires, question, answer,`+
				` used_by) VALUES ($1, $2, $3, 'pending', $4, $5, $6, '', '')`,
				one.ID, one.Binding(), string(one.Session), database.Stamp(one.Created), database.Stamp(one.Expires), string(b))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPendingPages: the pages of a long list hold each question once, in order, and skip rows changed from outside.
func TestPendingPages(t *testing.T) {
	h := newFixture(t)
	first := h.want(t, decide(t, `{"path":"/a"}`), "waiting")
	q := h.shown(t, first)
	h.fill(t, q, 120)
	h.exec(t, `UPDATE approvals SET question = '{}' WHERE session = 'n_7'`)
	seen, cursor, pages := map[string]bool{}, "", 0
	last := ""
	for {
		page, next, err := h.PendingPage(ctx, cursor, 50)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range page {
			place := database.Stamp(one.Created) + one.ID
			if seen[one.ID] || place <= last {
				t.Errorf("%s again or out of order", one.ID)
			}
			seen[one.ID], last = true, place
		}
		pages++
		if cursor = next; next == "" {
			break
		}
	}
	if len(seen) != 120 || pages != 3 {
		t.Errorf("%d questions on %d pages", len(seen), pages)
	}
	if n, err := h.CountPending(ctx); err != nil || n != 121 {
		t.Errorf("%d, %v", n, err)
	}
	for _, bad := range []string{"x", "!", "eA"} {
		if _, _, err := h.PendingPage(ctx, bad, 50); code(err) != "cursor" {
			t.Errorf("%q: %v", bad, err)
		}
	}
	before, err := h.Mark(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Service.Answer(ctx, h.ann, q, false, ""); err != nil {
		t.Fatal(err)
	}
	if after, _ := h.Mark(ctx); after == before {
		t.Error("an answer does not change the mark")
	}
}

// BenchmarkPendingPage lists the first page of 10,000 waiting questions.
func BenchmarkPendingPage(b *testing.B) {
	t := &testing.T{}
	h := &fixture{dir: b.TempDir() + "/state"}
	h.at.Store(time.Now().UnixMilli())
	s, err := storetest.Open(t, h.dir)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	h.Service = &Service{Store: s}
	d := decide(t, `{"path":"/a"}`)
	_, waiting, err := h.Ask(ctx, d)
	if err != nil {
		b.Fatal(err)
	}
	q, _, err := h.Question(ctx, waiting)
	if err != nil {
		b.Fatal(err)
	}
	h.fill(b, q, 10_000)
	for _, size := range []int{50, 10_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			for b.Loop() {
				if page, _, err := h.PendingPage(ctx, "", size); err != nil || len(page) < size {
					b.Fatal(len(page), err)
				}
			}
		})
	}
}
