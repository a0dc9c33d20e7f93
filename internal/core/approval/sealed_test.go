package approval

import (
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDatabaseHoldsNoHiddenValue: the value of a token is in no file of the state directory and in no row, while the
// question waits and after its yes. Another process still shows it, and compares it with the next call's.
func TestDatabaseHoldsNoHiddenValue(t *testing.T) {
	const value = "boss@corp.example"
	h := newFixture(t)
	h.about.notes = found(value)
	d := decide(t, `{"to":"[EMAIL_1]","text":"seen in the open"}`)
	asked := h.want(t, d, "waiting")
	h.nowhere(t, value)
	h.about.notes = nil
	open := h.want(t, decide(t, `{"text":"seen in the open"}`), "waiting")
	if !strings.Contains(h.stored(t), "seen in the open") {
		t.Error("control: what is not hidden is not found")
	}
	h.restart(t)
	if s := h.shown(t, asked).Show(); !strings.Contains(s, value) {
		t.Errorf("another process does not show the value:\n%s", s)
	}
	h.about.notes = found(value)
	h.say(t, asked, true)
	h.want(t, d, "yes")
	h.nowhere(t, value)
	h.pass(time.Second)
	next := h.shown(t, h.want(t, d, "waiting"))
	if s := h.Since(ctx, next).Show(); !strings.Contains(s, "It had the same arguments, and all else") {
		t.Errorf("an equal value counts as another:\n%s", s)
	}
	h.about.notes = found("thief@evil.example")
	h.pass(time.Second)
	next = h.shown(t, h.want(t, d, "waiting"))
	if s := h.Since(ctx, next).Show(); !strings.Contains(s, "what waldo found") {
		t.Errorf("another value counts as the same:\n%s", s)
	}

	// A sealed question is good in its own row and with its own key alone.
	h.exec(t, `UPDATE approvals SET question = (SELECT question FROM approvals WHERE id = $1) WHERE id = $2`, next.ID, open)
	if q, state, _ := h.Question(ctx, open); state != Void || len(q.Notes) > 0 {
		t.Errorf("the question of another row is %s, with %q", state, q.Notes)
	}
	if err := os.WriteFile(h.Store.Path("questions.key"), make([]byte, 32), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, state, _ := h.Question(ctx, next.ID); state != Void {
		t.Errorf("with another key it is %s", state)
	}
}

func (h *fixture) nowhere(t *testing.T, value string) {
	t.Helper()
	if strings.Contains(h.stored(t), value) {
		t.Errorf("%s is in the database", value)
	}
}

// stored returns what the rows of questions and the files of the state directory hold.
func (h *fixture) stored(t *testing.T) (all string) {
	t.Helper()
	err := h.Store.View(ctx, func(tx *sql.Tx) error {
		rows, err := texts(tx, `SELECT question || answer || binding FROM approvals`)
		all = strings.Join(rows, "\n")
		return err
	})
	if err == nil {
		err = filepath.WalkDir(h.dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			all += string(b)
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}
