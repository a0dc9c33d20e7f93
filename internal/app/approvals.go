package app

import (
	"context"
	"errors"
	"time"

	"waldo/internal/app/trust"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
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

// ApprovalsOnRecord opens the same with the log, which an answer and a change of who may answer go to.
func ApprovalsOnRecord(
	ctx context.Context, state string, cfg *contract.Config,
) (k *approval.Service, closes func() error, err error) {
	s, err := OpenRecorded(ctx, state, 0)
	if err != nil {
		return nil, nil, err
	}
	return s.approvals(cfg), s.Close, nil
}

// AskedUnder reports whether a question was asked under a configuration. One that the operator named has
// another digest than the same one as it is trusted, with its programs: for a question they are one.
func AskedUnder(state string, cfg *contract.Config, q approval.Question) bool {
	was, untrusted := trust.Held(state, cfg)
	if untrusted != nil {
		was.Programs = nil
	}
	for _, programs := range []map[string]string{cfg.Programs, nil, was.Programs} {
		same := *cfg
		same.Programs = programs
		if p, err := policy.New(&same, policy.Machine{}); err != nil || p.Digest() == q.Policy {
			return true
		}
	}
	return false
}

// TooLate records an answer that came after the last call that could use it.
func TooLate(
	ctx context.Context, state string, q approval.Question, yes bool, code, why string,
) (err error) {
	s, err := OpenRecorded(ctx, state, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	said := "no"
	if yes {
		said = "yes"
	}
	return (&audit.Recorder{Log: s.Log}).TooLate(ctx, approval.Answer{ApprovalID: q.ID, DecisionID: q.DecisionID, ArgsDigest: q.ArgsDigest,
		Capability: q.Capability, Refusal: code, By: Principal(), Reason: said + ", too late: " + why, At: time.Now()})
}
