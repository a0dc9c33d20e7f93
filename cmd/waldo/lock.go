package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"waldo/internal/app/trust"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

func newLock(g *global) *cobra.Command {
	var accept, show []string
	fresh := false
	c := &cobra.Command{
		Use: "lock [--show NAME..] [--accept NAME..]", Short: "Pin the definitions of upstream tools, prompts and templates; show what changed",
		Long: "A server that cannot be checked keeps its entry in waldo.lock; the others are compared all the same.\n" +
			"The entry of a server that is no longer configured stays until you accept its removal.\n" +
			"With --accept only the named servers are checked.\n" +
			"Exit code: 0 when every checked server matches waldo.lock, 1 otherwise.",
		Example: "  waldo lock\n  waldo lock --show helpdesk\n  waldo lock --accept helpdesk drive",
		Args: func(_ *cobra.Command, args []string) error { // they follow --accept
			if len(args) > 0 && len(accept)+len(show) == 0 {
				return fmt.Errorf("%q: names of servers stand after --show or --accept", args[0])
			}
			if len(accept) > 0 && len(show) > 0 {
				return errors.New("--show or --accept, not both: --accept shows what is new, too")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(show) > 0 {
				show = append(show, args...)
			} else {
				accept = append(accept, args...)
			}
			h, err := openApplication(c.Context(), g, settings{tells: true, relocks: true})
			if err != nil {
				return err
			}
			defer h.Close()
			h.packages.Fresh = fresh
			if len(show) > 0 {
				return h.printLock(c, g, show)
			}
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
						display.Fprintf(c.ErrOrStderr(), "waldo: server %s: %s\n", ch.Server, ch.Text)
						continue
					}
					display.Fprintf(c.OutOrStdout(), "%s: %s (%s)\n", ch, ch.Text, ch.Code)
					for _, line := range ch.Diff {
						display.Fprintf(c.OutOrStdout(), "    %s\n", line)
					}
				}
			}
			if err := notAsAccepted(changes); err != nil {
				return err
			}
			if !g.json {
				n, verb := len(h.upstreams.Names()), "match"
				if len(accept) > 0 {
					n = len(accept)
				}
				if n == 1 {
					verb = "matches"
				}
				display.Fprintf(c.OutOrStdout(), "%s %s waldo.lock\n", display.Count(n, "server"), verb)
			}
			return nil
		},
	}
	c.Flags().StringSliceVar(&accept, "accept", nil, "accept server `NAME` as it is now")
	c.Flags().StringSliceVar(&show, "show", nil, "show what accepting server `NAME` would accept, and accept nothing")
	c.Flags().BoolVar(&fresh, "fresh", false, "ask the registries, also where they were asked within the hour")
	return c
}

// unseen is the code of a server that could not be inspected: it or its package registry did not answer, or sent an
// unusable answer.
const unseen = "lock.unseen"

// notAsAccepted returns the error for the changes that a lock found, or nil.
func notAsAccepted(changes []lockfile.Change) error {
	var missing []string
	for _, ch := range changes {
		if ch.Code == unseen && !slices.Contains(missing, ch.Server) {
			missing = append(missing, ch.Server)
		}
	}
	n := len(slices.DeleteFunc(slices.Clone(changes), func(ch lockfile.Change) bool { return ch.Code == unseen }))
	var say, do []string
	if n > 0 {
		say, do = append(say, display.Count(n, "difference")+" from waldo.lock"), append(do, "review with waldo lock --show NAME, then: waldo lock --accept NAME")
	}
	if len(missing) > 0 {
		say, do = append(say, display.Count(len(missing), "server")+" could not be checked: "+strings.Join(missing, ", ")), append(do, "fix the errors above, then run waldo lock again")
	}
	if len(say) == 0 {
		return nil
	}
	return &exit{code: exitProblems, text: strings.Join(say, "; "), hint: strings.Join(do, "; ")}
}

