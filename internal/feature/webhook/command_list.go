package webhook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/secrets"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/redact"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/storage/inbox"
	"waldo/internal/storage/secretsource"
)

// secrets returns the source of secrets.
func (w commands) secrets(state string, cfg *contract.Config) *secretsource.Keeper {
	return secrets.New(state, cfg, w.Known, cli.Passphrase())
}

func readFile(name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, exitcode.Mistake("as in -H @headers", "%v", err)
	}
	return b, nil
}

// shown is a delivery as --json prints it.
type shown struct {
	ID     string    `json:"id"`
	Hook   string    `json:"hook"`
	Target string    `json:"target"`
	State  string    `json:"state"`
	At     time.Time `json:"at"`
	Due    time.Time `json:"due"`
	Tries  int       `json:"tries"`
	Work   string    `json:"work,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Event  string    `json:"event,omitempty"`
	Type   string    `json:"type,omitempty"`
	Name   string    `json:"name,omitempty"`
	Bytes  int       `json:"bytes"`
	Body   *string   `json:"body,omitempty"`
}

func show(d *inbox.Delivery) shown {
	return shown{ID: d.ID, Hook: d.Hook, Target: d.Target, State: d.State, At: d.At.UTC(), Due: d.Due.UTC(),
		Tries: d.Tries, Work: d.Work, Reason: d.Reason, Event: d.Event, Type: d.ContentType, Name: d.Name, Bytes: d.Size}
}

func (w commands) newList() *cobra.Command {
	var dead bool
	c := &cobra.Command{
		Use: "list [--dead]", Short: "The webhooks that wait: for their target, for their next try, or for you",
		Args: cobra.NoArgs,
		Long: "A webhook leaves the list when its target has it. The state dead means that its tries are used up, or that " +
			"another try\nwould not help or could do something twice: decide with waldo hook retry or waldo hook drop.",
		Example: "  waldo hook list\n  waldo hook list --dead --json",
		RunE: func(c *cobra.Command, _ []string) error {
			k, err := w.open(c.Context())
			if err != nil {
				return err
			}
			defer k.done()
			all, err := k.queue.List(c.Context())
			if err != nil {
				return err
			}
			out, rows := []shown{}, [][]string{}
			for _, d := range all {
				if dead && d.State != inbox.Dead {
					continue
				}
				out = append(out, show(d))
				rows = append(rows, []string{d.ID, d.Hook, d.Target, d.State, fmt.Sprint(d.Tries),
					terminal.Ago(c.OutOrStdout(), d.At.UTC().Format("2006-01-02T15:04:05.000Z"), time.Now()),
					fmt.Sprint(d.Size), d.Reason})
			}
			if w.JSON {
				return terminal.JSON(c.OutOrStdout(), out)
			}
			terminal.List(c.OutOrStdout(), c.ErrOrStderr(), "webhooks wait",
				[]string{"ID", "WEBHOOK", "TO", "STATE", "TRIES", "SINCE", "BYTES", "WHY"}, rows)
			return nil
		},
	}
	c.Flags().BoolVar(&dead, "dead", false, "only those that wait for you")
	return c
}

func (w commands) newShow() *cobra.Command {
	return &cobra.Command{
		ValidArgsFunction: w.waiting,
		Use:               "show ID", Short: "One webhook that waits, with its body", Args: cobra.ExactArgs(1),
		Long:    "The body is the sender's data. Bytes that are no UTF-8 are replaced.",
		Example: "  waldo hook show h_2al2mbq6q456pip4thz3nttnnk",
		RunE: func(c *cobra.Command, args []string) error {
			k, err := w.open(c.Context())
			if err != nil {
				return err
			}
			defer k.done()
			d, err := k.queue.Get(c.Context(), args[0])
			if err != nil {
				return mistake(err, args[0])
			}
			text := strings.ToValidUTF8(string(d.Body), "\ufffd")
			if w.JSON {
				s := show(d)
				s.Body = &text
				return terminal.JSON(c.OutOrStdout(), s)
			}
			display.Fprintf(c.OutOrStdout(), "%s  %s to %s, %s after %s, received %s\n", d.ID, d.Hook, d.Target, d.State,
				display.Count(d.Tries, "try"), d.At.UTC().Format(time.RFC3339))
			if d.Reason != "" {
				display.Fprintf(c.OutOrStdout(), "why: %s\n", d.Reason)
			}
			display.Fprintf(c.OutOrStdout(), "\n%s\n", display.Text(display.Lines(redact.Clean(text))))
			return nil
		},
	}
}

func (w commands) newRetry() *cobra.Command {
	return &cobra.Command{
		ValidArgsFunction: w.waiting,
		Use:               "retry ID..", Short: "Hand a webhook over again, with all its tries", Args: cobra.MinimumNArgs(1),
		Long: "A webhook whose call can have had an effect is called a second time: look first, with waldo log --call. An " +
			"outgoing\none is sent at once; any other is taken by waldo serve --listen or waldo agent.",
		Example: "  waldo hook retry h_2al2mbq6q456pip4thz3nttnnk",
		RunE: func(c *cobra.Command, args []string) error {
			return w.each(c, args, "retried", func(ctx context.Context, k *webhooks, id string) error {
				d, err := k.Retry(ctx, id, string(app.Principal()))
				if err != nil || d.Target != inbox.Out {
					return err
				}
				sent, err := k.Again(ctx, id)
				if err == nil && sent != nil && sent.State != "" {
					err = &exitcode.Exit{Code: exitcode.Waiting, Text: id + " waits: " + sent.Reason}
				}
				return err
			})
		},
	}
}

func (w commands) newDrop() *cobra.Command {
	return &cobra.Command{
		ValidArgsFunction: w.waiting,
		Use:               "drop ID..", Short: "Remove a webhook that waits; a replay of it stays refused", Args: cobra.MinimumNArgs(1),
		Example: "  waldo hook drop h_2al2mbq6q456pip4thz3nttnnk",
		RunE: func(c *cobra.Command, args []string) error {
			return w.each(c, args, "dropped", func(ctx context.Context, k *webhooks, id string) error {
				_, err := k.Drop(ctx, id, string(app.Principal()))
				return err
			})
		},
	}
}

// each does something to each delivery, until it fails for one.
func (w commands) each(
	c *cobra.Command, ids []string, event string, do func(ctx context.Context, k *webhooks, id string) error,
) error {
	k, err := w.open(c.Context())
	if err != nil {
		return err
	}
	defer k.done()
	for _, one := range ids {
		if err := do(c.Context(), k, one); err != nil {
			return mistake(err, one)
		}
		if !w.JSON {
			display.Fprintf(c.OutOrStdout(), "%s %s\n", event, one)
		}
	}
	if w.JSON {
		return terminal.JSON(c.OutOrStdout(), map[string]any{event: ids})
	}
	return nil
}

// mistake words an error of the queue for the user who named an id.
func mistake(err error, id string) error {
	switch {
	case errors.Is(err, inbox.ErrNone):
		return exitcode.Mistake("waldo hook list", "no webhook %q waits", id)
	case errors.Is(err, inbox.ErrHeld):
		return exitcode.Mistake("try again when it has ended", "a running waldo works on %s", id)
	}
	return err
}
