//go:build unix

package reliability

import (
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/app"
	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
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

// TestRemovedRows: a call with a key whose row was removed is not made again, and what its row alone says of an undo is
// not passed on. Another key is the control.
func TestRemovedRows(t *testing.T) {
	for _, query := range []string{`UPDATE calls SET size = size`, `DELETE FROM calls`, `UPDATE calls SET name = ''`,
		`UPDATE calls SET body = replace(body, '"mode"', '"undone":"` + id.New(id.Call) + `","mode"')`} {
		b := newBench(t, `rollback: {by: s.delete, args: {id: result.id}}`)
		h := b.waldo(t)
		made := create("a", "", "k").must(t, h)
		if err := h.Store.Update(t.Context(), func(tx *sql.Tx) error {
			_, err := tx.Exec(query)
			return err
		}); err != nil || made.Status != facts.OK {
			t.Fatalf("control: %+v %v", made, err)
		}
		again := create("a", "", "k").must(t, h)
		if strings.Contains(query, "size") || strings.Contains(query, "body") {
			if again.Replayed != made.CallID || again.Undo == nil {
				t.Errorf("%s: %s%s", query, again.Status, codes(again))
			}
		} else if again.Status != facts.Denied || first(again) != "row.gone" {
			t.Errorf("%s: %s%s", query, again.Status, codes(again))
		}
		if other := create("a", "", "other").must(t, h); other.Status != facts.OK || b.effects(t, "a") != 2 {
			t.Errorf("%s: control: %s, %d effects", query, other.Status, b.effects(t, "a"))
		}
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

// TestSettlingIsNoBinding: an edited row of a call that ended is not settled, so neither its undo nor its outcome
// becomes what the log has. TestSettledAsRecorded is the control.
func TestSettlingIsNoBinding(t *testing.T) {
	const evil = `body = replace(body, '"args":{"id":1}', '"args":{"id":7}')`
	for _, set := range []string{
		`state = 'unknown', ` + evil, `state = 'begun', process = 'q_gone', ` + evil,
		`state = 'unknown'`, `state = 'begun', process = 'q_gone'`,
	} {
		b := newBench(t, settles+`, rollback: {by: s.delete, args: {id: result.id}}`)
		h := b.waldo(t)
		made := create("a", "", "k").must(t, h)
		edit(t, h, set)
		word, err := h.Effects.Settle(t.Context(), made.CallID, own(t, h))
		if word != call.StillUnknown || err == nil || !strings.HasPrefix(err.Error(), "row.forged: ") {
			t.Errorf("%s: %s %v", set, word, err)
		}
		if r := create("a", "", "k").must(t, h); r.Status != facts.Denied ||
			first(r) != "idempotency.unknown" || b.effects(t, "a") != 1 {
			t.Errorf("%s: the same key: %s%s", set, r.Status, codes(r))
		}
		if _, err := h.Effects.Undo(t.Context(), made.CallID, own(t, h)); err == nil || b.effects(t, "deleted-7") != 0 {
			t.Errorf("%s: undone: %v", set, err)
		}
		if n := kinds(t, h, made.CallID, audit.KindSettled); n != 0 {
			t.Errorf("%s: %d settlements", set, n)
		}
	}
}

// TestSettledKeepsItsWord: a row that is set back to before its settlement gets the settlement that the log has, and no
// second one.
func TestSettledKeepsItsWord(t *testing.T) {
	b := newBench(t, settles)
	h := b.waldo(t)
	made := create("a", "die_after", "k").must(t, h)
	if made.Settled != call.Happened {
		t.Fatalf("control: %q%s", made.Settled, codes(made))
	}
	if err := os.WriteFile(filepath.Join(b.dir, "effects"), nil, 0o600); err != nil { // no read finds it any more
		t.Fatal(err)
	}
	edit(t, h, `state = 'unknown'`)
	word, err := h.Effects.Settle(t.Context(), made.CallID, own(t, h))
	if word != call.Happened || err != nil || kinds(t, h, made.CallID, audit.KindSettled) != 1 {
		t.Errorf("%s %v, %d settlements", word, err, kinds(t, h, made.CallID, audit.KindSettled))
	}
	if r := create("a", "die_after", "k").must(t, h); r.Replayed != made.CallID {
		t.Errorf("the same key: %s%s", r.Status, codes(r))
	}
}

// TestLostIsBound: a write of a contract without settle is settled once the contract has one, if its row is as it was.
func TestLostIsBound(t *testing.T) {
	for _, set := range []string{untouched, `until = '2999-01-01T00:00:00Z'`} {
		b := newBench(t, "")
		lost := create("a", "die_after", "").must(t, b.waldo(t))
		at := filepath.Join(b.dir, "waldo.yaml")
		text, err := os.ReadFile(at)
		if err == nil {
			err = os.WriteFile(at, []byte(strings.Replace(string(text), "seconds: 2", "seconds: 2, "+settles, 1)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		h := b.waldo(t)
		edit(t, h, set)
		word, err := h.Effects.Settle(t.Context(), lost.CallID, own(t, h))
		if sound := set == untouched; sound != (word == call.Happened) ||
			!sound && (err == nil || !strings.HasPrefix(err.Error(), "row.forged: ")) {
			t.Errorf("%s: %s %v", set, word, err)
		}
	}
}

// TestNobodyAsked: waldo records no outcome and no settlement of a call that its log did not allow, whatever a row of a
// killed process says. The control is allowed.
func TestNobodyAsked(t *testing.T) {
	b := newBench(t, settles)
	h := b.waldo(t)
	log, process := &audit.Recorder{Log: h.Log}, h.Effects.Process
	for name, change := range map[string]func(*policy.Decision){
		"control":          func(*policy.Decision) {},
		"denied":           func(d *policy.Decision) { d.Effect = policy.Deny },
		"dry run":          func(d *policy.Decision) { d.DryRun = true },
		"no yes":           func(d *policy.Decision) { d.Effect = policy.Ask },
		"no decision":      nil,
		"other principal":  func(d *policy.Decision) { d.Call.Principal = "os:77" },
		"other delegation": func(d *policy.Decision) { d.Call.Chain = []string{"g_other"} },
	} {
		args, err := call.ArgsOf(map[string]any{"title": name})
		d := policy.Decision{ID: id.New(id.Decision), Effect: policy.Allow, Contract: h.Effects.Contract("s.create")}
		d.Call = call.Call{ID: id.New(id.Call), Capability: "s.create", Principal: "os:1", Args: args, Key: strings.ReplaceAll(name, " ", "-"),
			Channel: "cli"}
		said := d
		if change != nil {
			change(&said)
			err = errors.Join(err, log.Decision(t.Context(), said))
		}
		h.Effects.Process = "q_gone"
		_, r, why, beginErr := h.Effects.Begin(t.Context(), d, args)
		h.Effects.Process = process
		if err := errors.Join(err, beginErr, h.Effects.Recover(t.Context(), nil)); r != nil || why != nil || err != nil {
			t.Fatal(name, r, why, err)
		}
		n, sound := kinds(t, h, d.Call.ID, audit.KindOutcome), name == "control"
		if sound != (n == 1) || !sound && n != 0 {
			t.Errorf("%s: %d outcomes", name, n)
		}
		word, err := h.Effects.Settle(t.Context(), d.Call.ID, own(t, h))
		if word != call.StillUnknown || sound != (err == nil) || !sound && !strings.HasPrefix(err.Error(), "row.forged: ") {
			t.Errorf("%s: %s %v", name, word, err)
		}
		if n := kinds(t, h, d.Call.ID, audit.KindSettled); sound != (n == 1) || !sound && n != 0 {
			t.Errorf("%s: %d settlements", name, n)
		}
	}
}

// own is a call of the test's own session.
func own(t *testing.T, h *app.App) call.Call {
	t.Helper()
	n, err := h.OpenSession()
	if err != nil {
		t.Fatal(err)
	}
	return call.Call{Session: n.ID, Principal: n.Principal, Channel: "cli"}
}

// kinds counts the records of a kind about a call.
func kinds(t *testing.T, h *app.App, callID, kind string) (n int) {
	t.Helper()
	all, err := audit.Find(t.Context(), audit.Dir(h.State), callID)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		var b struct {
			CallID string `json:"call_id"`
		}
		if r.Kind == kind && json.Unmarshal(r.Body, &b) == nil && b.CallID == callID {
			n++
		}
	}
	return n
}