// compareLock compares every server with waldo.lock and accepts the named ones. An unreachable server keeps its pins
// and is reported as a change.
func (h *application) compareLock(ctx context.Context, stderr io.Writer, accept []string) ([]lockfile.Change, error) {
	file := h.lockFile()
	lock, err := lockfile.Read(file)
	if err != nil {
		return nil, err
	}
	for _, name := range accept {
		_, is := h.cfg.Servers[name]
		if _, was := lock.Servers[name]; !is && !was {
			return nil, usage("waldo lock lists the servers", "there is no server %s", name)
		}
	}
	changes := []lockfile.Change{}
	for _, one := range h.lockServers(ctx, lock, accept) {
		_, _ = one.said.WriteTo(stderr)
		changes = append(changes, one.changes...)
		if one.err == nil {
			continue
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		changes = append(changes, lockfile.Change{Server: one.name, Code: unseen, Text: h.clean(strings.TrimPrefix(one.err.Error(), "server "+one.name+": "))})
	}
	changes = append(changes, h.lockGone(stderr, lock, accept)...)
	if len(accept) == 0 {
		return changes, nil
	}
	before, err := trust.Digest(file)
	if err == nil {
		err = lock.Write(file)
	}
	if err != nil {
		return changes, err
	}
	if err := trust.AcceptLock(h.state, h.cfg, before); err != nil {
		return changes, err
	}
	return changes, tellServes(ctx, h.store, stderr, file)
}

// looked is the result of inspecting one server.
type looked struct {
	name    string
	said    bytes.Buffer
	changes []lockfile.Change
	err     error
}

// lookTogether is the number of servers inspected concurrently.
const lookTogether = 4

// lockServers inspects servers concurrently and returns results in the order of their names. With accept it inspects
// only those.
func (h *application) lockServers(ctx context.Context, lock *lockfile.Lock, accept []string) []*looked {
	names := h.upstreams.Names()
	if len(accept) > 0 {
		names = slices.DeleteFunc(names, func(n string) bool { return !slices.Contains(accept, n) })
	}
	all := make([]*looked, len(names))
	bar := terminal.ProgressOf(os.Stderr, "checking servers", len(names))
	defer bar.Close()
	var mu sync.Mutex // of the lock
	var wg sync.WaitGroup
	room := make(chan struct{}, lookTogether)
	for i, name := range names {
		one := &looked{name: name}
		all[i] = one
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			defer bar.Begin(name)()
			one.changes, one.err = h.lockServer(ctx, &one.said, lock, &mu, name, len(accept) > 0)
		})
	}
	wg.Wait()
	return all
}

// lockGone reports servers in the lock that are no longer configured, or removes those in accept.
func (h *application) lockGone(stderr io.Writer, lock *lockfile.Lock, accept []string) (changes []lockfile.Change) {
	for _, name := range slices.Sorted(maps.Keys(lock.Servers)) {
		switch _, is := h.cfg.Servers[name]; {
		case is:
		case slices.Contains(accept, name):
			delete(lock.Servers, name)
			display.Fprintf(stderr, "accepted %s: its entry is removed\n", name)
		case len(accept) == 0:
			changes = append(changes, lockfile.Change{Server: name, Code: "lock.gone", Text: "in waldo.lock, and no longer a server of the configuration"})
		}
	}
	return changes
}

// lockServer compares one server with the lock, or accepts it.
func (h *application) lockServer(ctx context.Context, stderr io.Writer, lock *lockfile.Lock, mu *sync.Mutex, name string, accept bool) ([]lockfile.Change, error) {
	changes, absent, err := h.packages.Lock(ctx, h.cfg.Servers[name], accept)
	if err != nil || absent {
		return changes, err
	}
	now, err := h.upstreams.Seen(ctx, name)
	if err != nil {
		return changes, err
	}
	for _, p := range h.held(name) {
		if !strings.HasPrefix(p.Code, "lock.") { // accepting does not change these
			display.Fprintf(stderr, "waldo: %s is hidden from agents: %s (%s)\n", leftOut(p), p.Text, p.Code)
		}
	}
	if err := h.withAppeared(ctx, name, &now); err != nil {
		return changes, err
	}
	now.Package = h.packages.Pin(name)
	mu.Lock()
	defer mu.Unlock()
	_, known := lock.Servers[name]
	if accept {
		shownOf(name, lock, now).print(stderr, true)
		lock.Accept(name, now)
		display.Fprintf(stderr, "accepted %s: %s\n", name, inventory(now))
	} else if !known {
		changes = append(changes, lockfile.Change{Server: name, Code: "lock.absent", Text: "not locked: " + inventory(now)})
	}
	return append(changes, lock.Compare(name, now)...), nil
}

// inventory counts the accepted definitions of a server.
func inventory(l lockfile.Locked) string {
	say := []string{display.Count(len(l.Tools), "tool")}
	if n := len(l.Prompts.Digests); n > 0 {
		say = append(say, display.Count(n, "prompt"))
	}
	if n := len(l.Templates.Digests); n > 0 {
		say = append(say, display.Count(n, "template"))
	}
	return strings.Join(say, ", ")
}

// readLock reads waldo.lock, which the policy and the servers need.
func (h *application) readLock() (err error) {
	if h.lock, err = lockfile.Read(h.lockFile()); err != nil {
		return &exit{code: exitUsage, err: err, hint: "fix or remove it, then look with waldo lock"}
	}
	return nil
}

// lockFile is waldo.lock beside the configuration.
func (h *application) lockFile() string { return trust.LockFile(h.state, h.cfg) }
