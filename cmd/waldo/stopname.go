package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"waldo/cmd/waldo/exitcode"
	"waldo/cmd/waldo/manual"
	"waldo/internal/app"
	"waldo/internal/app/control"
	"waldo/internal/core/audit"
	"waldo/internal/model/id"
	"waldo/internal/storage/database"
	"waldo/internal/storage/sandboxes"
)

// toStop returns the principal or session that a name of waldo stop means. A name without a kind must be that of a
// known token, because a typo would stop no one. A full name is accepted unseen; note says if it is unknown.
func toStop(ctx context.Context, g *global, s *database.Store, name string) (full, note string, err error) {
	if id.Is(id.Session, name) {
		return name, "", nil
	}
	known := principals(ctx, g, s)
	if slices.Contains(known, name) {
		return name, "", nil
	}
	if slices.Contains(known, control.Token+name) {
		return control.Token + name, "", nil
	}
	hint := "known: " + strings.Join(known, ", ")
	if near := manual.Nearest(name, append(slices.Clone(known), bare(known)...)); near != "" {
		hint = "did you mean waldo stop " + near + "? " + hint
	}
	if strings.Contains(name, ":") {
		return name, "the log and the configuration do not have " + name + "; " + hint, nil
	}
	all, _ := sandboxes.New(s, time.Now).List(ctx, app.Owner())
	if slices.ContainsFunc(all, func(b sandboxes.Sandbox) bool { return b.Name == name }) {
		hint = "it is a named sandbox: waldo sandbox ps " + name + " shows its commands, waldo sandbox rm --force " + name +
			" ends them"
	}
	return "", "", exitcode.Mistake(hint, "no known principal or session is called %q; nothing was stopped", name)
}

func bare(principals []string) (out []string) {
	for _, p := range principals {
		if name, is := strings.CutPrefix(p, control.Token); is {
			out = append(out, name)
		}
	}
	return out
}

// principals returns those of this user, of the configuration's tokens and of the log. A part that cannot be read is
// left out.
func principals(ctx context.Context, g *global, s *database.Store) []string {
	out := []string{string(app.Principal())}
	if _, cfg, err := configured(g); err == nil {
		for name := range cfg.Gateway.Tokens {
			out = append(out, control.Token+name)
		}
	}
	_, _ = audit.Select(ctx, s.Path("log"), audit.Selection{Last: 1, Match: func(r audit.Record) bool {
		var b struct{ Principal string }
		if r.Kind == audit.KindDecision && json.Unmarshal(r.Body, &b) == nil && b.Principal != "" &&
			!slices.Contains(out, b.Principal) {
			out = append(out, b.Principal)
		}
		return false
	}}, func(audit.Record) error { return nil })
	slices.Sort(out)
	return slices.Compact(out)
}
