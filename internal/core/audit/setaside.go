package audit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/storage/safefile"
)

// SetAside moves every segment of a log that Open refuses, unchanged, to a folder inside the log's. It starts a new
// chain whose first record names who did this and why, Verify's findings and the end of the old chain. The heads
// follow. It refuses a log that Verify finds sound.
func SetAside(ctx context.Context, dir string, o Options, by, reason string) (folder string, err error) {
	if by == "" || reason == "" {
		return "", errors.New("audit: setting a log aside needs a name and a reason")
	}
	o = o.filled()
	anchors, err := Anchors(ctx, o)
	if err != nil {
		return "", err
	}
	report, err := Verify(ctx, dir, anchors, o.Now())
	if err != nil {
		return "", err
	}
	if report.OK {
		return "", errors.New("audit: the log is sound; there is nothing to set aside")
	}
	firsts, err := firstApprovers(ctx, dir)
	if err != nil {
		return "", err
	}
	l := &Log{dir: dir, o: o}
	if err := l.openLock(); err != nil {
		return "", err
	}
	defer func() { _ = l.lockFile.Close() }()
	if err := lock(l.lockFile, false, o.LockWait); err != nil {
		return "", err
	}
	if folder, err = moveSegments(dir, o.Now()); err != nil {
		return "", fmt.Errorf("audit: %w", err)
	}
	report.Findings = report.Findings[:min(len(report.Findings), 20)]
	err = l.create(ctx, map[string]any{"set_aside": map[string]any{
		"folder": filepath.Base(folder), "by": short(by), "reason": short(reason), "report": report, "heads": anchors,
	},
		"first_approvers": firsts})
	if l.file != nil {
		err = errors.Join(err, l.file.Close())
	}
	if err != nil {
		return folder, err
	}
	h := l.at.head(o.Now())
	err = o.Heads.ResetHead(ctx, Name, h)
	if o.Second != nil {
		err = errors.Join(err, o.Second.ResetHead(ctx, Name, h))
	}
	return folder, err
}

// How many first approvers a new log names, of which one is usual, and how many revocations.
const (
	maxFirsts  = 20
	maxRevoked = 1000
)

// firstApprovers returns the enrolments of first approvers in a log that is set aside, and every readable revocation.
// All others must be enrolled again: their revocation could be in the damaged part.
func firstApprovers(ctx context.Context, dir string) ([]approval.Enrolment, error) {
	firsts, revoked := 0, 0
	all, err := enrolments(ctx, dir, math.MaxUint64)
	return slices.DeleteFunc(all, func(e approval.Enrolment) bool {
		if e.Action == "revoke" {
			revoked++
			return revoked > maxRevoked
		}
		first := e.By == e.Approver
		if first {
			firsts++
		}
		return !first || firsts > maxFirsts
	}), err
}

func moveSegments(dir string, now time.Time) (string, error) {
	names, err := segments(dir)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(dir, fmt.Sprintf("aside-%d", now.UnixMilli()))
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", err
	}
	for _, name := range names {
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(folder, name)); err != nil {
			return "", err
		}
	}
	return folder, errors.Join(safefile.SyncDir(folder), safefile.SyncDir(dir))
}
