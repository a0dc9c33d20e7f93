package webhook

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli/exitcode"
	"waldo/internal/feature/webhook/receive"
	sign "waldo/internal/feature/webhook/signature"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/model/id"
	"waldo/internal/model/secret"
	"waldo/internal/storage/inbox"
)

// scheme checks a --scheme.
func scheme(s string) (sign.Scheme, error) {
	if !slices.Contains(sign.Schemes(), s) {
		return "", exitcode.Mistake(strings.Join(sign.Schemes(), ", "), "unknown scheme %q", s)
	}
	return sign.Scheme(s), nil
}

func (w commands) newSign() *cobra.Command {
	var how, ref, name string
	var unix int64
	c := &cobra.Command{
		Use: "sign --secret REF [FILE | -]", Short: "Print the headers that sign a body", Args: cobra.MaximumNArgs(1),
		Long: "Prints one header on each line, as curl reads them with -H @FILE. The body is signed byte for byte: send it " +
			"with\n--data-binary.",
		Example: "  waldo hook sign --secret env:HOOK_SECRET event.json\n" +
			"  waldo hook sign --scheme github --secret env:WEBHOOK_SECRET event.json > headers\n" +
			"  curl -H @headers --data-binary @event.json http://127.0.0.1:7676/hooks/github",
		RunE: func(c *cobra.Command, args []string) error {
			s, err := scheme(how)
			if err != nil {
				return err
			}
			if name == "" {
				name = id.New(id.Delivery)
			}
			if !sign.Named(name) {
				return exitcode.Mistake("visible ASCII without a dot, at most 256 bytes", "--id %q cannot be an id", name)
			}
			k, err := w.key(how, ref)
			if err != nil {
				return err
			}
			b, err := body(c, args)
			if err != nil {
				return err
			}
			h := s.Sign(k, name, at(unix), b)
			if w.JSON {
				flat := map[string]string{}
				for key := range h {
					flat[key] = h.Get(key)
				}
				return terminal.JSON(c.OutOrStdout(), map[string]any{"headers": flat})
			}
			for _, key := range slices.Sorted(maps.Keys(h)) {
				display.Fprintf(c.OutOrStdout(), "%s: %s\n", key, h.Get(key))
			}
			return nil
		},
	}
	c.Flags().StringVar(&how, "scheme", string(sign.Standard), "`SCHEME`: "+strings.Join(sign.Schemes(), ", "))
	_ = c.RegisterFlagCompletionFunc("scheme", w.schemes)
	c.Flags().StringVar(&ref, "secret", "", "`REF` of the secret that signs, as in env:HOOK_SECRET")
	c.Flags().StringVar(&name, "id", "", "`ID` of the webhook, with the scheme standard (default a new one)")
	c.Flags().Int64Var(&unix, "at", 0, "sign for this time, in `SECONDS` since 1970 (default now)")
	return c
}

func (w commands) newVerify() *cobra.Command {
	var how, ref, hook string
	var unix int64
	var window time.Duration
	var headers []string
	c := &cobra.Command{
		Use: "verify [-H 'NAME: VALUE'].. [FILE | -]", Short: "Check the signature of a body, as /hooks/NAME does",
		Args: cobra.MaximumNArgs(1),
		Long: "Exit status 0: the signature fits; 1: it is refused, and the reason is printed; 2: usage. With --hook the " +
			"scheme, the\nsecrets and the window are those of a webhook of waldo.yaml. Replays are not looked for.",
		Example: "  waldo hook verify --hook github -H 'X-Hub-Signature-256: sha256=…' event.json\n" +
			"  waldo hook verify --secret env:HOOK_SECRET -H @headers event.json",
		RunE: func(c *cobra.Command, args []string) error {
			s, keys, err := w.keys(hook, how, ref, &window)
			if err != nil {
				return err
			}
			h, err := readHeaders(headers)
			if err != nil {
				return err
			}
			b, err := body(c, args)
			if err != nil {
				return err
			}
			m, err := s.Verify(h, b, keys, at(unix), window)
			why := sign.Refusal("")
			if errors.As(err, &why); w.JSON {
				out := map[string]any{"ok": err == nil}
				if err != nil {
					out["reason"] = string(why)
				} else {
					out["id"] = m.Name
				}
				if jerr := terminal.JSON(c.OutOrStdout(), out); jerr != nil {
					return jerr
				}
			} else if err == nil {
				display.Fprintf(c.OutOrStdout(), "the signature fits: %s\n", m.Name)
			}
			if err != nil {
				return &exitcode.Exit{Code: exitcode.Problems, Text: "refused: " + string(why), Hint: hints[why]}
			}
			return nil
		},
	}
	c.Flags().StringVar(&how, "scheme", string(sign.Standard), "`SCHEME`: "+strings.Join(sign.Schemes(), ", "))
	_ = c.RegisterFlagCompletionFunc("scheme", w.schemes)
	c.Flags().StringVar(&ref, "secret", "", "`REF` of the secret, as in env:HOOK_SECRET")
	c.Flags().StringVar(&hook, "hook", "", "`NAME` of a webhook of waldo.yaml, in place of --scheme and --secret")
	_ = c.RegisterFlagCompletionFunc("hook", w.names)
	c.Flags().StringArrayVarP(&headers, "header", "H", nil, "`HEADER` of the request, or @FILE with one on each line")
	c.Flags().DurationVar(&window, "window", 5*time.Minute, "`TIME` that the signed time can be from now")
	c.Flags().Int64Var(&unix, "at", 0, "check for this time, in `SECONDS` since 1970 (default now)")
	return c
}

