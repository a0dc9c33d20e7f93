package app

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/term"

	"waldo/internal/core/audit"
)

// RecordChange records a change by this user, which then may be made.
func (s *Storage) RecordChange(ctx context.Context, action, object, digest string) error {
	err := s.Log.Change(ctx, audit.Change{Action: action, Object: object, Digest: digest, User: string(Principal()),
		Terminal: term.IsTerminal(int(os.Stdin.Fd()))})
	if err != nil {
		return fmt.Errorf("%s %s could not be recorded, and was not done: %w", action, object, err)
	}
	return nil
}

// RecordChange is the same for a command that needs no more of a state directory, which the operator names so.
func RecordChange(ctx context.Context, stateFlag, action, object, digest string) error {
	state, err := StateDir(stateFlag)
	if err != nil {
		return err
	}
	s, err := OpenRecorded(ctx, state, 0)
	if err != nil {
		return err
	}
	return errors.Join(s.RecordChange(ctx, action, object, digest), s.Close())
}
