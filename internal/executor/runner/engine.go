package runner

import (
	"strings"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/engine"
	script "waldo/internal/sandbox/engine/program"
	"waldo/internal/sandbox/guest"
)

// engineLevel is the isolation level with an interpreter of its own, for programs in JavaScript and TypeScript alone.
const engineLevel = "engine"

// jobFor is job for a driver: on the level engine a program needs no interpreter of the machine.
func (r *Runner) jobFor(d policy.Decision, o Options, driver sandbox.Driver) (job, *call.Reason) {
	if driver.Name() != engineLevel {
		return r.job(d, o)
	}
	lang := scripts[d.Call.Capability]
	if lang != guest.JavaScript && lang != guest.TypeScript {
		return job{}, &call.Reason{Code: "isolation.language",
			Text: "isolation engine runs JavaScript and TypeScript, and " +
				string(d.Call.Capability) + " is neither; Python, shells and programs need isolation namespace or gvisor, on Linux"}
	}
	if o.template() != host {
		return job{}, &call.Reason{Code: "isolation.template",
			Text: "isolation engine has no templates: a program sees no root filesystem"}
	}
	env, why := r.revealed(d, o)
	if why != nil {
		return job{}, why
	}
	if j, why, ok := r.resumed(d); ok {
		return j, why
	}
	a, why := scriptArgs(d)
	if why != nil {
		return job{}, why
	}
	p := script.Job{Lang: lang, Name: o.Name, Args: a.Args, Code: []byte(*a.Code), Env: map[string]string{}}
	for _, kv := range with(o.Env, env) {
		if k, v, ok := strings.Cut(kv, "="); ok {
			p.Env[k] = v
		}
	}
	if r.Servers != nil && r.Bridge != nil && !o.NoTools {
		p.Servers = guest.Identifiers(r.Servers(d.Call))
	}
	text, err := p.Text()
	if err != nil {
		return job{}, &call.Reason{Code: "args.invalid", Text: err.Error()}
	}
	j := job{argv: engine.Argv, first: script.Prelude, head: text, tools: r.Bridge != nil && !o.NoTools}
	return j, j.bring(d, r, a.Files)
}
