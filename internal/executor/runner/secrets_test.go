package runner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"waldo/internal/core/policy"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// TestRevealedSecrets: a box gets what the contract reveals and no other secret, in the command's
// environment alone, and nothing of it is known before.
func TestRevealedSecrets(t *testing.T) {
	give := func(c *contract.Contract) {
		c.Secrets = map[string]secret.Ref{"TOKEN": "github", "MORE": "more"}
		c.Reveal = []string{"TOKEN", "MORE"}
	}
	values := func(name secret.Ref) (secret.Value, error) {
		return secret.NewValue("value-of-" + string(name)), nil
	}
	rows := []struct {
		why  string
		o    Options
		want []string
	}{
		{"all that is revealed", Options{}, []string{"MORE=value-of-more", "TOKEN=value-of-github"}},
		{"those that were asked for", Options{Secrets: []string{"TOKEN"}}, []string{"TOKEN=value-of-github"}},
		{"a variable of the person gives way", Options{Env: []string{"TOKEN=mine", "A=b"}}, []string{"A=b", "MORE=value-of-more", "TOKEN=value-of-github"}},
	}
	for _, row := range rows {
		t.Run(row.why, func(t *testing.T) {
			d := &fake{}
			r := worker(d)
			r.Secret = values
			g, dec := allowed(t, "run_python", `{"code":""}`, give)
			defer r.Prepare(dec.Call.ID, row.o)()
			if out, err := r.Execute(context.Background(), g); err != nil || out.IsError {
				t.Fatalf("%v %+v", err, out.Facts.Warnings)
			}
			var got []string
			for _, kv := range d.command.Env {
				if !slices.Contains(environment(nil), kv) {
					got = append(got, kv)
				}
			}
			if !slices.Equal(got, row.want) {
				t.Errorf("the box has %q, want %q", got, row.want)
			}
			if d.profile.Ahead != nil {
				t.Error("a box that waits would be made with it")
			}
		})
	}
	d := &fake{}
	g, _ := allowed(t, "run_python", `{"code":""}`)
	if out, err := worker(d).Execute(context.Background(), g); err != nil || out.IsError || d.profile.Ahead == nil {
		t.Errorf("control, without secrets: %v %+v", err, out.Facts.Warnings)
	}
}

// TestOnlyRevealed: a secret of the contract that it does not reveal is not fetched.
func TestOnlyRevealed(t *testing.T) {
	r := &Runner{Secret: func(name secret.Ref) (secret.Value, error) { return secret.NewValue("value-of-" + string(name)), nil }}
	d := policy.Decision{Contract: contract.Contract{Secrets: map[string]secret.Ref{"A": "a", "B": "b"}, Reveal: []string{"A"}}}
	if env, why := r.revealed(d, Options{}); why != nil || !slices.Equal(env, []string{"A=value-of-a"}) {
		t.Errorf("%q %v", env, why)
	}
}

// TestSecretsRefused: nothing is started where a secret cannot be given, and the agent is not told
// where it was looked for.
func TestSecretsRefused(t *testing.T) {
	give := func(c *contract.Contract) {
		c.Secrets, c.Reveal = map[string]secret.Ref{"TOKEN": "github"}, []string{"TOKEN"}
	}
	for _, row := range []struct {
		why, code string
		secret    func(secret.Ref) (secret.Value, error)
		o         Options
	}{
		{"it cannot be had", "secret.missing", func(secret.Ref) (secret.Value, error) {
			return secret.Value{}, errors.New("looked in /srv/keys/prod")
		}, Options{}},
		{"nobody gives any", "secret.unsupported", nil, Options{}},
		{"one that the contract does not name", "secret.contract", func(secret.Ref) (secret.Value, error) { return secret.NewValue("x"), nil }, Options{Secrets: []string{"OTHER"}}},
	} {
		t.Run(row.why, func(t *testing.T) {
			d := &fake{}
			r := worker(d)
			r.Secret = row.secret
			g, dec := allowed(t, "exec", `{"argv":["ls"]}`, give)
			defer r.Prepare(dec.Call.ID, row.o)()
			out, err := r.Execute(context.Background(), g)
			if err != nil || d.started != 0 || len(out.Facts.Warnings) != 1 || !strings.HasPrefix(out.Facts.Warnings[0], row.code+": ") {
				t.Fatalf("%v %+v", err, out.Facts.Warnings)
			}
			if strings.Contains(out.Facts.Warnings[0]+out.Content[0].Text, "/srv/keys") {
				t.Error("the agent is told where secrets are kept")
			}
		})
	}
}

// TestAnInterpreterThatStaysGetsNoSecret: it outlives the decision that gave one.
func TestAnInterpreterThatStaysGetsNoSecret(t *testing.T) {
	d := &fake{}
	r := worker(d)
	r.Sessions = 1
	r.Secret = func(secret.Ref) (secret.Value, error) { return secret.NewValue("x"), nil }
	g, _ := allowed(t, "run_python", `{"code":"1","session":"a"}`, func(c *contract.Contract) {
		c.Secrets, c.Reveal = map[string]secret.Ref{"TOKEN": "github"}, []string{"TOKEN"}
	})
	out, err := r.Execute(context.Background(), g)
	if err != nil || d.started != 0 || len(out.Facts.Warnings) != 1 || !strings.HasPrefix(out.Facts.Warnings[0], "secrets.session: ") {
		t.Errorf("%v %d boxes %q", err, d.started, out.Facts.Warnings)
	}
}
