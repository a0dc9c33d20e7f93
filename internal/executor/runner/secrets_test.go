package runner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"waldo/internal/core/grant"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/sandbox"
)

// TestRevealedSecrets: a sandbox gets only the secrets that the contract reveals, in the command's environment alone.
// They are not resolved earlier.
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
		run  call.Run
		want []string
	}{
		{"all that is revealed", call.Run{}, []string{"MORE=value-of-more", "TOKEN=value-of-github"}},
		{"those that were asked for", call.Run{Secrets: []string{"TOKEN"}}, []string{"TOKEN=value-of-github"}},
		{"a variable of the person gives way", call.Run{Env: []string{"TOKEN=mine", "A=b"}},
			[]string{"A=b", "MORE=value-of-more", "TOKEN=value-of-github"}},
	}
	for _, row := range rows {
		t.Run(row.why, func(t *testing.T) {
			d := &fake{}
			r := worker(d)
			r.Means.(*means).secret = values
			g := asking(t, "run_python", `{"code":""}`, row.run, give)
			if out, err := r.Execute(context.Background(), g); err != nil || out.IsError {
				t.Fatalf("%v %+v", err, out.Facts.Warnings)
			}
			var got []string
			for _, kv := range d.command.Env {
				if !slices.Contains(environment(nil, call.Run{}), kv) {
					got = append(got, kv)
				}
			}
			if !slices.Equal(got, row.want) {
				t.Errorf("the sandbox has %q, want %q", got, row.want)
			}
			if d.profile.Prestart != nil {
				t.Error("a sandbox that waits would be made with it")
			}
		})
	}
	d := &fake{}
	g, _ := allowed(t, "run_python", `{"code":""}`)
	if out, err := worker(d).Execute(context.Background(), g); err != nil || out.IsError || d.profile.Prestart == nil {
		t.Errorf("control, without secrets: %v %+v", err, out.Facts.Warnings)
	}
}

// asking is an allowed decision with the operator's sandbox options.
func asking(
	t *testing.T, capability call.Capability, args string, run call.Run, change ...func(*contract.Contract),
) *grant.Grant {
	t.Helper()
	_, d := allowed(t, capability, args, change...)
	d.Call.Run = &run
	g, why := grant.Issue(d, nil, d.Call.Args)
	if why != nil {
		t.Fatal(why)
	}
	return g
}

// TestTheTemplateThatWasDecided: a run starts from the template that its decision names, or not at all.
func TestTheTemplateThatWasDecided(t *testing.T) {
	for named, found := range map[string]string{
		"image@sha256:1": "image@sha256:1", "image@sha256:2": "image@sha256:1", "": "image@sha256:1",
	} {
		d := &fake{}
		r := worker(d)
		_, dec := allowed(t, "run_python", `{"code":""}`)
		dec.Call.Run = &call.Run{Template: named}
		g, why := grant.Issue(dec, nil, dec.Call.Args)
		if why != nil {
			t.Fatal(why)
		}
		forget := r.Attach(dec.Call.ID, Streams{Root: sandbox.Template{Name: found, Dir: t.TempDir()}})
		out, err := r.Execute(context.Background(), g)
		forget()
		refused := len(out.Facts.Warnings) == 1 && strings.HasPrefix(out.Facts.Warnings[0], "template.request: ")
		if err != nil || refused != (named != found) {
			t.Errorf("decided %q, found %q: %v %v", named, found, out.Facts.Warnings, err)
		}
	}
}

// TestOnlyRevealed: a secret of the contract that it does not reveal is not fetched.
func TestOnlyRevealed(t *testing.T) {
	r := &Runner{Means: &means{secret: func(name secret.Ref) (secret.Value, error) {
		return secret.NewValue("value-of-" + string(name)), nil
	}}}
	d := policy.Decision{Contract: contract.Contract{
		Secrets: map[string]secret.Ref{"A": "a", "B": "b"}, Reveal: []string{"A"},
	}}
	if env, why := r.revealed(d, Options{}); why != nil || !slices.Equal(env, []string{"A=value-of-a"}) {
		t.Errorf("%q %v", env, why)
	}
}

// TestSecretsRefused: a run does not start if a secret is missing, and the agent does not learn its source.
func TestSecretsRefused(t *testing.T) {
	give := func(c *contract.Contract) {
		c.Secrets, c.Reveal = map[string]secret.Ref{"TOKEN": "github"}, []string{"TOKEN"}
	}
	for _, row := range []struct {
		why, code string
		secret    func(secret.Ref) (secret.Value, error)
		run       call.Run
	}{
		{"it cannot be had", "secret.missing", func(secret.Ref) (secret.Value, error) {
			return secret.Value{}, errors.New("looked in /srv/keys/prod")
		}, call.Run{}},
		{"one that the contract does not name", "secret.contract",
			func(secret.Ref) (secret.Value, error) { return secret.NewValue("x"), nil }, call.Run{Secrets: []string{"OTHER"}}},
	} {
		t.Run(row.why, func(t *testing.T) {
			d := &fake{}
			r := worker(d)
			r.Means.(*means).secret = row.secret
			g := asking(t, "exec", `{"argv":["ls"]}`, row.run, give)
			out, err := r.Execute(context.Background(), g)
			if err != nil || d.started != 0 || len(out.Facts.Warnings) != 1 ||
				!strings.HasPrefix(out.Facts.Warnings[0], row.code+": ") {
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
	r.Means.(*means).secret = func(secret.Ref) (secret.Value, error) { return secret.NewValue("x"), nil }
	g, _ := allowed(t, "run_python", `{"code":"1","session":"a"}`, func(c *contract.Contract) {
		c.Secrets, c.Reveal = map[string]secret.Ref{"TOKEN": "github"}, []string{"TOKEN"}
	})
	out, err := r.Execute(context.Background(), g)
	if err != nil || d.started != 0 || len(out.Facts.Warnings) != 1 ||
		!strings.HasPrefix(out.Facts.Warnings[0], "secrets.session: ") {
		t.Errorf("%v %d sandboxes %q", err, d.started, out.Facts.Warnings)
	}
}
