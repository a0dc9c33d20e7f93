package app

import (
	"errors"

	"waldo/internal/app/fault"
	"waldo/internal/config"
	"waldo/internal/core/policy"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/model/contract"
)

// CheckExamples compiles a configuration and compares its examples with the decisions of the policy. The decisions use
// the tool annotations in waldo.lock.
func CheckExamples(cfg *contract.Config, tools []Toolbox) (contract.Problems, error) {
	h := &App{Config: cfg}
	if err := h.readLock(); err != nil {
		return nil, err
	}
	m := AnyMachine(tools)
	m.Annotations = h.Lock.Annotations
	p, err := policy.New(cfg, m)
	var problems contract.Problems
	switch {
	case errors.As(err, &problems):
		return problems, nil
	case err != nil:
		return nil, err
	}
	return p.CheckExamples(), nil
}

// AnyMachine is a machine that has everything, so that check judges the text and not the machine.
func AnyMachine(tools []Toolbox) policy.Machine {
	m := policy.Machine{Isolations: map[string]bool{}, Secrets: map[string]bool{}, Judge: judge(open(tools, Kit{})),
		Transports: map[contract.Transport]bool{contract.Direct: true, contract.MCP: true, contract.SandboxedExec: true}}
	for level := range Drivers("", nil) {
		m.Isolations[level] = true
	}
	return m
}

// PolicyOf compiles a configuration as an application of this machine does, without opening one.
func PolicyOf(state string, cfg *contract.Config, tools []Toolbox) (*policy.Policy, error) {
	h := &App{State: state, Config: cfg, Drivers: Drivers(state, nil), set: Options{Tools: tools}}
	if err := h.readLock(); err != nil {
		return nil, err
	}
	p, err := policy.New(cfg, h.machine())
	if err != nil {
		return nil, &fault.Error{Usage: true, Err: err}
	}
	return p, nil
}

// Compile compiles a changed text of the configuration in force, as a reload would.
func (h *App) Compile(text []byte) (*policy.Policy, contract.Problems, error) {
	now := h.lives.inForce()
	cfg, problems := config.ParseIn(now.Config.File, text, h.set.Source.Selected())
	if len(problems) > 0 {
		return nil, problems, nil
	}
	next := &App{State: now.State, Config: cfg, Drivers: now.Drivers, Lock: now.Lock, set: now.set}
	next.relocked.Store(now.relocked.Load())
	p, err := policy.New(cfg, next.machine())
	if errors.As(err, &problems) {
		return nil, problems, nil
	}
	return p, nil, err
}

// Accepted returns the accepted definitions in force.
func (h *App) Accepted() *lockfile.Lock {
	if l := h.relocked.Load(); l != nil {
		return l
	}
	return h.Lock
}
