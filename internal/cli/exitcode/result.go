package exitcode

import (
	"fmt"
	"strings"

	"waldo/internal/core/session"
	"waldo/internal/executor/runner"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// signals are Linux's numbers of the signals that end a program: a sandbox is Linux wherever waldo
// was compiled for.
var signals = map[string]int{
	"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8,
	"SIGKILL": 9, "SIGUSR1": 10, "SIGSEGV": 11, "SIGUSR2": 12, "SIGPIPE": 13, "SIGALRM": 14, "SIGTERM": 15,
	"SIGSTKFLT": 16, "SIGXCPU": 24, "SIGXFSZ": 25, "SIGVTALRM": 26, "SIGPROF": 27, "SIGIO": 29, "SIGPWR": 30, "SIGSYS": 31,
}

// Signal is the exit code of a shell for a command that a signal ended. A real-time signal is its number.
func Signal(name string) int {
	n := signals[name]
	if n == 0 {
		_, _ = fmt.Sscanf(name, "SIG%d", &n)
	}
	return 128 + n
}

// OfResult turns a result into an error with the documented exit code. A command that ran passes its own code on;
// otherwise the code gives the reason.
func OfResult(r call.Result) error {
	f := r.Facts
	switch f.Status {
	case facts.OK:
		return nil
	case facts.Denied:
		return &Exit{Code: deniedCode(r.Why), Text: "denied: " + Reasons(first(r.Why)), Hint: deniedHint(r)}
	case facts.Waiting:
		if s := r.Suspended; s != nil && len(s.Approvals) > 0 {
			return &Exit{
				Code: Waiting, Text: "the program waits for a human: " + strings.Join(s.Approvals, ", "),
				Hint: "waldo approve " + s.Approvals[0] + ", then waldo call run_javascript resume=" + s.Program,
			}
		}
		if r.Preview != nil {
			return &Exit{Code: Waiting, Text: "this was a preview, and nothing was done",
				Hint: "the same call with confirm=" + r.Preview.Token + " acts"}
		}
		return &Exit{
			Code: Waiting, Text: "waiting for a human: " + r.ApprovalID,
			Hint: "waldo approve " + r.ApprovalID + ", then ask again",
		}
	case facts.Timeout:
		return &Exit{Code: Timeout, Text: strings.ToLower(runner.Sentence(f)[:1]) + runner.Sentence(f)[1:]}
	case facts.OOM:
		return &Exit{Code: OOM, Text: strings.ToLower(runner.Sentence(f)[:1]) + runner.Sentence(f)[1:]}
	case facts.Cancelled:
		if why := r.Ended(); len(why) > 0 {
			return &Exit{Code: 130, Text: "cancelled: " + Reasons(why)}
		}
		return &Exit{Code: 130, Text: "cancelled"}
	}
	if f.Limit != nil && (f.Signal != nil || f.ExitCode != nil && *f.ExitCode == 0) {
		code := Failed // a failed call never exits with 0
		if f.Signal != nil {
			code = Signal(*f.Signal)
		}
		return &Exit{Code: code, Text: strings.ToLower(runner.Sentence(f)[:1]) + runner.Sentence(f)[1:]}
	}
	if f.ExitCode != nil && *f.ExitCode != 0 {
		return &Exit{Code: *f.ExitCode}
	}
	if f.Signal != nil {
		return &Exit{Code: Signal(*f.Signal), Text: "killed by " + *f.Signal}
	}
	if why := r.Cause(); len(why) > 0 && why[0].Code == call.PeerWaits {
		return &Exit{Code: Waiting, Text: Reasons(why), Hint: "make the call again with the task_id of its result"}
	}
	return &Exit{Code: Failed, Text: "the run failed: " + strings.Join(append(f.Warnings, Reasons(r.Cause())), "; ")}
}

// first returns the deciding reason. waldo explain shows the others.
func first(why []call.Reason) []call.Reason { return why[:min(1, len(why))] }

// deniedHint returns a hint for a denial.
func deniedHint(r call.Result) string {
	if len(r.Why) > 0 && r.Why[0].Code == session.Ended {
		return "the operator lets everybody in again with: waldo stop --release --all (or NAME in place of --all)"
	}
	if len(r.Why) > 0 && r.Why[0].Code == "contract.absent" && r.Why[0].File != "" {
		hint := "add a contract for it to " + r.Why[0].File
		if r.DecisionID != "" {
			hint += "; for this denial: waldo explain " + r.DecisionID
		}
		return hint
	}
	hint := "waldo explain " + r.DecisionID
	if len(r.Why) > 0 && r.Why[0].RetryAfter > 0 {
		hint = fmt.Sprintf("make the same call again in %d s; for this denial: %s", r.Why[0].RetryAfter, hint)
	}
	return hint
}

// deniedCode returns the exit code of a denial. The first reason tells a human's answer from a contract's rule.
func deniedCode(why []call.Reason) int {
	if len(why) > 0 && strings.HasPrefix(why[0].Code, "approval.") {
		return Waiting
	}
	return Denied
}

// Reasons joins the code, text and position of each reason in one line.
func Reasons(why []call.Reason) string {
	parts := make([]string, 0, len(why))
	for _, r := range why {
		s := r.Code
		if r.Text != "" {
			s += " (" + r.Text + ")"
		}
		if r.File != "" && r.Line > 0 {
			s += fmt.Sprintf(" at %s:%d", r.File, r.Line)
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "; ")
}
