package provider

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"waldo/internal/feature/agent/chat"
)

// Chain asks providers in order. A provider that is overloaded, or cannot be reached, is asked again after a pause;
// then the next one is asked, as after a refusal.
type Chain struct {
	Providers []*Provider
	Hide      func(string) string                              // makes a provider's text safe to show; nil: it is not shown
	Pause     func(ctx context.Context, d time.Duration) error // nil: it waits
}

// The tries of one provider, and the longest pause before the next one.
const (
	tries     = 4
	firstWait = 500 * time.Millisecond
	longest   = 30 * time.Second
)

// Next returns the first answer of a provider. If every other one fails, it returns the refusal of one that refused.
func (c *Chain) Next(ctx context.Context, r chat.Request, w chat.Watch) (chat.Reply, error) {
	var refused *chat.Reply
	var said []string
	for i, p := range c.Providers {
		reply, err := c.try(ctx, p, r, w)
		why := p.Name() + " refused"
		switch {
		case ctx.Err() != nil:
			return chat.Reply{}, ctx.Err()
		case err == nil && reply.Stop != chat.Refused:
			return reply, nil
		case err == nil:
			refused = &reply
		default:
			why = p.Name() + ": " + c.hide(err)
			said = append(said, why)
		}
		if i+1 < len(c.Providers) {
			w.Retry(why + "; asking " + c.Providers[i+1].Name())
		}
	}
	if refused != nil {
		return *refused, nil
	}
	if len(said) == 0 {
		return chat.Reply{}, errors.New("no provider is configured")
	}
	return chat.Reply{}, fmt.Errorf("no provider answered: %s", strings.Join(said, "; "))
}

// try asks one provider, again where that can help.
func (c *Chain) try(ctx context.Context, p *Provider, r chat.Request, w chat.Watch) (chat.Reply, error) {
	for n := 1; ; n++ {
		reply, err := p.ask(ctx, r, w.Text)
		var f *Fault
		if err == nil || !errors.As(err, &f) || ctx.Err() != nil {
			return reply, err
		}
		wait := f.pause(n)
		if wait == 0 {
			return chat.Reply{}, f
		}
		w.Retry(fmt.Sprintf("%s: %s; asking again in %s", p.Name(), c.hide(f), wait.Round(100*time.Millisecond)))
		if err := c.pause(ctx, wait); err != nil {
			return chat.Reply{}, err
		}
	}
}

// pause returns how long to wait before the try after the n-th; 0: absent.
func (f *Fault) pause(n int) time.Duration {
	most := tries
	switch f.Cause {
	case Rejected:
		return 0
	case Malformed:
		most = 2
	}
	if n >= most || f.After > longest {
		return 0
	}
	wait := firstWait << (n - 1)
	return max(f.After, wait/2+rand.N(wait))
}

func (c *Chain) pause(ctx context.Context, d time.Duration) error {
	if c.Pause != nil {
		return c.Pause(ctx, d)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hide is the text of an error. Without Hide only its cause is shown: the rest is the provider's.
func (c *Chain) hide(err error) string {
	var f *Fault
	switch {
	case c.Hide != nil:
		return c.Hide(err.Error())
	case errors.As(err, &f):
		return f.Cause.String()
	}
	return "it failed"
}
