// Package health examines what a configuration names: databases, webhooks, models and servers at a URL.
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

	"waldo/internal/app/databases"
	"waldo/internal/app/secrets"
	"waldo/internal/core/redact"
	"waldo/internal/frontend/webhook"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/network/provider"
	"waldo/internal/sandbox"
)

// patience bounds one connection.
const patience = 5 * time.Second

// Report examines a trusted configuration. It starts no server, and sends no byte to a model or to a server at a URL.
func Report(ctx context.Context, state string, cfg *contract.Config, known *redact.Registry) sandbox.Report {
	r := sandbox.Report{Driver: "configuration"}
	add := func(name, what string, err error, hint string) {
		a := sandbox.Ability{Name: name, OK: err == nil, What: what, Need: true}
		if err != nil {
			a.What, a.Hint = known.Text(err.Error()), hint
		}
		r.Abilities = append(r.Abilities, a)
	}
	for _, c := range cfg.Contracts {
		if c.Database == "" {
			continue
		}
		one := *cfg
		one.Contracts = []contract.Contract{c}
		problems, warnings := databases.Check(ctx, state, &one, known)
		var err error
		hint := ""
		for _, p := range slices.Concat(problems, warnings) {
			err, hint = errors.Join(err, errors.New(p.Text)), cmp.Or(hint, p.Hint)
		}
		add("database of "+c.Pattern, "reachable, and its role can only read", err, hint)
	}
	get := secrets.New(state, cfg, known, nil).Get
	for _, name := range slices.Sorted(maps.Keys(cfg.Webhooks)) {
		_, err := webhook.Keys(cfg.Webhooks[name], get)
		add("webhook "+name, "its secret fits its scheme", err, "openssl rand -base64 32 makes a good one; waldo secret check")
	}
	for i, p := range cfg.Agent.Providers {
		add(fmt.Sprintf("model %d, %s", i+1, p.Model), "its key is there, and its address answers", model(ctx, p, get),
			"set the key or the URL of this entry of agent.providers; waldo secret check")
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Servers)) {
		if s := cfg.Servers[name]; s.URL != "" {
			add("server "+name, "its address answers; waldo tools asks it", reach(ctx, s.URL), "start it, or correct its url")
		}
	}
	r.OK = !slices.ContainsFunc(r.Abilities, func(a sandbox.Ability) bool { return !a.OK })
	return r
}

func model(ctx context.Context, p contract.Provider, get func(secret.Ref) (secret.Value, error)) error {
	if p.Key != "" {
		if _, err := get(p.Key); err != nil {
			return err
		}
	}
	return reach(ctx, provider.Address(p.Kind, p.URL))
}

// reach opens a connection to the host of a URL, and closes it.
func reach(ctx context.Context, address string) error {
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
