package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"waldo/internal/core/redact"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/secret"
	"waldo/internal/network/egress"
	"waldo/internal/network/mcphttp"
	"waldo/internal/network/oauth"
)

// reach makes the way to a server at a url: what it may be dialled at, and how waldo shows itself.
func (h *house) reach(_ context.Context, s contract.Server) (mcphttp.Options, error) {
	rt, err := mcphttp.Transport(s.URL, insideOf(h.cfg))
	if err != nil {
		return mcphttp.Options{}, err
	}
	o := mcphttp.Options{Transport: rt}
	switch {
	case s.Auth.OAuth != nil:
		o.Auth = telling{login(h.state, s, rt, h.secrets.Get, h.redact.Known), s.Name}
	case s.Auth.Bearer != "":
		o.Auth = bearer(func() (secret.Value, error) { return h.secrets.Get(s.Auth.Bearer) })
	}
	if len(s.Auth.Headers) > 0 {
		o.Header = func() (http.Header, error) { return headers(s.Auth.Headers, h.secrets.Get) }
	}
	return o, nil
}

// insideOf says which names may stand for private addresses: those of internal.
func insideOf(cfg *contract.Config) func(host string) bool {
	rules, err := egress.ParseRules(cfg.Internal)
	return func(host string) bool {
		for _, r := range rules {
			if err == nil && r.Host.Match(host) {
				return true
			}
		}
		return false
	}
}

// headers fetches the secrets that are sent as headers. One that would break the head is refused.
func headers(refs map[string]secret.Ref, get func(secret.Ref) (secret.Value, error)) (http.Header, error) {
	out := http.Header{}
	for name, ref := range refs {
		v, err := get(ref)
		if err != nil {
			return nil, err
		}
		if strings.ContainsFunc(v.Reveal(), func(r rune) bool { return r < ' ' || r > '~' }) {
			return nil, fmt.Errorf("secret %s cannot be sent as the header %s: it holds more than visible ASCII", ref, name)
		}
		out.Set(name, v.Reveal())
	}
	return out, nil
}

// bearer is a token from where secrets are kept.
type bearer func() (secret.Value, error)

// Token satisfies remote.Authorizer.
func (b bearer) Token(context.Context) (string, error) {
	v, err := b()
	if err == nil && strings.ContainsFunc(v.Reveal(), func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("the bearer token cannot be sent: it holds more than visible ASCII")
	}
	return v.Reveal(), err
}

// Refused satisfies remote.Authorizer: there is another token only if the secret has changed since.
func (b bearer) Refused(ctx context.Context, token string, _ *http.Response) (bool, error) {
	now, err := b.Token(ctx)
	return err == nil && now != token, err
}

// kept is where the login of a server is kept: among waldo's own secrets, sealed.
type kept struct{ state, server string }

func (k kept) name() string { return "oauth-" + k.server[:min(len(k.server), 57)] }

// Load satisfies oauth.Store.
func (k kept) Load() ([]byte, error) {
	s := openSafe(k.state)
	if !s.Has(k.name()) {
		return nil, nil
	}
	v, err := s.Get(k.name())
	return []byte(v.Reveal()), err
}

// Save satisfies oauth.Store.
func (k kept) Save(b []byte) error {
	s := openSafe(k.state)
	if !s.HasKey() {
		s.Keyring = nil // a key file: nobody has asked for the keyring
	}
	return s.Set(k.name(), secret.NewValue(string(b)))
}

// login makes what gets the tokens for a server. Whatever it is given is known to redaction first.
func login(state string, s contract.Server, rt http.RoundTripper, get func(secret.Ref) (secret.Value, error), known *redact.Registry) *oauth.Client {
	o := s.Auth.OAuth
	c := &oauth.Client{Server: s.URL, HTTP: rt, Store: kept{state, s.Name}, Name: "waldo", Config: oauth.Config{
		Grant: o.Grant, ClientID: o.ClientID, Metadata: o.Metadata, Scopes: o.Scopes, Issuer: o.Issuer}}
	if o.Secret != "" {
		c.Config.Secret = func() (string, error) {
			v, err := get(o.Secret)
			return v.Reveal(), err
		}
	}
	c.Learned = func(value string) error {
		return known.Add(secret.Ref("oauth-"+s.Name), secret.NewValue(value))
	}
	return c
}

// telling says what a person has to type to be asked.
type telling struct {
	*oauth.Client
	server string
}

// Refused satisfies remote.Authorizer.
func (t telling) Refused(ctx context.Context, token string, resp *http.Response) (bool, error) {
	again, err := t.Client.Refused(ctx, token, resp)
	if errors.Is(err, oauth.ErrLogin) {
		err = fmt.Errorf("%w: waldo login %s", err, t.server)
	}
	return again, err
}

func newLogin(g *global) *cobra.Command {
	browser, port := "", 0
	c := &cobra.Command{
		Use: "login SERVER", Short: "Log waldo in to a server that wants a person's consent (OAuth)", Args: cobra.ExactArgs(1),
		Long: "Asks the server who issues its tokens, prints the page to open in a browser, and waits until the page leads back to this machine.\n" +
			"The token is kept sealed among waldo's secrets, as oauth-SERVER, and renewed by itself; waldo secret rm oauth-SERVER forgets it.",
		Example: "  waldo login crm\n  waldo login crm --browser xdg-open",
		RunE: func(c *cobra.Command, args []string) error {
			state, cfg, err := configured(g)
			if err != nil {
				return err
			}
			s, ok := cfg.Servers[args[0]]
			switch {
			case !ok:
				return usage("servers are named in waldo.yaml under servers:", "no server is called %q", args[0])
			case s.Auth.OAuth == nil:
				return usage("write auth: {oauth: {}} for a server at a url", "server %s does not use oauth", args[0])
			case port < 0 || port > 65535:
				return usage("as in --port 8085", "--port %d is no port", port)
			}
			rt, err := mcphttp.Transport(s.URL, insideOf(cfg))
			if err != nil {
				return err
			}
			o := login(state, s, rt, newKeeper(state, cfg, g.known).Get, g.known)
			o.Port = port
			o.Browser = func(ctx context.Context, page string) error { return show(ctx, c, page, browser) }
			if err := o.Login(c.Context()); err != nil {
				return &exit{code: exitFailed, err: fmt.Errorf("server %s: %w", s.Name, err)}
			}
			if g.json {
				return json.NewEncoder(c.OutOrStdout()).Encode(map[string]any{"server": s.Name, "logged_in": true})
			}
			display.Fprintf(c.OutOrStdout(), "logged in to %s\n", s.Name)
			return nil
		},
	}
	c.Flags().StringVar(&browser, "browser", "", "a program that is given the page to open; without it the page is printed alone")
	c.Flags().IntVar(&port, "port", 0, "the port of this machine that the page leads back to, where it is registered")
	return c
}

// show prints the page, and hands it to a program of the person's where one is named.
func show(ctx context.Context, c *cobra.Command, page, browser string) error {
	display.Fprintf(c.ErrOrStderr(), "Open this page in a browser:\n  %s\n", page)
	argv := strings.Fields(browser)
	if len(argv) == 0 {
		return nil
	}
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:], page)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("--browser: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	return nil
}
