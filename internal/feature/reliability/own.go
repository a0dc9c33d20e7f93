package reliability

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/audit"
	"waldo/internal/core/effects"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/storage/sandboxes"
)

// filesRestore undoes calls of files.*, which it knows by their ids.
const filesRestore = "files.restore"

var errNotLast = errors.New("the call ran in a sandbox, and only the last command of a named sandbox can be " +
	"undone by its id")

// undo undoes a call: by the rollback of its contract, or as its record says by files.restore.
func undo(ctx context.Context, h *app.App, callID string, as call.Call) (call.Result, error) {
	r, err := h.Effects.Undo(ctx, callID, as)
	if !errors.Is(err, effects.ErrAbsent) && !errors.Is(err, effects.ErrNoUndo) {
		return r, err
	}
	decision, lookErr := ofFiles(ctx, h.State, callID)
	if lookErr == nil && decision == "" && errors.Is(err, effects.ErrAbsent) {
		var ran bool
		if ran, lookErr = ranProgram(ctx, h.State, callID); ran {
			return r, errNotLast
		}
	}
	if lookErr != nil || decision == "" {
		return r, errors.Join(err, lookErr)
	}
	by, err := h.Effects.Log.Undone(ctx, policy.Decision{ID: decision, Call: call.Call{ID: callID}}, filesRestore)
	if err != nil {
		return r, err
	}
	if effect, _ := audit.Fate(ctx, audit.Dir(h.State), by); by != "" && effect == facts.Confirmed {
		return r, fmt.Errorf("%w, by %s", effects.ErrUndone, by)
	}
	as.ID, as.Parent, as.Capability = id.New(id.Call), callID, filesRestore
	if as.Args, err = call.ArgsOf(map[string]any{"id": callID}); err != nil {
		return r, err
	}
	if why := h.Prepare(ctx, &as); why != nil {
		return r, fmt.Errorf("%s: %s", why.Code, why.Text)
	}
	return h.Call(ctx, as)
}

// ofFiles returns the decision of a call that files.restore would undo, by the log; empty: it would not.
func ofFiles(ctx context.Context, state, callID string) (decision string, _ error) {
	_, err := audit.Select(ctx, audit.Dir(state), audit.Selection{Kind: audit.KindOutcome, About: []string{callID}}, func(r audit.Record) error {
		var e struct {
			CallID     string `json:"call_id"`
			DecisionID string `json:"decision_id"`
			UndoBy     string `json:"undo_by"`
		}
		if err := json.Unmarshal(r.Body, &e); err != nil {
			return err
		}
		if e.CallID == callID && e.UndoBy == filesRestore {
			decision = e.DecisionID
		}
		return nil
	})
	return decision, err
}

// ranProgram reports whether a call ran in a sandbox, by the log.
func ranProgram(ctx context.Context, state, callID string) (ran bool, _ error) {
	about := audit.Selection{Kind: audit.KindDecision, About: []string{callID}}
	_, err := audit.Select(ctx, audit.Dir(state), about, func(r audit.Record) error {
		var d audit.Decided
		if err := json.Unmarshal(r.Body, &d); err != nil {
			return err
		}
		ran = ran || d.CallID == callID && d.Contract != nil && d.Contract.Transport == contract.SandboxedExec
		return nil
	})
	return ran, err
}

// beforeCommand returns the newest snapshot from directly before a call, if that was the last command of a sandbox of
// the user; else the id as it is.
func beforeCommand(ctx context.Context, h *app.App, ident string) (string, error) {
	if !id.Is(id.Call, ident) {
		return ident, nil
	}
	m, err := h.Sandboxes(ctx)
	if err != nil {
		return "", err
	}
	all, err := m.List(ctx, app.Owner())
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(all, func(s sandboxes.Sandbox) bool { return s.Last == ident })
	if i < 0 {
		return ident, nil
	}
	pictures, err := m.Snapshots(ctx, app.Owner())
	if err != nil {
		return "", err
	}
	for _, p := range slices.Backward(pictures) {
		if p.Of.ID == all[i].ID && p.Of.Runs == all[i].Runs-1 {
			return p.ID, nil
		}
	}
	return "", exitcode.Mistake("waldo sandbox snapshot --list", "%s is the last command of sandbox %s, which has no "+
		"snapshot from directly before it", ident, all[i].Name)
}

// undoSandbox gives a sandbox of the user the files of its snapshot. It is the owner's direct access, not a call.
func undoSandbox(c *cobra.Command, h *app.App, snapshot string) error {
	m, err := h.Sandboxes(c.Context())
	if err != nil {
		return err
	}
	p, err := m.Picture(c.Context(), app.Owner(), snapshot)
	if errors.Is(err, sandboxes.ErrNoPicture) {
		return exitcode.Mistake("waldo sandbox snapshot --list", "%s: %v", snapshot, err)
	}
	if err != nil {
		return err
	}
	now, err := m.Get(c.Context(), app.Owner(), p.Of.Name)
	if err == nil && now.ID != p.Of.ID {
		err = exitcode.Mistake("waldo sandbox restore "+p.Of.Name+" "+p.ID,
			"%s is of an earlier sandbox with the name %s", p.ID, p.Of.Name)
	}
	if err == nil {
		_, err = m.Restore(c.Context(), app.Owner(), now.ID, p.ID) // by id: another can get the name meanwhile
	}
	if errors.Is(err, sandboxes.ErrAbsent) {
		return exitcode.Mistake("waldo sandbox create NAME --from "+p.ID, "sandbox %s: %v", p.Of.Name, err)
	}
	if err != nil {
		return err
	}
	display.Fprintf(c.ErrOrStderr(), "waldo: sandbox %s has the files of %s again\n", p.Of.Name, p.ID)
	return nil
}
