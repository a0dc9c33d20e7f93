package delegation

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/fault"
	"waldo/internal/app/secrets"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/delegation"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/id"
)

// The defaults of the flags.
const (
	usualCalls    = 100
	usualLifetime = time.Hour
)

// maxRequest is how many bytes of a request are read from standard input.
const maxRequest = 1 << 20

// flags are those of waldo delegate.
type flags struct {
	allow, conditions, hosts, secrets []string
	danger, calls, depth              int
	lifetime                          time.Duration
	to, as, key                       string
}

func newDelegate(g *cli.Context) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use: "delegate [-]", Short: "Make a token for a child with a part of your authority",
		Long: "Prints a token. Calls that name it are held to its bounds, and to those of every delegation above it; the\n" +
			"contracts decide as well, and the stricter wins. With --delegation, or in a process that has\n" +
			"$WALDO_DELEGATION, the new delegation stands below that one. What a flag does not name, the child does not\n" +
			"have. With - the request is one JSON object on standard input.\n\n" +
			"A child uses its token with --delegation or $WALDO_DELEGATION; an agent host names it in _meta as\n" +
			"waldo/delegation. Exit status 3: the request is wider than the authority above it.",
		Example: "  waldo delegate --allow 'github.get_*' --danger 1 --calls 20 --lifetime 30m\n" +
			"  waldo delegate --allow files.read --if \"args.path.startsWith('docs/')\" --to token:reviewer\n" +
			"  WALDO_DELEGATION=$(waldo delegate --allow run_python --danger 3) waldo agent 'count the words of notes.txt'\n" +
			"  waldo delegate revoke dg_…",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := f.request(c.InOrStdin(), args)
			if err != nil {
				return err
			}
			typed := func(flag string) bool { return len(args) > 0 || c.Flags().Changed(flag) }
			return delegate(c, g, f.as, r, !typed("lifetime"), !typed("calls"))
		},
	}
	s := c.Flags()
	s.StringArrayVar(&f.allow, "allow", nil, "capabilities that match `PATTERN`; may be repeated")
	s.StringArrayVar(&f.conditions, "if", nil,
		"only calls for which the `CONDITION` is true, as in approval (CEL); may be repeated")
	s.StringArrayVar(&f.hosts, "host", nil,
		"hosts that match `PATTERN`, of those that a contract allows; * for all; may be repeated")
	s.StringArrayVar(&f.secrets, "secret", nil, "the secret `NAME`, where a contract gives it; * for all; may be repeated")
	s.IntVar(&f.danger, "danger", 1, "the highest danger of a call, 1 to 3")
	s.IntVar(&f.calls, "calls", usualCalls, "`NUMBER` of calls, of all children together")
	s.IntVar(&f.depth, "depth", 0, "`NUMBER` of further delegations below this one")
	s.DurationVar(&f.lifetime, "lifetime", usualLifetime, "`TIME` until it ends, at most 720h")
	s.StringVar(&f.to, "to", "", "the `PRINCIPAL` that can use the token, as in token:ci (default: your own)")
	s.StringVar(&f.as, "as", "", "hand down the authority of this `PRINCIPAL` (default: your own)")
	s.StringVar(&f.key, "key", "", "the `THUMBPRINT` of the child's key: the token works only over HTTP, with a proof of it (DPoP)")
	c.AddCommand(newList(g), newRevoke(g))
	return c
}

// request reads the request: of the flags, or of standard input.
func (f *flags) request(in io.Reader, args []string) (r delegation.Request, err error) {
	if len(args) > 0 {
		if args[0] != "-" {
			return r, exitcode.Mistake("as in waldo delegate --allow 'github.get_*'", "unknown argument %q", args[0])
		}
		b, err := io.ReadAll(io.LimitReader(in, maxRequest+1))
		if err == nil && len(b) > maxRequest {
			err = errors.New("the request is longer than 1 MiB")
		}
		if err == nil {
			r, err = delegation.ParseRequest(b)
		}
		if err != nil {
			return r, exitcode.Mistake(`as in {"allow":["github.get_*"],"danger":1,"calls":20,"lifetime":"30m"}`, "%v", err)
		}
	} else {
		r = delegation.Request{Lifetime: f.lifetime, For: call.Principal(f.to), Key: f.key, Bounds: delegation.Bounds{
			If: f.conditions, Hosts: f.hosts, Secrets: f.secrets, Danger: f.danger, Calls: f.calls, Depth: f.depth}}
		for _, p := range f.allow {
			r.Allow = append(r.Allow, contract.Pattern(p))
		}
	}
	r.For = cmp.Or(r.For, app.Principal())
	return r, nil
}

