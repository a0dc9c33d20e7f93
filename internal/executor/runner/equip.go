package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/executor/keyfiles"
	serverfiles "waldo/internal/executor/upstream/files"
	"waldo/internal/model/call"
	"waldo/internal/sandbox"
)

// equip completes the options of a run with the contract's settings for its sandbox: template, input folder and
// environment. Options never override the contract.
func (r *Runner) equip(ctx context.Context, d policy.Decision, o Options) (Options, *call.Reason) {
	c := d.Contract
	if why := r.contractTemplate(ctx, d, &o); why != nil {
		return o, why
	}
	if c.Input != "" {
		written, _ := c.At.Beside(c.Input)
		folder, err := r.Machine.Place(c.At, c.Input)
		if f := (serverfiles.Fault{}); errors.As(err, &f) && f.Refused {
			slog.Warn("an input folder is refused", "capability", string(d.Call.Capability), "why", err)
			return o, &call.Reason{
				Code: "input.refused", Text: "the input folder of this capability may not be shown; the operator sees why",
				Cause: err.Error(),
			}
		}
		if info, serr := os.Stat(folder); err != nil || serr != nil || !info.IsDir() {
			slog.Warn("an input folder is not there", "capability", string(d.Call.Capability), "input", c.Input)
			return o, &call.Reason{
				Code: "input.absent", Text: "the input folder of this capability is not there; the operator sees which",
				Cause: c.Input,
			}
		}
		if o.Input != "" && o.Input != folder && o.Input != written {
			return o, &call.Reason{Code: "input.contract", Text: "the contract names another input folder than was asked for"}
		}
		o.Input = folder
	}
	if len(c.Env) > 0 {
		env := slices.DeleteFunc(slices.Clone(o.Env), func(kv string) bool {
			k, _, _ := strings.Cut(kv, "=")
			_, written := c.Env[k]
			return written
		})
		for _, k := range slices.Sorted(maps.Keys(c.Env)) {
			env = append(env, k+"="+c.Env[k])
		}
		o.Env = env
	}
	return o, nil
}

// hide looks for what the input folder must not show: what the tools for files do not read either.
func (o Options) hide() (Options, *call.Reason) {
	if o.Input == "" {
		return o, nil
	}
	hidden, err := keyfiles.Below(o.Input)
	if errors.Is(err, keyfiles.ErrState) {
		return o, &call.Reason{Code: "input.keys", Text: "the input folder cannot be shown: " + keyfiles.ErrState.Error()}
	}
	if err != nil {
		slog.Warn("an input folder cannot be looked through for keys", "input", o.Input, "why", err)
		return o, &call.Reason{Code: "input.keys", Text: "the input folder cannot be looked through for files that hold " +
			"keys; the operator sees why", Cause: err.Error()}
	}
	o.hidden = hidden
	return o, nil
}

// notShown is a warning that names what the input folder does not show.
func (o Options) notShown() []string {
	if len(o.hidden) == 0 {
		return nil
	}
	const some = 5
	text := strings.Join(o.hidden[:min(len(o.hidden), some)], ", ")
	if more := len(o.hidden) - some; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return []string{"/workspace/input: names that stand for keys are empty: " + text}
}

// contractTemplate takes the template that the contract names, if any, and refuses a run that asks for another.
func (r *Runner) contractTemplate(ctx context.Context, d policy.Decision, o *Options) *call.Reason {
	name := d.Contract.Template
	if name == "" || name == host.Name {
		return nil
	}
	asked := o.template()
	t, image, err := r.Means.Template(ctx, d.Contract)
	if err != nil {
		slog.Warn("a template cannot be had", "capability", string(d.Call.Capability), "template", name, "why", err)
		return &call.Reason{
			Code: "template.absent", Text: "the template of this capability is not available on this machine; " +
				"the operator sees why", Cause: err.Error(),
		}
	}
	if asked != host && asked != t {
		return &call.Reason{Code: "template.contract", Text: "the contract names another template than was asked for"}
	}
	o.Root, o.Image = t, image
	return nil
}

// shorten takes the time that the agent gives its own code, timeout_s, if that is less than was asked for it. The
// contract bounds it as any other.
func (o *Options) shorten(d policy.Decision) *call.Reason {
	var a struct {
		Seconds *float64 `json:"timeout_s"`
	}
	if _, code := scripts[d.Call.Capability]; !code && d.Call.Capability != "run_shell" {
		return nil
	}
	if decode(d.Call.Args, &a) != nil || a.Seconds != nil && !(*a.Seconds > 0) {
		return &call.Reason{Code: "args.invalid", Text: "timeout_s is a number of seconds above 0"}
	}
	if a.Seconds == nil || *a.Seconds > longestAsked.Seconds() {
		return nil
	}
	asked := max(time.Duration(*a.Seconds*float64(time.Second)), time.Millisecond)
	if o.Limits.Wall <= 0 || asked < o.Limits.Wall {
		o.Limits.Wall = asked
	}
	return nil
}

// longestAsked is more than any contract allows.
const longestAsked = 24 * time.Hour

// limits returns the limits of a run: the requested ones, capped by the contract, or by the runner's own if the
// contract sets none.
func (r *Runner) limits(d policy.Decision, o Options) sandbox.Limits {
	def, most, run := r.Default, r.Most, d.Contract.Run
	written(&def.Memory, &most.Memory, int64(run.MemoryMB)<<20)
	written(&def.Pids, &most.Pids, int64(run.Pids))
	written(&def.Files, &most.Files, int64(run.Files))
	written(&def.Disk, &most.Disk, int64(run.DiskMB)<<20)
	written(&def.Output, &most.Output, int64(run.OutputKB)<<10)
	written(&def.CPU, &most.CPU, run.CPU)
	return narrow(sandbox.Limits(o.Limits), def, most, d.Contract.Timeout)
}

// narrowed warns of limits that were asked for and are not given.
func narrowed(asked call.Limits, given sandbox.Limits) (warnings []string) {
	warn := func(flag, asked, given string) {
		warnings = append(warnings, fmt.Sprintf("%s: %s were asked for, and the contract allows %s", flag, asked, given))
	}
	if asked.Wall > given.Wall {
		warn("time", asked.Wall.String(), given.Wall.String())
	}
	if asked.CPU > given.CPU {
		warn("processor time", asked.CPU.String(), given.CPU.String())
	}
	for _, l := range []struct {
		name         string
		asked, given int64
		unit         int64
	}{{"MB of memory", asked.Memory, given.Memory, 1 << 20}, {"processes", asked.Pids, given.Pids, 1},
		{"open files", asked.Files, given.Files, 1}, {"MB of disk", asked.Disk, given.Disk, 1 << 20},
		{"KB of output", asked.Output, given.Output, 1 << 10}} {
		if l.asked > l.given {
			warn(l.name, fmt.Sprint(l.asked/l.unit), fmt.Sprint(l.given/l.unit))
		}
	}
	return warnings
}

// written puts a limit that a contract writes in the place of the runner's.
func written[N int64 | time.Duration](def, most *N, n N) {
	if n > 0 && *most > 0 { // a runner without limits runs nothing, regardless of the contract
		*def, *most = n, n
	}
}
