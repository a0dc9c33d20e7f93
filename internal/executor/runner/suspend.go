package runner

import (
	"errors"
	"fmt"
	"strings"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/sandbox/engine"
	script "waldo/internal/sandbox/engine/program"
)

// Programs stores suspended programs.
type Programs interface {
	// Save stores the program of a run and returns its id.
	Save(run call.Call, place call.Suspension) (id string, err error)
	// Take returns a program of the run's principal, and the session that it belongs to. It succeeds once. A Refusal is a
	// reason for the agent.
	Take(run call.Call, id string) (place call.Suspension, session call.Session, err error)
	// End forgets a program that went on. One of which nothing ran can be taken again.
	End(id string, ran bool) error
}

// resumed makes a job of {resume}: a program that goes on. ok is false for any other call.
func (r *Runner) resumed(d policy.Decision) (j job, why *call.Reason, ok bool) {
	var a scriptCall
	if decode(d.Call.Args, &a) != nil || a.Resume == "" {
		return job{}, nil, false
	}
	switch {
	case a.Code != nil || len(a.Args) > 0 || len(a.Files) > 0:
		return job{}, &call.Reason{Code: "args.invalid",
			Text: "resume comes alone: the program has its code, arguments and files"}, true
	case r.Programs == nil || r.Bridge == nil:
		return job{}, &call.Reason{Code: "program.not_suspended", Text: "no programs are suspended here"}, true
	}
	place, session, err := r.Programs.Take(d.Call, a.Resume)
	if err != nil {
		return job{}, &call.Reason{Code: "program.not_suspended", Text: err.Error()}, true
	}
	text, err := script.Job{Image: place.Image}.Text()
	if err != nil {
		return job{}, &call.Reason{Code: "program.not_suspended", Text: err.Error()}, true
	}
	return job{argv: engine.Argv, first: script.Prelude, head: text, tools: true, resumes: a.Resume,
		session: session, waits: place.Approvals}, nil, true
}

// caller is the call as whose children the program's calls are made: those of a resumed program are of its session,
// whose approvals they have.
func (j job) caller(run call.Call) call.Call {
	if j.session != "" {
		run.Session = j.session
	}
	return run
}

// suspended stores a program that was suspended, and says how it goes on.
func (r *Runner) suspended(d policy.Decision, j job, out call.Outcome) (call.Outcome, error) {
	if out.Facts.Status != facts.Waiting {
		return out, nil
	}
	if j.place == nil || len(j.place.Image) == 0 {
		out.Facts.Status = facts.Failed // its process said so, and waldo knows of nothing that waits
		return out, nil
	}
	name, err := r.Programs.Save(j.caller(d.Call), *j.place)
	if err != nil {
		out.Facts.Status = facts.Failed
		return out, fmt.Errorf("run %s: storing the suspended program: %w", d.Call.ID, err)
	}
	text := out.Facts.Stdout
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	out.Content = []call.Content{call.Text(fmt.Sprintf("%sThe program is suspended as %s: %d of its calls wait for a "+
		"human (%s). When they are answered, call %s with {\"resume\": \"%s\"}: it goes on from there. Do not run it anew.",
		text, name,
		len(j.place.Approvals),
		strings.Join(j.place.Approvals, ", "), d.Call.Capability, name))}
	out.Suspended = &call.Suspended{Program: name, Approvals: j.place.Approvals}
	return out, nil
}

// settle forgets a program that went on. One that was refused before it ran stays.
func (r *Runner) settle(j job, out call.Outcome) error {
	if j.resumes == "" {
		return nil
	}
	if err := r.Programs.End(j.resumes, out.Refused == nil); err != nil {
		return errors.Join(errors.New("a program that went on is still stored"), err)
	}
	return nil
}
