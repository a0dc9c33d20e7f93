package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/sandbox"
)

// keeper is a driver with a prewarm pool.
type keeper interface {
	Keep(p sandbox.Profile, n int)
}

// found is how long a stored template takes to find at most.
const found = 500 * time.Millisecond

// Expect prewarms n sandboxes for scripts like that of d. It runs nothing. It does nothing if the driver has no pool,
// or if d's run would be refused.
func (r *Runner) Expect(d policy.Decision, n int) (err error) {
	driver, why := r.driver(d.Contract.Isolation, "")
	k, ok := driver.(keeper)
	if d.Contract.Network.Reaches() {
		n = 0 // an egress belongs to one job; the zygotes can be ready
	}
	if why != nil || !ok || d.Effect == policy.Deny || len(d.Contract.Secrets) > 0 { // secrets are for those that run
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), found) // a template that is not stored here is not fetched
	defer cancel()
	o, why := r.equip(ctx, d, Options{})
	if why != nil || o.Input != "" || len(d.Contract.Mounts) > 0 { // a folder belongs to one job
		o, n = Options{}, 0
	}
	j, why := r.jobFor(d, o, driver)
	if why != nil {
		return nil
	}
	ws, err := r.open(d, o, j)
	if err != nil {
		return fmt.Errorf("sandboxes ahead of %s: %w", d.Call.Capability, err)
	}
	if ws != nil {
		defer func() { err = errors.Join(err, ws.Close()) }()
	}
	p := r.profile(d, o, ws)
	p.Prestart = j.ahead(o, d.Call.Principal)
	k.Keep(p, n)
	return nil
}
