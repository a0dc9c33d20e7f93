//go:build unix

package reliability

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"waldo/internal/app"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// untouched is an edit that leaves the row as it is.
const untouched = `size = size`

// edit changes rows as another process of the user can.
func edit(t *testing.T, h *app.App, set string) {
	t.Helper()
	var was, is string
	err := h.Store.Update(t.Context(), func(tx *sql.Tx) error {
		const row = `SELECT state || process || principal || until || body FROM calls`
		err := tx.QueryRow(row).Scan(&was)
		_, failed := tx.Exec(`UPDATE calls SET ` + set)
		return errors.Join(err, failed, tx.QueryRow(row).Scan(&is))
	})
	if err != nil || is == was && set != untouched {
		t.Fatalf("control: %s changed nothing, or %v", set, err)
	}
}

// TestRowsAreNotEvidence: a row that is not what the log recorded is not replayed, not undone, not made again and not
// settled. The control is the row as it was.
func TestRowsAreNotEvidence(t *testing.T) {
	edits := map[string]string{
		"control":         untouched,
		"result":          `body = replace(body, 'id\":1', 'id\":7')`,
		"left out":        `body = replace(body, '"side_effect"', '"left_out":7,"side_effect"')`,
		"undo":            `body = replace(body, '"args":{"id":1}', '"args":{"id":7}')`,
		"arguments":       `body = replace(body, '"title":"a"', '"title":"b"')`,
		"state":           `state = 'not_happened'`,
		"another process": `state = 'not_happened', process = 'q_gone'`,
		"principal":       `principal = 'os:77'`,
		"longer":          `until = '2999-01-01T00:00:00Z'`,
	}
	for name, set := range edits {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			b := newBench(t, `rollback: {by: s.delete, args: {id: result.id}}`)
			h := b.waldo(t)
			made := create("a", "", "k").must(t, h)
			if made.Status != facts.OK || made.Undo == nil {
				t.Fatalf("control: %+v", made)
			}
			edit(t, h, set)
			sound := name == "control"
			again := create("a", "", "k").must(t, h)
			if sound != (again.Replayed == made.CallID) || !sound && (again.Status != facts.Denied || first(again) != "row.forged") &&
				name != "another process" {
				t.Errorf("the same key: %s%s", again.Status, codes(again))
			}
			if n := b.effects(t, "a"); n != 1 {
				t.Errorf("%d effects", n)
			}
			n, err := h.OpenSession()
			if err != nil {
				t.Fatal(err)
			}
			u, err := h.Effects.Undo(t.Context(), made.CallID, call.Call{Session: n.ID, Principal: n.Principal, Channel: "cli"})
			if sound != (err == nil && u.Status == facts.OK) || !sound && !strings.HasPrefix(err.Error(), "row.forged: ") {
				t.Errorf("undo: %s %v", u.Status, err)
			}
		})
	}
}

// TestUndoIsInTheLog: a row that says that a call was not undone does not have it undone again.
func TestUndoIsInTheLog(t *testing.T) {
	b := newBench(t, `rollback: {by: s.delete, args: {id: result.id}}`)
	h := b.waldo(t)
	made := create("a", "", "").must(t, h)
	n, err := h.OpenSession()
	if err != nil {
		t.Fatal(err)
	}
	as := call.Call{Session: n.ID, Principal: n.Principal, Channel: "cli"}
	u, err := h.Effects.Undo(t.Context(), made.CallID, as)
	if err != nil || u.Status != facts.OK {
		t.Fatalf("control: %s %v", u.Status, err)
	}
	edit(t, h, `body = replace(body, '"undone":"`+u.CallID+`"', '"undone":""')`)
	if _, err := h.Effects.Undo(t.Context(), made.CallID, as); err == nil || !strings.Contains(err.Error(), u.CallID) ||
		b.effects(t, "deleted-1") != 1 {
		t.Errorf("undone again: %v", err)
	}
}

// TestSettledAsRecorded: waldo settles the call that the log has, not that of an edited row.
func TestSettledAsRecorded(t *testing.T) {
	for _, set := range []string{untouched, `body = replace(body, '"title":"a"', '"title":"b"')`} {
		b := newBench(t, settles)
		o := create("a", "kill_waldo_after", "k")
		b.killed(t, o)
		h := b.waldo(t)
		edit(t, h, set)
		all, err := h.Effects.Pending(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("control: %d %v", len(all), err)
		}
		n, err := h.OpenSession()
		if err != nil {
			t.Fatal(err)
		}
		word, err := h.Effects.Settle(t.Context(), all[0].ID, call.Call{Session: n.ID, Principal: n.Principal, Channel: "cli"})
		if sound := set == untouched; sound != (word == call.Happened) || !sound && !strings.HasPrefix(err.Error(), "row.forged: ") {
			t.Errorf("%s: %s %v", set, word, err)
		}
	}
}
