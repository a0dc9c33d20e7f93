// Package health examines what a configuration names: servers at a URL.
package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"time"

	"waldo/internal/app"
	"waldo/internal/sandbox"
)

// patience bounds one connection.
const patience = 5 * time.Second

// Servers checks that the servers at a URL of a trusted configuration answer. It sends them no byte.
func Servers(ctx context.Context, p app.Place) (out []sandbox.Ability) {
	for _, name := range slices.Sorted(maps.Keys(p.Config.Servers)) {
		if s := p.Config.Servers[name]; s.URL != "" {
			out = append(out, p.Ability("server "+name, "its address answers; waldo tools asks it", Reach(ctx, s.URL),
				"start it, or correct its url"))
		}
	}
	return out
}

// Reach opens a connection to the host of a URL, and closes it.
func Reach(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return errors.New("its address is not a URL")
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80"}[u.Scheme], "443")
	c, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return fmt.Errorf("no connection: %w", err)
	}
	return c.Close()
}
