package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"waldo/internal/app/fault"
	"waldo/internal/app/trust"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/model/contract"
)

// judgePins are the pins of the first approver who signs configurations. None comes from a configuration: it could name
// its own judge.
func judgePins() []string { return []string{os.Getenv(RootVariable)} }

// signed refuses a configuration that the first approver did not sign as it is, where the log or the environment names
// one, also a configuration that the operator named. It returns what was trusted, and holds alone.
func (h *App) signed(ctx context.Context) (was trust.Record, err error) {
	if h.set.Cfg != nil && h.Config.File == "" {
		return was, nil // the command made it
	}
	var root approval.Approver
	var needed bool
	var none error
	newest := map[string]approval.Configuration{}
	file, here := absolute(h.Config.File), absolute(h.set.Source.Here())
	err = h.Witness.Look(ctx, func(l *approval.Ledger) {
		root, needed, none = l.Judge(judgePins())
		newest[file], newest[here] = l.NewestOf(root, file), l.NewestOf(root, here)
	})
	no := (*approval.Refused)(nil)
	switch {
	case err != nil:
		return was, fmt.Errorf("%s: whether the configuration is signed cannot be read: %w", approval.UnsignedTrust, err)
	case !needed || h.set.Prunes && errors.As(none, &no) && no.Reason.Code == approval.Unsigned:
		return was, nil
	case h.set.Cfg == nil && here != "" && here != file && newest[here].Digest != "":
		return was, unsigned("bring it back; or go on without it: waldo trust --forget "+here,
			"%s is signed by %s, and does not load", here, root.Name)
	case file == "":
		return was, nil // it allows nothing
	case none != nil:
		return was, unsigned(signHint(none), "no first approver can vouch for %s: %v", file, none)
	}
	if was, err = trust.Held(h.State, h.Config); err != nil {
		return was, unsigned("read it, then sign it: waldo trust "+file, "%v", err)
	}
	if newest[file].Accepted != was.Accepted() {
		return was, unsigned("read it, then sign it: waldo trust "+file,
			"%s, its waldo.lock or what is trusted with it is not what %s signed last", file, root.Name)
	}
	return was, nil
}

func signHint(none error) string {
	no := (*approval.Refused)(nil)
	if errors.As(none, &no) && no.Reason.Code == approval.Unsigned {
		return "the first approver signs the removal: waldo prune"
	}
	return "a new first approver signs it: waldo approve --enroll NAME; if another one is meant: $" + RootVariable
}

func unsigned(hint, format string, a ...any) error {
	return fault.Untrusted(hint, approval.UnsignedTrust+": "+format, a...)
}

func absolute(file string) string {
	if file == "" {
		return ""
	}
	if abs, err := filepath.Abs(file); err == nil {
		return abs
	}
	return file
}

// RootSigner opens the first approver's key for the purpose that a text names; it gets a service that can open it.
type RootSigner func(k *approval.Service, root approval.Approver, what string) (approval.Signer, error)

// SignTrust has the first approver sign records of trust.json before they are written, where the log or the environment
// names one. The signatures are on the disk when it returns. A record without a digest is no longer trusted.
func (s *Storage) SignTrust(ctx context.Context, records map[string]trust.Record, by RootSigner) error {
	var root approval.Approver
	var needed bool
	var none error
	before, err := trust.Read(s.Store.Dir())
	if err != nil {
		return err
	}
	k := s.approvals(&contract.Config{})
	if err := k.Exchange(ctx); err != nil {
		return err
	}
	records = maps.Clone(records)
	err = k.Witness.Look(ctx, func(l *approval.Ledger) {
		root, needed, none = l.Judge(judgePins())
		maps.DeleteFunc(records, func(file string, now trust.Record) bool { // it was signed at another replica
			return k.Replicated() && now.Digest != "" && l.NewestOf(root, file).Accepted == now.Accepted()
		})
		maps.DeleteFunc(before, func(file string, was trust.Record) bool { // what nobody signed is nothing to compare with
			return l.NewestOf(root, file).Accepted != was.Accepted()
		})
	})
	if err != nil || !needed || len(records) == 0 {
		return err
	}
	if none != nil {
		return unsigned(signHint(none), "no first approver can sign: %v", none)
	}
	what := "waldo trust:"
	for _, file := range slices.Sorted(maps.Keys(records)) {
		what += fmt.Sprintf("\n  %s %s", approval.Escape(file), records[file].Words(before[file]))
	}
	signer, err := by(k, root, what)
	if err != nil {
		return err
	}
	record := &audit.Recorder{Log: s.Log}
	for _, file := range slices.Sorted(maps.Keys(records)) {
		c := approval.Configuration{File: file, Digest: records[file].Digest, Accepted: records[file].Accepted()}
		if err := c.Sign(signer, root, time.Now()); err != nil {
			return err
		}
		if err := record.Configuration(ctx, Principal(), c, ""); err != nil {
			return err
		}
		var stays error
		if err := k.Witness.Look(ctx, func(l *approval.Ledger) {
			if l.NewestOf(root, file) != c {
				stays = fmt.Errorf("%s: the clock is before the newest signature for %s", approval.UnsignedTrust, file)
			}
		}); err != nil || stays != nil {
			return errors.Join(err, stays)
		}
	}
	return nil
}

// Vouched reports whether the newest word of a first approver about a file is that it may load.
func Vouched(ctx context.Context, state, file string) (yes bool, err error) {
	err = (&audit.Witness{Dir: audit.Dir(state)}).Look(ctx, func(l *approval.Ledger) {
		root, needed, none := l.Judge(judgePins())
		yes = needed && none == nil && l.NewestOf(root, file).Digest != ""
	})
	return yes, err
}

// TrustedNow returns the configurations of trust.json, for the first approver to sign with the first enrolment. Others
// are signed one by one: waldo trust.
func TrustedNow(state string) (out []approval.Configuration, err error) {
	all, err := trust.Read(state)
	if err != nil {
		return nil, err
	}
	for _, file := range slices.Sorted(maps.Keys(all)) {
		if r := all[file]; r.Digest != "" {
			out = append(out, approval.Configuration{File: file, Digest: r.Digest, Accepted: r.Accepted()})
		}
	}
	return out, nil
}
