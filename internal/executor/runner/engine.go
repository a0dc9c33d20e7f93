package runner

import (
	"strings"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/engine"
	"waldo/internal/sandbox/engine/cpython"
	script "waldo/internal/sandbox/engine/program"
	"waldo/internal/sandbox/guest"
)

// engineLevel is the isolation level with interpreters of its own, for scripts alone.
const engineLevel = "engine"

// jobFor is job for a driver: on the level engine a program needs no interpreter of the machine.
func (r *Runner) jobFor(d policy.Decision, o Options, driver sandbox.Driver) (job, *call.Reason) {
	if driver.Name() != engineLevel {
		return r.job(d, o)
	}
	lang := scripts[d.Call.Capability]
	if lang == "" {
		return job{}, &call.Reason{Code: "isolation.language",
			Text: "isolation engine runs scripts in Python, JavaScript and TypeScript, and " + string(d.Call.Capability) +
				" is none; shells and programs need isolation namespace or gvisor, on Linux"}
	}
	if lang == guest.Python && !cpython.Available() {
		return job{}, &call.Reason{Code: "isolation.language", Text: cpython.ErrAbsent.Error()}
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
	if r.Bridge != nil && !o.NoTools {
		p.Servers = guest.Identifiers(r.Means.Servers(d.Call))
	}
	text, err := p.Text()
	if err != nil {
		return job{}, &call.Reason{Code: "args.invalid", Text: err.Error()}
	}
	argv := engine.Argv
	if lang == guest.Python {
		argv = engine.PythonArgv
	}
	j := job{argv: argv, first: script.Prelude, head: text, tools: r.Bridge != nil && !o.NoTools}
	return j, j.bring(d, r, a.Files)
}
