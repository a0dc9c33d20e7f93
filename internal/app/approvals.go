package app

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"waldo/internal/config"
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

// AskedUnder reports whether a question was asked under a configuration, as far as the digest shows. The digest covers
// the file's name, and the process that asked can have used another name for the same file.
func AskedUnder(cfg *contract.Config, q approval.Question) bool {
	p, err := policy.New(cfg, policy.Machine{})
	if err != nil || p.Digest() == q.Policy {
		return true
	}
	text, err := config.ReadFile(cfg.File)
	if err != nil {
		return false
	}
	for _, name := range otherNames(cfg.File) {
		same, problems := config.Parse(name, text)
		if len(problems) == 0 && same.Environment != cfg.Environment {
			same, problems = config.ParseIn(name, text, cfg.Environment)
		}
		if len(problems) > 0 {
			continue
		}
		if p, err := policy.New(same, policy.Machine{}); err == nil && p.Digest() == q.Policy {
			return true
		}
	}
	return false
}

// otherNames returns the names under which another process can have read a file: the absolute ones, and those in its
// own folder and in the folders above.
func otherNames(file string) (names []string) {
	full, err := filepath.Abs(file)
	if err != nil {
		return nil
	}
	all := []string{full}
	if real, err := filepath.EvalSymlinks(full); err == nil && real != full {
		all = append(all, real)
	}
	sep := string(filepath.Separator)
	for _, full := range all {
		names = append(names, full)
		parts := strings.Split(strings.TrimPrefix(full, filepath.VolumeName(full)+sep), sep)
		for i := len(parts) - 1; i >= 0; i-- {
			name := strings.Join(parts[i:], sep)
			names = append(names, name, "."+sep+name)
		}
	}
	return names
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
