package webhook

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/feature/webhook/signature"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/storage/inbox"
	"waldo/internal/storage/secretsource"
)

// commands are those of waldo hook.
type commands struct{ *cli.Context }

func newHook(g *cli.Context) *cobra.Command {
	w := commands{g}
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
	*Hooks
	queue *inbox.Queue
	done  func() error
}

// open opens the queue. It claims deliveries for this process.
func (w commands) open(ctx context.Context) (*webhooks, error) {
	state, cfg, err := w.Configured()
	if err != nil {
		return nil, err
	}
	s, err := app.OpenAtWork(ctx, state, cfg.Log.Keep)
	if err != nil {
		return nil, err
	}
	q, named := Queue(s), w.secrets(state, cfg)
	s.MarkWith(cfg, named.Get)
	return &webhooks{queue: q, done: s.Close,
		Hooks: New(Options{Queue: q, Log: s.Log, Kernel: configuration{cfg: cfg, secrets: named}})}, nil
}

// configuration is waldo without its pipeline, for commands: they make no calls.
type configuration struct {
	Kernel  // nil
	cfg     *contract.Config
	secrets *secretsource.Keeper
}

func (c configuration) Config() *contract.Config { return c.cfg }

func (c configuration) Secret(r secret.Ref) (secret.Value, error) { return c.secrets.Get(r) }

// key fetches the secret that a flag names.
func (w commands) key(scheme, ref string) (signature.Key, error) {
	r := secret.Ref(ref)
	if _, ok := r.Place(); !ok && !secret.Name(ref) {
		return signature.Key{}, exitcode.Mistake("as in --secret env:HOOK_SECRET", "--secret wants the name of a secret, "+
			"never the secret itself")
	}
	state, cfg, err := w.Configured()
	if err != nil {
		return signature.Key{}, err
	}
	v, err := w.secrets(state, cfg).Get(r)
	if err != nil {
		return signature.Key{}, exitcode.Mistake("waldo secret check shows every secret", "%v", err)
	}
	k, err := signature.Scheme(scheme).Key(v.Reveal())
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
