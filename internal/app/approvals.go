package app

import (
	"context"
	"errors"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/model/contract"
)

// Approvals opens the approval service of a state directory without the rest of the application. close closes it.
func Approvals(state string, cfg *contract.Config) (k *approval.Service, closes func() error, err error) {
	s, err := OpenStorage(state)
	if err != nil {
		return nil, nil, err
	}
	return s.approvals(cfg), s.Close, nil
}

// ApprovalsOnRecord opens the same for a change of who may answer, which goes to the log.
func ApprovalsOnRecord(
	ctx context.Context, state string, cfg *contract.Config,
) (k *approval.Service, closes func() error, err error) {
	s, err := openRecorded(ctx, state, 0)
	if err != nil {
		return nil, nil, err
	}
	return s.approvals(cfg), s.Close, nil
}

// AskedUnder reports whether a question was asked under a configuration, as far as that can be told.
func AskedUnder(cfg *contract.Config, q approval.Question) bool {
	p, err := policy.New(cfg, policy.Machine{})
	return err != nil || p.Digest() == q.Policy
}

// TooLate records an answer that came after the last call that could use it.
func TooLate(
	ctx context.Context, state string, cfg *contract.Config, q approval.Question, yes bool, code, why string,
) (err error) {
	k, done, err := ApprovalsOnRecord(ctx, state, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	said := "no"
	if yes {
		said = "yes"
	}
	return k.TakeBack(ctx, q, approval.Answer{ApprovalID: q.ID, DecisionID: q.DecisionID, ArgsDigest: q.ArgsDigest,
		Capability: q.Capability, Refusal: code, By: Principal(), Reason: said + ", too late: " + why, At: time.Now()})
}

// takingBack returns the approval service of this application, which also records a yes that is taken back.
func (h *App) takingBack() *approval.Service {
	h.Approvals.TakeBack = h.takeBack
	return h.Approvals
}
