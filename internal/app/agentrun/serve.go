package agentrun

import (
	"cmp"
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"waldo/internal/core/redact"
	"waldo/internal/frontend/agent"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
	"waldo/internal/storage/transcript"
	"waldo/internal/storage/webhook"
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
func (s *Service) Serve(
	ctx context.Context, q webhook.Deliveries, o Options, told func(d *webhook.Delivery, out agent.Outcome, err error),
) error {
	if _, err := s.chain(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		d, err := q.Claim(ctx, webhook.Agent)
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
		if err := s.settle(context.WithoutCancel(ctx), q, d, out, err); err != nil && !errors.Is(err, webhook.ErrLost) {
			return err
		}
	}
	return nil
}

// work starts the agent of a webhook, or goes on with the one that an earlier try began.
func (s *Service) work(
	ctx context.Context, q webhook.Deliveries, d *webhook.Delivery, o Options,
) (out agent.Outcome, err error) {
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
		r, err = s.start(call.Session(name), s.event(d), HookChannel, o)
	}
	if err != nil {
		return out, err
	}
	return r.Go(ctx)
}

// event is the task of a webhook: the operator's words, and the payload as data. Nothing that the sender wrote stands
// outside of the marks.
func (s *Service) event(d *webhook.Delivery) string {
	task := cmp.Or(s.Config.Agent.Tasks[d.Hook], usualTask)
	text := "(a body that is not text)"
	if utf8.Valid(d.Body) {
		text = s.Hide(redact.Clean(string(d.Body)))
	}
	return task + "\n\n" + agent.Data("webhook "+d.Hook, "event: "+s.Hide(d.Event)+"\n"+text)
}

// settle tells the queue what became of a webhook.
func (s *Service) settle(
	ctx context.Context, q webhook.Deliveries, d *webhook.Delivery, out agent.Outcome, err error,
) error {
	switch out.End {
	case agent.Done:
		return q.Done(ctx, d)
	case agent.Waiting:
		return q.Fail(ctx, d, webhook.Failure{Reason: "a call waits for a human", Free: true, After: askedIn})
	case agent.Cancelled:
		return q.Fail(ctx, d, webhook.Failure{Reason: "waldo agent --serve ended", Free: true, After: time.Millisecond})
	case agent.Declined, agent.Steps, agent.Tokens, agent.Stopped:
		return q.Fail(ctx, d, webhook.Failure{Reason: string(out.End) + ": " + out.Why, Final: true})
	}
	why := out.Why
	if err != nil {
		why = s.Hide(err.Error())
	}
	return q.Fail(ctx, d, webhook.Failure{Reason: why, Max: s.Config.Webhooks[d.Hook].Tries})
}
