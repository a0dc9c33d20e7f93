// Package hooking is waldo hook: signed webhooks by hand, and those that wait.
package hooking

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"waldo/cmd/waldo/exitcode"
	"waldo/internal/app"
	"waldo/internal/app/hooks"
	"waldo/internal/core/redact"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/protocol/webhook"
	queue "waldo/internal/storage/webhook"
)

// Waldo holds the parts of waldo that the commands need.
type Waldo struct {
	Config     func() (state string, cfg *contract.Config, err error)
	Known      func() *redact.Registry
	Passphrase func() func(string) (secret.Value, error)
	JSON       *bool // whether --json was given
}

// New returns the command.
func New(w Waldo) *cobra.Command {
	c := &cobra.Command{
		Use: "hook", Short: "Signed webhooks: send, sign and verify by hand; list, retry and drop those that wait",
		Args: cobra.NoArgs,
		Long: "waldo serve --listen receives webhooks at /hooks/NAME, as webhooks: in waldo.yaml says. An accepted one " +
			"waits in a queue\nuntil its target has it; one that cannot be handed over waits for you. Secrets are named, " +
			"as in env:NAME, never\nwritten.",
		Example: "  waldo hook list\n  waldo hook send https://example.com/hooks event.json --secret env:HOOK_SECRET",
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(w.newSend(), w.newSign(), w.newVerify(), w.newList(), w.newShow(), w.newRetry(), w.newDrop())
	return c
}

// webhooks is the queue of a state directory, with the log and the secrets.
type webhooks struct {
	*hooks.Hooks
	queue *queue.Queue
	done  func() error
}

// open opens the queue. It claims deliveries for this process.
func (w Waldo) open(ctx context.Context) (*webhooks, error) {
	state, cfg, err := w.Config()
	if err != nil {
		return nil, err
	}
	s, err := app.OpenAtWork(ctx, state, cfg.Log.Keep)
	if err != nil {
		return nil, err
	}
	q := s.Webhooks()
	return &webhooks{queue: q, done: s.Close, Hooks: hooks.New(hooks.Options{Queue: q, Log: s.Log,
		Config: func() *contract.Config { return cfg }, Secret: w.secrets(state, cfg)})}, nil
}

// key fetches the secret that a flag names.
func (w Waldo) key(scheme, ref string) (webhook.Key, error) {
	r := secret.Ref(ref)
	if _, ok := r.Place(); !ok && !secret.Name(ref) {
		return webhook.Key{}, exitcode.Mistake("as in --secret env:HOOK_SECRET", "--secret wants the name of a secret, "+
			"never the secret itself")
	}
	state, cfg, err := w.Config()
	if err != nil {
		return webhook.Key{}, err
	}
	v, err := w.secrets(state, cfg)(r)
	if err != nil {
		return webhook.Key{}, exitcode.Mistake("waldo secret check shows every secret", "%v", err)
	}
	k, err := webhook.Scheme(scheme).Key(v.Reveal())
	if err != nil {
		return k, exitcode.Mistake("openssl rand -base64 32 makes a good one", "%s: %v", ref, err)
	}
	return k, nil
}

// maxBody is how many bytes of a body are read.
const maxBody = 2 << 20

// body reads the file that the last argument names, or standard input.
func body(c *cobra.Command, args []string) ([]byte, error) {
	in := c.InOrStdin()
	if len(args) > 0 && args[len(args)-1] != "-" {
		f, err := os.Open(args[len(args)-1])
		if err != nil {
			return nil, exitcode.Mistake("name a file, or - for standard input", "%v", err)
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxBody+1))
	if err == nil && len(b) > maxBody {
		err = exitcode.Mistake("send a link to it", "the body is longer than %d bytes", maxBody)
	}
	return b, err
}

// at reads a time of --at: seconds since 1970; 0: now.
func at(unix int64) time.Time {
	if unix == 0 {
		return time.Now()
	}
	return time.Unix(unix, 0)
}
