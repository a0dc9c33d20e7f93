package agentrun

import (
	"cmp"
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"waldo/internal/core/redact"
	"waldo/internal/feature/agent/loop"
	"waldo/internal/feature/agent/transcript"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
	"waldo/internal/storage/inbox"
)

// HookChannel is the channel of agents that a webhook starts.
const HookChannel = "webhook"

// The pauses between two looks at the queue, and until an agent that waits for a human goes on.
const (
	look    = time.Second
	askedIn = 30 * time.Second
)

// usualTask is the task of a webhook for which agent.tasks has none.
const usualTask = "An event has arrived. Do with it what your instructions say. Without instructions for it, do nothing."

// Serve takes the webhooks that are delivered to the agent, one after another, until ctx is done. An agent of its own
// works on each. After a kill the same agent goes on with the same webhook. told hears of each try; err is waldo's own
// failure.
func (s Service) Serve(
	ctx context.Context, q inbox.Deliveries, o Options, told func(d *inbox.Delivery, out loop.Outcome, err error),
) error {
	if _, err := s.chain(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		d, err := q.Claim(ctx, inbox.Agent)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if d == nil {
			select {
			case <-ctx.Done():
			case <-time.After(look):
			}
			continue
		}
		out, err := s.work(ctx, q, d, o)
		told(d, out, err)
		if err := s.settle(context.WithoutCancel(ctx), q, d, out, err); err != nil && !errors.Is(err, inbox.ErrLost) {
			return err
		}
	}
	return nil
}

// work starts the agent of a webhook, or goes on with the one that an earlier try began.
func (s Service) work(
	ctx context.Context, q inbox.Deliveries, d *inbox.Delivery, o Options,
) (out loop.Outcome, err error) {
	var r *Run
	if d.Work != "" {
		r, err = s.Resume(ctx, d.Work, "", o)
	}
	if d.Work == "" || errors.Is(err, transcript.ErrNone) { // begun, and killed before its first entry
		name := cmp.Or(d.Work, id.New(id.Session))
		if d.Work == "" {
			if err := q.Begin(ctx, d, name); err != nil {
				return out, err
			}
		}
		r, err = s.start(call.Session(name), s.event(d), HookChannel, nil, o)
	}
	if err != nil {
		return out, err
	}
	return r.Go(ctx)
}

// event is the task of a webhook: the operator's words, and the payload as data. Nothing that the sender wrote stands
// outside of the marks.
func (s Service) event(d *inbox.Delivery) string {
	task := cmp.Or(s.Config.Agent.Tasks[d.Hook], usualTask)
	text := "(a body that is not text)"
	if utf8.Valid(d.Body) {
		text = s.Clean(redact.Clean(string(d.Body)))
	}
	return task + "\n\n" + loop.Data("webhook "+d.Hook, "event: "+s.Clean(d.Event)+"\n"+text)
}

// settle tells the queue what became of a webhook.
func (s Service) settle(
	ctx context.Context, q inbox.Deliveries, d *inbox.Delivery, out loop.Outcome, err error,
) error {
	switch out.End {
	case loop.Done:
		return q.Done(ctx, d)
	case loop.Waiting:
		return q.Fail(ctx, d, inbox.Failure{Reason: "a call waits for a human", Free: true, After: askedIn})
	case loop.Cancelled:
		return q.Fail(ctx, d, inbox.Failure{Reason: "waldo agent --serve ended", Free: true, After: time.Millisecond})
	case loop.Declined, loop.Steps, loop.Tokens, loop.Stopped:
		return q.Fail(ctx, d, inbox.Failure{Reason: string(out.End) + ": " + out.Why, Final: true})
	}
	why := out.Why
	if err != nil {
		why = s.Clean(err.Error())
	}
	return q.Fail(ctx, d, inbox.Failure{Reason: why, Max: s.Config.Webhooks[d.Hook].Tries})
}
