// Package pipelinetest has doubles of what an MCP server is connected to. Without its function a double refuses, has
// high risk, hides nothing and knows nothing.
package pipelinetest

import (
	"context"

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
