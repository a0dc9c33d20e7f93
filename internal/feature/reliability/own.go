package reliability

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/audit"
	"waldo/internal/core/effects"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/storage/sandboxes"
)

// undo undoes a call: by the rollback of its contract, or a deletion of files.delete by files.restore, which knows the
// call.
func undo(ctx context.Context, h *app.App, callID string, as call.Call) (call.Result, error) {
	r, err := h.Effects.Undo(ctx, callID, as)
	if !errors.Is(err, effects.ErrAbsent) && !errors.Is(err, effects.ErrNoUndo) {
		return r, err
	}
	deleted, lookErr := deletion(ctx, h.State, callID)
	if lookErr != nil || !deleted {
		return r, errors.Join(err, lookErr)
	}
	as.ID, as.Parent, as.Capability = id.New(id.Call), callID, "files.restore"
	if as.Args, err = call.ArgsOf(map[string]any{"id": callID}); err != nil {
		return r, err
	}
	if why := h.Prepare(ctx, &as); why != nil {
		return r, fmt.Errorf("%s: %s", why.Code, why.Text)
	}
	return h.Call(ctx, as)
}

// deletion reports whether the log has a call of files.delete that succeeded.
func deletion(ctx context.Context, state, callID string) (found bool, _ error) {
	_, err := audit.Select(ctx, audit.Dir(state), audit.Selection{Match: func(r audit.Record) bool {
		return r.Kind == audit.KindOutcome && strings.Contains(string(r.Body), `"`+callID+`"`)
	}}, func(r audit.Record) error {
		var e struct {
			CallID     string       `json:"call_id"`
			Capability string       `json:"capability"`
			Status     facts.Status `json:"status"`
		}
		if err := json.Unmarshal(r.Body, &e); err != nil {
			return err
		}
		found = found || e.CallID == callID && e.Capability == "files.delete" && e.Status == facts.OK
		return nil
	})
	return found, err
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