// hints say what to do about a refusal.
var hints = map[sign.Refusal]string{
	sign.NoHeader:     "the scheme's headers must each stand once: waldo hook sign prints them",
	sign.BadName:      "an id is visible ASCII without a dot, at most 256 bytes",
	sign.BadTime:      "compare the clocks of both machines; --window widens what is taken",
	sign.BadSignature: "compare the secrets, and the body byte for byte: a newline at its end counts",
}

// keys returns what to verify with: a webhook's, or that of the flags.
func (w commands) keys(hook, how, ref string, window *time.Duration) (sign.Scheme, []sign.Key, error) {
	if hook == "" {
		s, err := scheme(how)
		if err != nil {
			return "", nil, err
		}
		k, err := w.key(how, ref)
		return s, []sign.Key{k}, err
	}
	state, cfg, err := w.Configured()
	if err != nil {
		return "", nil, err
	}
	one, ok := cfg.Webhooks[hook]
	if !ok {
		return "", nil, exitcode.Mistake("it is defined under webhooks:", "waldo.yaml has no webhook %q", hook)
	}
	*window = one.Window
	all, err := receive.Keys(one, w.secrets(state, cfg).Get)
	if err != nil {
		err = exitcode.Mistake("waldo secret check shows every secret", "%v", err)
	}
	return sign.Scheme(one.Scheme), all, err
}

// readHeaders reads "Name: value" lines, of flags and of the files that flags name.
func readHeaders(given []string) (http.Header, error) {
	var lines []string
	for _, g := range given {
		if file, ok := strings.CutPrefix(g, "@"); ok {
			b, err := readFile(file)
			if err != nil {
				return nil, err
			}
			lines = append(lines, strings.Split(strings.ReplaceAll(strings.TrimSpace(string(b)), "\r\n", "\n"), "\n")...)
			continue
		}
		lines = append(lines, g)
	}
	h := http.Header{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, exitcode.Mistake("as in -H 'Webhook-Id: msg_1'", "%q is not a header", line)
		}
		h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return h, nil
}

func (w commands) newSend() *cobra.Command {
	var ref, kind string
	var private bool
	var wait time.Duration
	c := &cobra.Command{
		Use: "send URL --secret REF [FILE | -]", Short: "Sign a body and send it, with retries", Args: cobra.RangeArgs(1, 2),
		Long: "Signs as Standard Webhooks do, and sends to a public address over https, without following a redirect. The " +
			"webhook is\nstored first. A receiver that is busy is asked again, with growing pauses, up to 8 times in an hour " +
			"or two: by this\ncommand for as long as --wait says, then by waldo serve --listen. The id stays the same, so a " +
			"receiver can tell.\n\nExit status 0: sent; 4: it waits for its next try; 1: the receiver does not want it.",
		Example: "  waldo hook send https://example.com/hooks event.json --secret env:HOOK_SECRET\n" +
			"  echo '{\"done\":true}' | waldo hook send https://example.com/hooks - --secret env:HOOK_SECRET --wait 1m",
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := w.key(string(sign.Standard), ref); err != nil {
				return err
			}
			b, err := body(c, args[1:])
			if err != nil {
				return err
			}
			k, err := w.open(c.Context())
			if err != nil {
				return err
			}
			defer k.done()
			ends := time.Now().Add(wait)
			d, err := k.Send(c.Context(), Outgoing{URL: args[0], Key: secret.Ref(ref), ContentType: kind, Body: b,
				Private: private, By: app.Principal()})
			if err != nil {
				hint := "as in waldo hook send https://example.com/hooks event.json --secret env:HOOK_SECRET"
				if strings.HasPrefix(args[0], "http://") && !private {
					hint = "--allow-private also sends over http, to this machine and to private networks"
				}
				return exitcode.Mistake(hint, "%v", err)
			}
			for d.State == inbox.Queued && d.Due.Before(ends) {
				select {
				case <-c.Context().Done():
					return c.Context().Err()
				case <-time.After(time.Until(d.Due) + 2*time.Millisecond):
				}
				next, err := k.Again(c.Context(), d.ID)
				if err != nil {
					return err
				}
				if next == nil {
					break // a waldo serve has it
				}
				d = next
			}
			return w.tellSent(c, d)
		},
	}
	c.Flags().StringVar(&ref, "secret", "", "`REF` of the secret that signs, as in env:HOOK_SECRET")
	c.Flags().StringVar(&kind, "type", "application/json", "`TYPE` of the body")
	c.Flags().BoolVar(&private, "allow-private", false,
		"also http, this machine where the URL names it, and private networks")
	c.Flags().DurationVar(&wait, "wait", 0, "`TIME` to go on trying")
	return c
}

// tellSent prints what became of an outgoing webhook.
func (w commands) tellSent(c *cobra.Command, d *inbox.Delivery) error {
	state := d.State
	if state == "" {
		state = "sent"
	}
	if w.JSON {
		if err := terminal.JSON(c.OutOrStdout(), map[string]any{"id": d.ID, "state": state, "tries": d.Tries,
			"reason": d.Reason}); err != nil {
			return err
		}
	}
	switch d.State {
	case "":
		if !w.JSON {
			display.Fprintf(c.OutOrStdout(), "sent %s to %s\n", d.ID, d.Hook)
		}
		return nil
	case inbox.Dead:
		hint := "waldo hook retry " + d.ID + ", or waldo hook drop " + d.ID
		if !d.Private {
			hint += "; for a receiver on a private network, send again with --allow-private"
		}
		return &exitcode.Exit{Code: exitcode.Problems, Text: d.ID + " was not sent: " + d.Reason, Hint: hint}
	}
	return &exitcode.Exit{Code: exitcode.Waiting, Text: d.ID + " waits: " + d.Reason,
		Hint: "waldo serve --listen tries it again, or waldo hook retry " + d.ID + "; --wait 1m would have waited here"}
}
