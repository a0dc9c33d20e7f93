package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"waldo/internal/app/control"
	"waldo/internal/core/approval"
	"waldo/internal/core/hold"
	"waldo/internal/core/policy"
	"waldo/internal/executor/preview"
	"waldo/internal/model/call"
	"waldo/internal/storage/programs"
)

// Programs returns the suspended programs of a state directory.
func Programs(state string) programs.Store {
	return programs.Store{Dir: filepath.Join(state, "programs")}
}

// suspendedPrograms stores suspended programs in the state directory.
type suspendedPrograms struct{ h *App }

func (s suspendedPrograms) store() programs.Store { return Programs(s.h.State) }

// Save stores a program with its session, which its approvals are bound to.
func (s suspendedPrograms) Save(run call.Call, place call.Suspension) (string, error) {
	info, ok := s.h.Sessions.Get(run.Session)
	if !ok {
		return "", fmt.Errorf("session %s is not open", run.Session)
	}
	start := run.Args.Raw()
	if before := resumes(run.Args); before != "" {
		p, err := s.store().Look(before, string(run.Principal))
		if err != nil {
			return "", err
		}
		start = p.Start
	}
	return s.store().Save(programs.Program{
		Capability: string(run.Capability), Session: string(run.Session), Principal: string(run.Principal),
		Workspace: info.Workspace, Delegation: leaf(run), Approvals: place.Approvals, At: time.Now(), Start: start, Image: place.Image,
	})
}

// resumes returns the id of the suspended program that a call names; empty: none.
func resumes(args call.Args) string {
	name, _ := args.Values()["resume"].(string)
	return name
}

// previewResumed describes the program that a call resumes, by the call that started it. Other calls have no preview
// here.
func previewResumed(state string, d policy.Decision) []string {
	name := resumes(d.Call.Args)
	if name == "" || !preview.RunsCode(d.Call.Capability) {
		return nil
	}
	p, err := Programs(state).Look(name, string(d.Call.Principal))
	if err != nil || p.Capability != string(d.Call.Capability) {
		return []string{"no such program is suspended"}
	}
	args, err := call.ParseArgs(p.Start)
	if err != nil || len(p.Start) == 0 {
		return []string{"a suspended program goes on; its code is not on record"}
	}
	d.Call.Args = args
	more := maps.Clone(args.Values())
	delete(more, "code")
	lines := append([]string{fmt.Sprintf("a program that was suspended at %s goes on; it started with %d bytes, %s",
		p.At.UTC().Format(time.RFC3339), len(p.Start), args.Digest())}, preview.Sandboxed(d)...)
	if b, err := json.MarshalIndent(more, "", "  "); err == nil && len(more) > 0 {
		lines = append(lines, preview.Numbered("its other arguments", string(b))...)
	}
	return lines
}

// Take takes a program and opens its session again, where that has ended with another waldo.
func (s suspendedPrograms) Take(run call.Call, name string) (place call.Suspension, n call.Session, _ error) {
	p, err := s.store().Take(name, string(run.Principal))
	if err != nil {
		return place, "", err
	}
	if p.Capability != string(run.Capability) {
		return place, "", errors.Join(fmt.Errorf("this program belongs to %s", p.Capability), s.store().Return(name))
	}
	if p.Delegation != leaf(run) { // its code would have the authority of who goes on with it
		return place, "", errors.Join(programs.ErrAbsent, s.store().Return(name))
	}
	session := call.Session(p.Session)
	if _, open := s.h.Sessions.Get(session); !open {
		if _, err := s.h.Sessions.Resume(session, run.Principal, p.Workspace); err != nil {
			return place, "", errors.Join(err, s.store().Return(name))
		}
	}
	return call.Suspension{Image: p.Image, Approvals: p.Approvals}, session, nil
}

// leaf returns the delegation that a call is made under; empty: none.
func leaf(c call.Call) string {
	if len(c.Chain) == 0 {
		return ""
	}
	return c.Chain[len(c.Chain)-1]
}

// RevokePrograms removes the suspended programs of delegations, so that they never go on. It returns how many there were.
func RevokePrograms(state string, delegations []string) (int, error) {
	return Programs(state).Remove(func(p programs.Program) bool { return slices.Contains(delegations, p.Delegation) })
}

// StopPrograms removes the suspended programs of a stopped session, principal or everybody, so that they never go on. It
// returns how many there were.
func StopPrograms(state, name string) (int, error) {
	return Programs(state).Remove(func(p programs.Program) bool {
		return name == control.Everybody || p.Session == name || p.Principal == name
	})
}

// End forgets a program that went on.
func (s suspendedPrograms) End(name string, ran bool) error {
	if !ran {
		return s.store().Return(name)
	}
	return s.store().End(name)
}

// heldCalls makes the calls of a program whose writes were held, under the configuration in force.
type heldCalls struct{ *App }

// heldResult returns the result of a held call of a program.
func heldResult(ctx context.Context, run call.Call, number int, approvalID string) (call.Result, error) {
	l := hold.Whose(ctx)
	if l == nil {
		return call.Result{}, errors.New("the writes of this program are not held")
	}
	return l.Result(ctx, run.Session, number, approvalID)
}

// Preview returns what a call would do.
func (h heldCalls) Preview(ctx context.Context, d policy.Decision) []string {
	return h.lives.preview(ctx, d)
}

// Statements returns the questions about the held calls of a session that a call can still find, the newest first; of
// all sessions, if n is empty.
func (h heldCalls) Statements(ctx context.Context, n call.Session) ([]approval.Question, error) {
	return h.Approvals.Standing(ctx, n, approval.Held)
}
