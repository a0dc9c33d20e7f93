package main

import (
	"context"
	"slices"
	"strings"
	"waldo/internal/cli"

	"waldo/internal/app"
	"waldo/internal/app/control"
	"waldo/internal/cli/exitcode"
	"waldo/internal/model/display"
	"waldo/internal/model/id"
)

// toStop returns the principal or session that a name of waldo stop means. A name without a kind must be that of a
// known token, because a typo would stop no one. A full name is accepted unseen; note says if it is unknown.
func toStop(ctx context.Context, g *cli.Context, s *app.Storage, name string) (full, note string, err error) {
	if id.Is(id.Session, name) {
		return name, "", nil
	}
	_, cfg, _ := g.Configured() // without it, its tokens are unknown
	known := s.Principals(ctx, cfg)
	if slices.Contains(known, name) {
		return name, "", nil
	}
	if slices.Contains(known, control.Token+name) {
		return control.Token + name, "", nil
	}
	hint := "known: " + strings.Join(known, ", ")
	if near := display.Nearest(name, append(slices.Clone(known), bare(known)...)); near != "" {
		hint = "did you mean waldo stop " + near + "? " + hint
	}
	if strings.Contains(name, ":") {
		return name, "the log and the configuration do not have " + name + "; " + hint, nil
	}
	if _, err := s.NamedSandboxes().Get(ctx, app.Owner(), name); err == nil {
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
