// Package pipelinetest has doubles of what an MCP server and the bridge of a sandbox are connected to. Without its
// function a double refuses, has high risk, hides nothing and knows nothing.
package pipelinetest

import (
	"context"
	"errors"
	"strings"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
)

// Pipeline satisfies mcpserver.Pipeline.
type Pipeline struct {
	OnCall       func(ctx context.Context, c call.Call) (call.Result, error)
	OnRefuse     func(ctx context.Context, c call.Call, why call.Reason) (call.Result, error)
	OnMode       func(cap call.Capability, annotations strictjson.Value) (contract.Mode, int)
	OnScrub      func(c call.Call, v strictjson.Value, question bool) strictjson.Value
	OnSideEffect func(ctx context.Context, callID string) (facts.SideEffect, bool)
}

// Call calls OnCall.
func (p *Pipeline) Call(ctx context.Context, c call.Call) (call.Result, error) {
	return p.OnCall(ctx, c)
}

// Refuse calls OnRefuse.
func (p *Pipeline) Refuse(ctx context.Context, c call.Call, why call.Reason) (call.Result, error) {
	if p.OnRefuse == nil {
		return call.Result{CallID: c.ID, Status: facts.Denied, Facts: facts.New(), Why: []call.Reason{why}}, nil
	}
	return p.OnRefuse(ctx, c, why)
}

// Mode calls OnMode.
func (p *Pipeline) Mode(cap call.Capability, annotations strictjson.Value) (contract.Mode, int) {
	if p.OnMode == nil {
		return contract.HighRisk, 3
	}
	return p.OnMode(cap, annotations)
}

// Scrub calls OnScrub.
func (p *Pipeline) Scrub(c call.Call, v strictjson.Value, question bool) strictjson.Value {
	if p.OnScrub == nil {
		return v
	}
	return p.OnScrub(c, v, question)
}

// SideEffect calls OnSideEffect.
func (p *Pipeline) SideEffect(ctx context.Context, callID string) (facts.SideEffect, bool) {
	if p.OnSideEffect == nil {
		return facts.Unknown, false
	}
	return p.OnSideEffect(ctx, callID)
}

// Consent satisfies mcpserver.Consent.
type Consent struct {
	OnPut   func(ctx context.Context, n call.Session, approvalID string) (text string, ok bool)
	OnSaid  func(ctx context.Context, n call.Session, approvalID string, yes bool) error
	OnAwait func(ctx context.Context, approvalID string) error
}

// Put calls OnPut.
func (c *Consent) Put(ctx context.Context, n call.Session, approvalID string) (string, bool) {
	if c.OnPut == nil {
		return "", false
	}
	return c.OnPut(ctx, n, approvalID)
}

// Said calls OnSaid.
func (c *Consent) Said(ctx context.Context, n call.Session, approvalID string, yes bool) error {
	return c.OnSaid(ctx, n, approvalID, yes)
}

// Await calls OnAwait, or waits until ctx is done.
func (c *Consent) Await(ctx context.Context, approvalID string) error {
	if c.OnAwait == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return c.OnAwait(ctx, approvalID)
}

// Program satisfies bridge.Pipeline. Its lists and searches come from Has. Without its function nothing is held, and
// arguments fit.
type Program struct {
	Has      []call.Tool
	OnCall   func(ctx context.Context, c call.Call) (call.Result, error)
	OnRefuse func(ctx context.Context, c call.Call, why call.Reason) (call.Result, error)
	OnResult func(ctx context.Context, run call.Call, number int, approvalID string) (call.Result, error)
	OnArrive func(ctx context.Context) context.Context
	OnCheck  func(c call.Call, t call.Tool) *call.Reason
}

// Tools returns Has.
func (p *Program) Tools(call.Call) []call.Tool { return p.Has }

// Find returns the tool of that name.
func (p *Program) Find(_ call.Call, name string) (call.Tool, bool) {
	for _, t := range p.Has {
		if string(t.Capability) == name || t.Capability.Wire() == name {
			return t, true
		}
	}
	return call.Tool{}, false
}

// Search returns the first tools whose name has the query in it.
func (p *Program) Search(_ call.Call, query string, limit int) []call.Tool {
	var out []call.Tool
	for _, t := range p.Has {
		if strings.Contains(string(t.Capability), query) && len(out) < limit {
			out = append(out, t)
		}
	}
	return out
}

// Call calls OnCall.
func (p *Program) Call(ctx context.Context, c call.Call) (call.Result, error) {
	return p.OnCall(ctx, c)
}

// Refuse calls OnRefuse.
func (p *Program) Refuse(ctx context.Context, c call.Call, why call.Reason) (call.Result, error) {
	if p.OnRefuse == nil {
		return call.Result{CallID: c.ID, Status: facts.Denied, IsError: true, Facts: facts.New(),
			Why: []call.Reason{why}}, nil
	}
	return p.OnRefuse(ctx, c, why)
}

// Result calls OnResult.
func (p *Program) Result(ctx context.Context, run call.Call, number int, approvalID string) (call.Result, error) {
	if p.OnResult == nil {
		return call.Result{}, errors.New("nothing is held here")
	}
	return p.OnResult(ctx, run, number, approvalID)
}

// Arrive calls OnArrive.
func (p *Program) Arrive(ctx context.Context) context.Context {
	if p.OnArrive == nil {
		return ctx
	}
	return p.OnArrive(ctx)
}

// Check calls OnCheck.
func (p *Program) Check(c call.Call, t call.Tool) *call.Reason {
	if p.OnCheck == nil {
		return nil
	}
	return p.OnCheck(c, t)
}
