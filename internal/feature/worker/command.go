package worker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/fault"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/id"
	"waldo/internal/storage/database"
	"waldo/internal/storage/safefile"
)

// options are the flags of waldo worker.
type options struct {
	slots                   int
	isolation, size, listen string
	newKey                  string
}

func commands(g *cli.Context) []*cobra.Command {
	var o options
	c := &cobra.Command{
		Use: "worker", Short: "Carry out the runs that gateways decided, from a queue in PostgreSQL", Args: cobra.NoArgs,
		Long: "Takes runs of one isolation level and one size from the queue of the store, and carries them out in\n" +
			"sandboxes of this machine. Gateways and workers have the same waldo.yaml. docs/workers.md has each step.",
		Example: "  waldo worker --new-key /etc/waldo/workers.key\n  waldo worker --slots 8 --isolation gvisor",
		RunE: func(c *cobra.Command, _ []string) error {
			if o.newKey != "" {
				return makeKey(c, o.newKey)
			}
			return serve(c, g, o)
		},
	}
	c.Flags().IntVar(&o.slots, "slots", 4, "how many runs it carries out at a time")
	c.Flags().StringVar(&o.isolation, "isolation", contract.UsualIsolation, "`LEVEL` of the runs that it takes")
	c.Flags().StringVar(&o.size, "size", sizes[0].name,
		"`CLASS` of the runs that it takes, by their memory: small (to 512 MB), medium (to 2 GB) or large")
	c.Flags().StringVar(&o.listen, "listen", "", "`ADDRESS` that answers /healthz while it takes runs")
	c.Flags().StringVar(&o.newKey, "new-key", "", "make a key in `FILE`, and end")
	return []*cobra.Command{c}
}

func makeKey(c *cobra.Command, path string) error {
	at, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if err := safefile.Create(at, []byte(newKey()+"\n"), 0o600); err != nil {
		return err
	}
	display.Fprintf(c.OutOrStdout(), "%s\nhint: workers: {key: \"file:%s\"}\n", at, at)
	return nil
}

// checked returns an error for flags that name no queue.
func (o options) checked(h *app.App) error {
	known := slices.ContainsFunc(sizes, func(s class) bool { return s.name == o.size })
	switch {
	case h.Config.Workers == nil:
		return fault.Usage(`write workers: {key: "file:/etc/waldo/workers.key"}`, "the configuration has no workers")
	case h.Drivers[o.isolation] == nil:
		return exitcode.Mistake("namespace, gvisor, confined or engine", "unknown isolation level %q", o.isolation)
	case !known:
		return exitcode.Mistake("small, medium or large", "unknown size %q", o.size)
	case o.slots < 1 || o.slots > 1000:
		return exitcode.Mistake("from 1 to 1000", "--slots %d is not a number of slots", o.slots)
	}
	return nil
}

// grace is how long runs under way have once the worker is to end.
const grace = 20 * time.Second

// serve takes runs until the context of the command is done.
func serve(c *cobra.Command, g *cli.Context, o options) (err error) {
	ctx := c.Context()
	hiding := exitcode.Hiding{W: c.ErrOrStderr(), Known: g.Known}
	slog.SetDefault(slog.New(exitcode.NewLogger(hiding, slog.LevelInfo, true)))
	h, err := g.Open(ctx, app.Options{Warm: o.slots, Limits: app.MostLimits})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if err := o.checked(h); err != nil {
		return err
	}
	w, err := newWorker(ctx, h, o)
	if err != nil {
		return err
	}
	defer w.q.pool.Close()
	defer func() { err = errors.Join(err, os.RemoveAll(w.scratch)) }()
	client, err := w.client(o.slots)
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	health, err := healthy(o.listen)
	if err == nil {
		display.Fprintf(c.ErrOrStderr(), "waldo: %s takes runs of isolation %s, size %s, %d at a time\n",
			w.name, o.isolation, o.size, o.slots)
		<-ctx.Done()
	}
	health()
	last, done := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer done()
	if client.Stop(last) != nil { // runs were not over in time
		last, done := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer done()
		err = errors.Join(err, client.StopAndCancel(last))
	}
	return err
}

// newWorker returns the worker of an application, whose runner has neither bridge nor queue.
func newWorker(ctx context.Context, h *app.App, o options) (*worker, error) {
	v, err := h.Secret(h.Config.Workers.Key)
	if err != nil {
		return nil, err
	}
	w := &worker{h: h, policy: h.Policy.Digest(), name: id.New(id.Record), isolation: o.isolation, size: o.size,
		seen: map[string]int64{}}
	if w.key, err = readKey(v); err != nil {
		return nil, err
	}
	if err = sameKey(ctx, h.Store, w.key); err != nil {
		return nil, err
	}
	if w.scratch, err = os.MkdirTemp(h.State, "worker-"); err != nil {
		return nil, err
	}
	r := h.Runner
	r.Elsewhere, r.Bridge, r.Programs, r.Means = nil, nil, nil, given{r.Means, w}
	if w.q, err = openQueue(ctx, h.Store, o.slots+4); err != nil {
		return nil, errors.Join(err, os.RemoveAll(w.scratch))
	}
	return w, nil
}

// sameKey returns an error where the gateway that started last has another key. Its id is no proof: jobs have one.
func sameKey(ctx context.Context, s *database.Store, k keyring) error {
	id, ok, err := s.Get(ctx, keyBucket, keyName)
	if err != nil || !ok || id == k.id() {
		return err
	}
	return fault.Usage("copy the file that workers.key names from the gateway; after a new key, start the gateways first",
		otherKey)
}

// healthy answers /healthz at an address; empty: nowhere. The returned function ends that.
func healthy(listen string) (end func(), err error) {
	if listen == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return func() {}, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.Serve(l) }() // it ends with Close
	return func() { _ = s.Close() }, nil
}
