package runner

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/sandbox"
	"waldo/internal/storage/workspace"
)

// Remote is a decided run that another machine can carry out: it needs no bridge, and no file of this machine but those
// of its session.
type Remote struct {
	Decision policy.Decision
	Run      call.Run
	Level    string // the isolation level
	Limits   sandbox.Limits
	Files    *workspace.Workspace // of the session; nil: the code sees none
}

// elsewhere has a run carried out on another machine. It returns false where the run is for this one.
func (r *Runner) elsewhere(
	ctx context.Context, d policy.Decision, o Options, driver sandbox.Driver,
) (out call.Outcome, taken bool, err error) {
	if r.Elsewhere == nil || !r.portable(d, o) {
		return out, false, nil
	}
	run := Remote{Decision: d, Run: o.Run, Level: driver.Name(), Limits: r.limits(d, o)}
	if files(d) {
		if run.Files, err = r.Means.Workspace(d.Call.Session); err != nil {
			return out, false, err
		}
		defer func() { err = errors.Join(err, run.Files.Close()) }()
		spilled, err := run.Files.Spilled(d.Call.Args.Raw())
		if err != nil || len(spilled) > 0 {
			return out, false, err
		}
	}
	out, taken, err = r.Elsewhere.Carry(ctx, run)
	if taken && out.Refused == nil {
		out.Facts.Warnings = append(out.Facts.Warnings, narrowed(o.Limits, run.Limits)...)
		for _, s := range []struct {
			to   io.Writer
			text string
		}{{o.Stdout, out.Facts.Stdout}, {o.Stderr, out.Facts.Stderr}} {
			if s.to != nil {
				_, _ = io.WriteString(s.to, s.text) // a reader can be gone
			}
		}
	}
	return out, taken, err
}

// portable reports whether a run needs nothing of this machine, and no tools.
func (r *Runner) portable(d policy.Decision, o Options) bool {
	c, run, args := &d.Contract, o.Run, d.Call.Args.Values()
	_, named := args["session"]
	_, resumed := args["resume"]
	here := named || resumed || r.Shares || c.Hold || c.Input != "" || len(c.Mounts) > 0 || len(d.Call.Chain) > 0 ||
		len(run.Mounts) > 0 || run.Input != "" || run.Whole || run.At != "" || run.Home != "" || o.template() != host ||
		o.Stdin != nil || o.TTY != nil || o.Pass || o.Share != "" || o.Started != nil || o.Lend != nil ||
		len(o.Furnished) > 0 || d.Call.Capability == call.Launch
	return !here && (r.Bridge == nil || run.NoTools || !r.usesTools(d))
}

// usesTools reports whether code can call tools: one of the words that its runtime has for them is in it.
func (r *Runner) usesTools(d policy.Decision) bool {
	if _, script := scripts[d.Call.Capability]; !script {
		return false
	}
	words := append(r.Means.Servers(d.Call), "servers", "search_tools", "searchTools", "waldo", "logger", "scrub")
	a, why := scriptArgs(d)
	return why != nil || slices.ContainsFunc(words, func(w string) bool { return strings.Contains(*a.Code, w) })
}