// delegate makes the delegation and prints its token. usualTime and usualCalls say that nobody chose lifetime and calls.
func delegate(c *cobra.Command, g *cli.Context, as string, r delegation.Request, usualTime, usualCalls bool) error {
	h, err := g.Open(c.Context(), app.Options{})
	if err != nil {
		return err
	}
	defer h.Close()
	if as != "" && h.Delegated.Base.ID != "" {
		return exitcode.Mistake("leave --as out", "--as is for a delegation at the root, and this one is below %s",
			h.Delegated.Base.ID)
	}
	if base := h.Delegated.Base; base.ID != "" && usualTime { // no longer than the one above it
		r.Lifetime = min(r.Lifetime, time.Until(base.Expires)-time.Second) // it is made a moment later
	}
	if base := h.Delegated.Base; base.ID != "" && usualCalls {
		r.Calls = min(r.Calls, base.Calls)
	}
	token, link, against, err := h.Delegate(c.Context(), "", cmp.Or(call.Principal(as), app.Principal()), r)
	if err != nil {
		return err
	}
	if against != nil {
		return refused(c, g, *against)
	}
	if g.JSON {
		return terminal.JSON(c.OutOrStdout(), made{shown: show(link, nil), Token: token})
	}
	display.Fprintf(c.ErrOrStderr(), "waldo: %s, for %s, until %s; it is shown once; waldo delegate revoke %s ends it\n", link.ID,
		link.For, link.Expires.Local().Format(time.DateTime), link.ID)
	for _, why := range h.Delegated.Useless(link) {
		display.Fprintf(c.ErrOrStderr(), "note: each call is refused of %s\n", why.Text)
	}
	display.Fprintf(c.OutOrStdout(), "%s\n", token)
	return nil
}

// refused prints why a request is too wide, and the line that bounds it.
func refused(c *cobra.Command, g *cli.Context, why call.Reason) error {
	if g.JSON {
		if err := terminal.JSON(c.OutOrStdout(), map[string]any{"refused": why}); err != nil {
			return err
		}
	}
	at := ""
	if why.File != "" && why.Line > 0 {
		at = " (" + why.File + ":" + strconv.Itoa(why.Line) + ")"
	}
	hint := ""
	switch why.Code {
	case "delegation.request":
		hint = "as in: waldo delegate --allow 'github.get_*' --danger 1 --calls 20 --lifetime 30m"
	case "contract.absent":
		hint = "waldo tools lists the capabilities that you can hand down"
	}
	return &exitcode.Exit{Code: exitcode.Denied, Text: "refused: " + why.Code + ": " + why.Text + at, Hint: hint}
}

// shown is a delegation as it is printed with --json.
type shown struct {
	ID      string            `json:"id"`
	Parent  string            `json:"parent,omitempty"`
	By      call.Principal    `json:"by"`
	For     call.Principal    `json:"for"`
	Key     string            `json:"key,omitempty"`
	Bounds  delegation.Bounds `json:"bounds"`
	Used    int               `json:"used"`
	Created time.Time         `json:"created"`
	Expires time.Time         `json:"expires"`
	Record  uint64            `json:"record"`
	Ended   *call.Reason      `json:"ended,omitempty"`
}

type made struct {
	shown
	Token string `json:"token"`
}

func show(l delegation.Link, ended *call.Reason) shown {
	return shown{l.ID, l.Parent, l.By, l.For, l.Key, l.Bounds, l.Used, l.Created, l.Expires, l.Seq, ended}
}

