package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"waldo/internal/redact"
	"waldo/internal/upstream"
)

func newLock(g *global) *cobra.Command {
	var accept []string
	c := &cobra.Command{
		Use: "lock [--accept NAME..]", Short: "Pin the definitions of upstream tools, prompts and templates; show what changed",
		Long: "Of a server that cannot be looked at, what was accepted stays as it is; the others are held against waldo.lock all the same.\n" +
			"What was accepted of a server that is no longer configured stays until that is accepted, too.\n" +
			"Exit code: 0 when every server shows what was accepted, 1 otherwise.",
		Example: "  waldo lock\n  waldo lock --accept helpdesk drive",
		Args: func(_ *cobra.Command, args []string) error { // they follow --accept
			if len(args) > 0 && len(accept) == 0 {
				return fmt.Errorf("%q: names of servers stand after --accept", args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			accept = append(accept, args...)
			h, err := openHouse(c.Context(), g, settings{tells: true})
			if err != nil {
				return err
			}
			defer h.Close()
			changes, err := h.compareLock(c.Context(), c.ErrOrStderr(), accept)
			if err != nil {
				return err
			}
			if g.json {
				if err := printJSON(c.OutOrStdout(), changes); err != nil {
					return err
				}
			} else {
				for _, ch := range changes {
					if ch.Code == unseen {
						fmt.Fprintf(c.ErrOrStderr(), "waldo: server %s: %s\n", ch.Server, ch.Text)
						continue
					}
					name := ch.String()
					if name != redact.Clean(name) {
						name = strconv.QuoteToASCII(name)
					}
					fmt.Fprintf(c.OutOrStdout(), "%s: %s (%s)\n", name, ch.Text, ch.Code)
					for _, line := range ch.Diff {
						fmt.Fprintf(c.OutOrStdout(), "    %s\n", line)
					}
				}
			}
			if err := notAsAccepted(changes); err != nil {
				return err
			}
			if !g.json {
				fmt.Fprintf(c.OutOrStdout(), "%s, every definition as accepted\n", count(len(h.upstreams.Names()), "server"))
			}
			return nil
		},
	}
	c.Flags().StringSliceVar(&accept, "accept", nil, "accept server `NAME` as it is now")
	return c
}

// unseen is the code of a server that could not be looked at: it, or the registry of its package, does
// not answer, or what they answer cannot be taken.
const unseen = "lock.unseen"

// notAsAccepted says what a lock has found; nil: nothing.
func notAsAccepted(changes []upstream.Change) error {
	var missing []string
	for _, ch := range changes {
		if ch.Code == unseen && !slices.Contains(missing, ch.Server) {
			missing = append(missing, ch.Server)
		}
	}
	n := len(slices.DeleteFunc(slices.Clone(changes), func(ch upstream.Change) bool { return ch.Code == unseen }))
	var say, do []string
	if n > 0 {
		say, do = append(say, count(n, "definition")+" not as accepted"), append(do, "read them, then: waldo lock --accept NAME")
	}
	if len(missing) > 0 {
		say, do = append(say, "not looked at, and kept as accepted before: "+strings.Join(missing, ", ")), append(do, "see to what it says above, then again: waldo lock")
	}
	if len(say) == 0 {
		return nil
	}
	return &exit{code: exitProblems, text: strings.Join(say, "; "), hint: strings.Join(do, "; ")}
}

// compareLock holds every server against waldo.lock, accepting those named. One that cannot be
// looked at keeps what was accepted of it, and is among the changes.
func (h *house) compareLock(ctx context.Context, stderr io.Writer, accept []string) ([]upstream.Change, error) {
	file := h.lockFile()
	lock, err := upstream.ReadLock(file)
	if err != nil {
		return nil, err
	}
	for _, name := range accept {
		_, is := h.cfg.Servers[name]
		if _, was := lock.Servers[name]; !is && !was {
			return nil, usage("waldo lock lists the servers", "there is no server %s", name)
		}
	}
	changes := []upstream.Change{}
	for _, name := range h.upstreams.Names() {
		more, err := h.lockServer(ctx, stderr, lock, name, slices.Contains(accept, name))
		changes = append(changes, more...)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		changes = append(changes, upstream.Change{Server: name, Code: unseen, Text: h.clean(strings.TrimPrefix(err.Error(), "server "+name+": "))})
	}
	changes = append(changes, h.lockGone(stderr, lock, accept)...)
	if len(accept) == 0 {
		return changes, nil
	}
	return changes, lock.Write(file)
}

// lockGone names the servers of the lock that are no longer configured, or forgets them where that is accepted.
func (h *house) lockGone(stderr io.Writer, lock *upstream.Lock, accept []string) (changes []upstream.Change) {
	for _, name := range slices.Sorted(maps.Keys(lock.Servers)) {
		switch _, is := h.cfg.Servers[name]; {
		case is:
		case slices.Contains(accept, name):
			delete(lock.Servers, name)
			fmt.Fprintf(stderr, "accepted %s: it is gone, and what was accepted of it is forgotten\n", redact.Clean(name))
		default:
			changes = append(changes, upstream.Change{Server: name, Code: "lock.gone", Text: "it was accepted and is no longer a server of the configuration"})
		}
	}
	return changes
}

// lockServer holds one server against the lock, or accepts it.
func (h *house) lockServer(ctx context.Context, stderr io.Writer, lock *upstream.Lock, name string, accept bool) ([]upstream.Change, error) {
	changes, absent, err := h.lockPackage(ctx, h.cfg.Servers[name], accept)
	if err != nil || absent {
		return changes, err
	}
	now, err := h.upstreams.Seen(ctx, name)
	if err != nil {
		return changes, err
	}
	for _, p := range h.held(name) {
		if !strings.HasPrefix(p.Code, "lock.") { // which accepting does not change
			fmt.Fprintf(stderr, "waldo: %s is kept from agents: %s (%s)\n", leftOut(p), p.Text, p.Code)
		}
	}
	now.Package = h.pins[name]
	_, known := lock.Servers[name]
	if accept {
		lock.Accept(name, now)
		fmt.Fprintf(stderr, "accepted %s: %s\n", name, inventory(now))
	} else if !known {
		changes = append(changes, upstream.Change{Server: name, Code: "lock.absent", Text: "nothing was accepted of this server yet: " + inventory(now)})
	}
	return append(changes, lock.Compare(name, now)...), nil
}

// inventory counts what was accepted of a server.
func inventory(l upstream.Locked) string {
	say := []string{count(len(l.Tools), "tool")}
	if n := len(l.Prompts.Digests); n > 0 {
		say = append(say, count(n, "prompt"))
	}
	if n := len(l.Templates.Digests); n > 0 {
		say = append(say, count(n, "template"))
	}
	return strings.Join(say, ", ")
}

// lockFile is waldo.lock beside the configuration.
func (h *house) lockFile() string {
	if h.cfg.File == "" {
		return filepath.Join(h.state, "waldo.lock")
	}
	return filepath.Join(filepath.Dir(h.cfg.File), "waldo.lock")
}
