package secretsource

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"waldo/internal/model/secret"
)

// Keeper returns the current value of secrets. It fetches a value again after its time, and when its file has
// changed, so that secrets rotate without a restart. Set the fields before use. The zero Keeper knows no secret.
type Keeper struct {
	Sources Sources
	Specs   map[secret.Ref]secret.Spec // by name in the configuration
	// Learned gets each new value before Get returns it; its error ends the Get. nil: not called.
	Learned func(name secret.Ref, v secret.Value) error

	mu   sync.Mutex
	held map[secret.Ref]*held
	now  func() time.Time // nil: time.Now
}

// held is one secret as it came last.
type held struct {
	mu    sync.Mutex
	got   fetched
	from  string // the file that it came from
	until time.Time
	last  time.Time // after which it is not used, though its source fails
}

// Get returns the current value of a secret: one of the configuration, one at a source, or one of waldo's own store.
// If the source fails, Get returns the last value for one more period, and for at least a minute. If the source says
// that the secret is gone, Get fails.
func (k *Keeper) Get(name secret.Ref) (secret.Value, error) {
	h := k.entry(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	now := k.clock()
	if h.fresh(now) {
		return h.got.value, nil
	}
	spec := k.Spec(name)
	got, err := k.Sources.fetch(name, spec)
	if err != nil {
		if now.Before(h.last) && !gone(err) {
			slog.Warn("a secret could not be asked for again; the one before is used", "secret", string(name),
				"until", h.last, "why", err)
			return h.got.value, nil
		}
		h.got = fetched{}
		return secret.Value{}, err
	}
	if k.Learned != nil && !got.value.Same(h.got.value) {
		if err := k.Learned(name, got.value); err != nil {
			return secret.Value{}, fmt.Errorf("secret %s: %w", name, err)
		}
	}
	h.got, h.from = got, ""
	if p, ok := spec.From.Place(); ok && got.stamp != "" {
		h.from = p.Path
	}
	h.until, h.last = now.Add(got.lasts), now.Add(got.lasts+max(got.lasts, time.Minute))
	return got.value, nil
}

// gone reports whether a source has answered, and has the secret no more or not as it should be.
func gone(err error) bool {
	for _, is := range []error{
		ErrMissing, ErrEmpty, ErrUnsafe, ErrBytes, ErrClosed, ErrForm, errVaultDenied, errVaultLogin,
	} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

func (h *held) fresh(now time.Time) bool {
	if h.got.value.IsZero() || h.got.lasts > 0 && !now.Before(h.until) {
		return false
	}
	return h.from == "" || stampOf(h.from) == h.got.stamp
}

// Spec returns how a secret is had: as the configuration says, else at the place that its name is,
// else from waldo's own store under that name.
func (k *Keeper) Spec(name secret.Ref) secret.Spec {
	if s, ok := k.Specs[name]; ok {
		return s
	}
	if secret.Name(string(name)) {
		return secret.Spec{From: "store:" + name}
	}
	return secret.Spec{From: name}
}

func (k *Keeper) entry(name secret.Ref) *held {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held == nil {
		k.held = map[secret.Ref]*held{}
	}
	if k.held[name] == nil {
		k.held[name] = &held{}
	}
	return k.held[name]
}

func (k *Keeper) clock() time.Time {
	if k.now != nil {
		return k.now()
	}
	return time.Now()
}
