package app

import (
	"errors"

	"waldo/internal/app/fault"
	"waldo/internal/core/policy"
	"waldo/internal/model/contract"
)

// CheckExamples compiles a configuration and compares its examples with the decisions of the policy. The decisions use
// the tool annotations in waldo.lock.
func CheckExamples(cfg *contract.Config) (contract.Problems, error) {
	h := &App{Config: cfg}
	if err := h.readLock(); err != nil {
		return nil, err
	}
	m := AnyMachine()
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
func AnyMachine() policy.Machine {
	m := policy.Machine{Isolations: map[string]bool{}, Secrets: map[string]bool{}, Judge: judgeOwn,
		Transports: map[contract.Transport]bool{contract.Direct: true, contract.MCP: true, contract.SandboxedExec: true}}
	for level := range Drivers("", nil) {
		m.Isolations[level] = true
	}
	return m
}

// PolicyOf compiles a configuration as an application of this machine does, without opening one.
func PolicyOf(state string, cfg *contract.Config) (*policy.Policy, error) {
	h := &App{State: state, Config: cfg, Drivers: Drivers(state, nil)}
	if err := h.readLock(); err != nil {
		return nil, err
	}
	p, err := policy.New(cfg, h.machine())
	if err != nil {
		return nil, &fault.Error{Usage: true, Err: err}
	}
	return p, nil
}
