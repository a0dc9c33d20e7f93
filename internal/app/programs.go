package app

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"waldo/internal/app/control"
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
	return s.store().Save(programs.Program{
		Capability: string(run.Capability), Session: string(run.Session), Principal: string(run.Principal),
		Workspace: info.Workspace, Approvals: place.Approvals, At: time.Now(), Image: place.Image,
	})
}

// Take takes a program and opens its session again, where that has ended with another waldo.
func (s suspendedPrograms) Take(run call.Call, name string) ([]byte, call.Session, error) {
	p, err := s.store().Take(name, string(run.Principal))
	if err != nil {
		return nil, "", err
	}
	if p.Capability != string(run.Capability) {
		return nil, "", errors.Join(fmt.Errorf("this program belongs to %s", p.Capability), s.store().Return(name))
	}
	session := call.Session(p.Session)
	if _, open := s.h.Sessions.Get(session); !open {
		if _, err := s.h.Sessions.Resume(session, run.Principal, p.Workspace); err != nil {
			return nil, "", errors.Join(err, s.store().Return(name))
		}
	}
	return p.Image, session, nil
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
