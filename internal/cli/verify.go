package cli

import (
	"context"
	"io"
	"time"

	"waldo/internal/app"
	"waldo/internal/core/audit"
)

// Verify holds the log of the state directory against its head, the head of $WALDO_LOG_HEAD and the witnesses. bar
// shows progress; nil: nowhere. bucket: every byte of its copy in the bucket of the configuration is compared, too.
func (c *Context) Verify(ctx context.Context, bar io.Writer, bucket bool) (audit.Report, error) {
	s, err := c.OpenStorage()
	if err != nil {
		return audit.Report{}, err
	}
	defer s.Close()
	anchors, err := audit.Anchors(ctx, app.LogOptions(s.Store))
	if err != nil {
		return audit.Report{}, err
	}
	expect, err := s.Expected(ctx, c.Source())
	if err != nil {
		return audit.Report{}, err
	}
	if bar != nil {
		ctx = audit.Counting(ctx, bar)
	}
	r, err := audit.Verify(ctx, audit.Dir(s.Store.Dir()), anchors, time.Now(), expect)
	if err != nil || c.Evidence == nil {
		return r, err
	}
	_, cfg, cerr := c.Configured()
	if cerr != nil {
		cfg = nil // Expected has said that it could not be loaded
	}
	r.Add(c.Evidence.Check(ctx, s.Store, cfg, bucket)...)
	return r, nil
}