func newList(g *cli.Context) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "list", Short: "List the delegations, as the log has them", Args: cobra.NoArgs,
		Example: "  waldo delegate list --all",
		RunE: func(c *cobra.Command, _ []string) error {
			state, err := g.StateDir()
			if err != nil {
				return err
			}
			links, ended, err := app.Delegations(c.Context(), state)
			if err != nil {
				return &fault.Error{Err: err, Tip: "waldo log verify says what is wrong with the log"}
			}
			out := []shown{}
			var rows [][]string
			for i, l := range links {
				if ended[i] != nil && !all {
					continue
				}
				out = append(out, show(l, ended[i]))
				state := "until " + l.Expires.Local().Format(time.DateTime)
				if ended[i] != nil {
					state = ended[i].Code
				}
				var allow []string
				for _, p := range l.Allow {
					allow = append(allow, string(p))
				}
				rows = append(rows, []string{l.ID, l.Parent, string(l.By), string(l.For), strings.Join(allow, " "),
					strconv.Itoa(l.Danger), strconv.Itoa(l.Used) + "/" + strconv.Itoa(l.Calls), state})
			}
			if g.JSON {
				return terminal.JSON(c.OutOrStdout(), out)
			}
			if len(rows) == 0 {
				display.Fprintf(c.OutOrStdout(), "no delegation is in force\n")
				return nil
			}
			terminal.Table(c.OutOrStdout(), []string{"DELEGATION", "BELOW", "BY", "FOR", "ALLOW", "DANGER", "CALLS",
				"STATE"}, rows)
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also those that have ended")
	return c
}

// outside returns a reason where this process is under a delegation that the named one is not below.
func outside(ctx context.Context, g *cli.Context, name string) (*call.Reason, error) {
	if g.Delegation.Named() == nil {
		return nil, nil // also where the configuration is not sound
	}
	h, err := g.Open(ctx, app.Options{})
	if err != nil {
		return nil, err
	}
	base := h.Delegated.Base.ID
	if err := h.Close(); err != nil || base == "" {
		return nil, err
	}
	state, err := g.StateDir()
	if err != nil {
		return nil, err
	}
	below, err := app.DelegationsBelow(ctx, state, base)
	if name != base && slices.Contains(below, name) {
		return nil, err
	}
	return &call.Reason{Code: "delegation.outside", Text: name + " is not below " + base +
		", which this process is under"}, err
}

func newRevoke(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "End a delegation and all below it now",
		Long: "Calls under way are cancelled in every waldo of the state directory, and of its replicas. Calls that wait for a\n" +
			"human are denied, and suspended programs of this state directory are removed.",
		Example: "  waldo delegate revoke dg_…", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if !id.Is(id.Delegation, args[0]) {
				return exitcode.Mistake("waldo delegate list shows the ids", "%q is not the id of a delegation", args[0])
			}
			if against, err := outside(c.Context(), g, args[0]); against != nil || err != nil {
				if err == nil {
					err = refused(c, g, *against)
				}
				return err
			}
			s, err := g.OpenRecorded(c.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			var untold error
			if s.Store.Shared() { // replicas believe a row with its mark
				state, cfg, err := g.Configured()
				if untold = err; err == nil {
					s.MarkWith(cfg, secrets.New(state, cfg, g.Known, cli.Passphrase()).Get)
				}
			}
			r, err := s.Revoke(c.Context(), args[0])
			if errors.Is(err, delegation.ErrAbsent) {
				return exitcode.Mistake("waldo delegate list --all shows the ids", "%s: %v", args[0], err)
			}
			if err != nil {
				return err
			}
			if g.JSON {
				err = terminal.JSON(c.OutOrStdout(), r)
			} else {
				calls := 0
				for _, one := range r.Replies {
					calls += one.Calls
				}
				if r.Before {
					display.Fprintf(c.ErrOrStderr(), "%s was revoked before\n", args[0])
				}
				display.Fprintf(c.ErrOrStderr(), "%s ended, %s cancelled, %s removed\n",
					display.Count(len(r.Delegations), "delegation"), display.Count(calls, "call"),
					display.Count(r.Programs, "suspended program"))
			}
			err = errors.Join(err, untold)
			if r.Silent > 0 {
				err = errors.Join(err, &exitcode.Exit{Code: exitcode.Problems,
					Text: display.Count(r.Silent, "process") + " did not reply; a call under way there may go on"})
			}
			return err
		},
	}
}
