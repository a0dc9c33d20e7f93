package approval

import (
	"context"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// about is the Calls of a test, which sets what it is about. The rest is as in Fixed.
type about struct {
	rules   func() contract.Approvals
	wait    func(channel string) time.Duration
	notes   func(policy.Decision) []string
	preview func(context.Context, policy.Decision) []string
	begun   func(context.Context, policy.Decision) (string, bool, error)
	asker   func(call.Session) string
}

func (a *about) Rules() contract.Approvals {
	if a.rules == nil {
		return contract.Approvals{}
	}
	return a.rules()
}

func (a *about) WaitTimeout(channel string) time.Duration {
	if a.wait == nil {
		return 0
	}
	return a.wait(channel)
}

func (a *about) Notes(d policy.Decision) []string {
	if a.notes == nil {
		return nil
	}
	return a.notes(d)
}

func (a *about) Preview(ctx context.Context, d policy.Decision) []string {
	if a.preview == nil {
		return nil
	}
	return a.preview(ctx, d)
}

func (a *about) Begun(ctx context.Context, d policy.Decision) (string, bool, error) {
	if a.begun == nil {
		return "", false, nil
	}
	return a.begun(ctx, d)
}

func (a *about) Asker(n call.Session) string {
	if a.asker == nil {
		return ""
	}
	return a.asker(n)
}
