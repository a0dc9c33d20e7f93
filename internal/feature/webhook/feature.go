package webhook

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/fault"
	"waldo/internal/cli"
	"waldo/internal/cli/records"
	"waldo/internal/core/approval"
	"waldo/internal/core/session"
	"waldo/internal/feature"
	"waldo/internal/feature/webhook/question"
	"waldo/internal/feature/webhook/receive"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/sandbox"
	"waldo/internal/storage/inbox"
	"waldo/internal/storage/presence"
)

// Feature is signed webhooks: received at /hooks/NAME, sent, and as messages about questions.
var Feature = feature.Feature{
	Name:     "webhook",
	Open:     open,
	Commands: func(c *cli.Context) []*cobra.Command { return []*cobra.Command{newHook(c)} },
	Doctor:   doctor,
	Records:  records.Lines{inbox.Kind: line},
}

// Queue returns the queue of a state directory. It claims deliveries for this process, if that is marked as running.
func Queue(s *app.Storage) *inbox.Queue {
	return &inbox.Queue{Store: s.Store, Gone: presence.Gone(s.Store), Holder: s.Process()}
}

func open(h *app.App) (app.Running, error) {
	k := &pipeline{App: h, sessions: h.SharedSessions("")}
	hooks := New(Options{Queue: Queue(h.Storage), Log: h.Log, Witness: h.Witness, Kernel: k})
	return app.Running{
		Carriers: []approval.Notifier{question.New(k)},
		Routes:   []app.Route{{Prefix: "/hooks/", Handler: hooks.Handler()}},
		Inbox:    hooks.Deliveries(),
		Events:   hooks,
		Require:  k.require,
		Serve: func(ctx context.Context) {
			defer k.sessions.Close()
			hooks.Run(ctx)
		},
	}, nil
}

// pipeline is the configuration in force, for webhooks. Each webhook has one session.
type pipeline struct {
	*app.App
	sessions *session.Shared
}

// Config satisfies Kernel.
func (k *pipeline) Config() *contract.Config { return k.InForce().Config }

// Rules satisfies question.Kernel.
func (k *pipeline) Rules() contract.Approvals { return k.InForce().Config.Approval }

// Secret satisfies Kernel.
func (k *pipeline) Secret(r secret.Ref) (secret.Value, error) { return k.InForce().Secret(r) }

// Enter satisfies Kernel.
func (k *pipeline) Enter(p call.Principal) (n call.Session, leave func(), err error) {
	n, err = k.sessions.Enter(p)
	return n, func() { k.sessions.Leave(n) }, err
}

// require returns an error if the secret of a webhook is missing or does not fit its scheme.
func (k *pipeline) require() error {
	for _, name := range slices.Sorted(maps.Keys(k.App.Config.Webhooks)) {
		w := k.App.Config.Webhooks[name]
		if _, err := receive.Keys(w, k.App.Secret); err != nil {
			return &fault.Error{Usage: true, Err: contract.Problems{{At: w.At, Code: "webhook.secret",
				Text: "webhook " + name + ": " + err.Error()}}, Tip: "openssl rand -base64 32 makes a good one"}
		}
	}
	return nil
}

// doctor checks the secret of each webhook against its scheme.
func doctor(_ context.Context, p app.Place) (out []sandbox.Ability) {
	for _, name := range slices.Sorted(maps.Keys(p.Config.Webhooks)) {
		_, err := receive.Keys(p.Config.Webhooks[name], p.Secret)
		out = append(out, p.Ability("webhook "+name, "its secret fits its scheme", err,
			"openssl rand -base64 32 makes a good one; waldo secret check"))
	}
	return out
}
