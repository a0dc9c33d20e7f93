package app

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"waldo/internal/app/configfile"
	"waldo/internal/app/trust"
	"waldo/internal/config"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/model/contract"
)

// Expected returns what this deployment promises of its log: the first approver and the retention, of the
// configuration, of the others that the operator trusts, and of the state directory. What it cannot find out is named.
func (s *Storage) Expected(ctx context.Context, source configfile.Source) (e audit.Expect, err error) {
	path, _ := source.File()
	cfg, failed := source.Load(s.Store.Dir())
	switch {
	case failed != nil && cfg == nil:
		e.Unchecked = append(e.Unchecked, audit.Unchecked("config.unread",
			"%s does not load, so its approval.root and log.keep were not compared: %v", path, failed))
	case failed != nil:
		e.Unchecked = append(e.Unchecked, audit.Unchecked("config.untrusted",
			"%s is not as it was trusted; its approval.root and log.keep were compared all the same: %v", path, failed))
	case path == "":
		cfg = nil // the configuration lies elsewhere, if there is one
	}
	e, err = s.expected(ctx, cfg, e)
	if failed == nil || err != nil || cfg == nil {
		return e, err
	}
	root, _, err := s.Store.Get(ctx, approval.RootBucket, approval.RootName) // the file may name another
	e.Pins = append(e.Pins, root)
	return e, err
}

// expected is Expected of a configuration; nil: none.
func (s *Storage) expected(ctx context.Context, cfg *contract.Config, e audit.Expect) (audit.Expect, error) {
	e.Pins, e.Judges = append(e.Pins, os.Getenv(RootVariable)), judgePins()
	if cfg != nil {
		e.Pins = append(e.Pins, cfg.Approval.Root)
		was, bad := trust.Held(s.Store.Dir(), cfg)
		if bad != nil {
			was = trust.Record{} // what is there now bears no signature
		}
		e.Keeps = append(e.Keeps, audit.Retention{File: absolute(cfg.File), Accepted: was.Accepted(), Keep: cfg.Log.Keep})
	}
	trusted, err := trust.Read(s.Store.Dir())
	if err != nil {
		e.Unchecked = append(e.Unchecked, audit.Unchecked("config.unread", "the trusted configurations: %v", err))
	}
	for file := range trusted { // they share this log
		if other, err := config.Load(file); err == nil {
			if was, err := trust.Held(s.Store.Dir(), other); err == nil {
				e.Keeps = append(e.Keeps, audit.Retention{File: file, Accepted: was.Accepted(), Keep: other.Log.Keep})
			}
		}
	}
	if slices.ContainsFunc(e.Pins, func(p string) bool { return p != "" }) {
		return e, nil
	}
	root, _, err := s.Store.Get(ctx, approval.RootBucket, approval.RootName)
	e.Pins = append(e.Pins, root)
	return e, err
}

// VerifyLog verifies the log of this application under the configuration in force.
func (h *App) VerifyLog(ctx context.Context) (audit.Report, error) {
	anchors, err := audit.Anchors(ctx, LogOptions(h.Store))
	if err != nil {
		return audit.Report{}, err
	}
	e, err := h.expected(ctx, h.Config, audit.Expect{})
	if err != nil {
		return audit.Report{}, err
	}
	return audit.Verify(ctx, audit.Dir(h.State), anchors, time.Now(), e)
}

// SetAside sets a log aside that is not sound. sign adds the first approver's signature; it gets a service that
// opens the approver's key.
func (s *Storage) SetAside(
	ctx context.Context, source configfile.Source, reason string,
	sign func(k *approval.Service, root approval.Approver, c *approval.Checkpoint) error,
) (folder string, err error) {
	k := s.approvals(&contract.Config{})
	a := audit.Aside{By: string(Principal()), Reason: reason}
	if a.Expect, err = s.Expected(ctx, source); err != nil {
		return "", err
	}
	if a.Known, err = k.FirstRows(ctx); err != nil {
		return "", err
	}
	a.Sign = func(root approval.Approver, c *approval.Checkpoint) error { return sign(k, root, c) }
	return audit.SetAside(ctx, filepath.Join(s.Store.Dir(), "log"), LogOptions(s.Store), a)
}
