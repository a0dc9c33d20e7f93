package app

import (
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"waldo/internal/app/control"
	"waldo/internal/app/fault"
	"waldo/internal/app/trust"
	"waldo/internal/executor/serverpackage"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/display"
	"waldo/internal/protocol/strictjson"
)

// Unseen is the code of a server that could not be inspected: it or its package registry did not answer, or sent an
// unusable answer.
const Unseen = "lock.unseen"

// looked is the result of inspecting one server.
type looked struct {
	Server    string
	Hidden    []catalog.Problem // hidden from agents for reasons that accepting does not change
	Accepted  *ShownServer      // the accepted definitions; nil: none
	Inventory string            // of the accepted definitions
	Removed   bool              // its entry was removed
	Changes   []lockfile.Change
	err       error
}

// CompareLock compares every server with waldo.lock, and the named ones as they would be accepted: AcceptLock takes
// those. An unreachable server keeps its pins and is reported as a change. It calls begin for each server, and the
// returned function at its end. The lock is nil where there is nothing to accept.
func (h *App) CompareLock(
	ctx context.Context, accept []string, begin func(name string) (end func()),
) ([]*looked, *lockfile.Lock, error) {
	file := h.lockFile()
	lock, err := lockfile.Read(file)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range accept {
		_, is := h.Config.Servers[name]
		if _, was := lock.Servers[name]; !is && !was {
			return nil, nil, fault.Usage("waldo lock lists the servers", "unknown server %s", name)
		}
	}
	all := h.lockServers(ctx, lock, accept, begin)
	for _, one := range all {
		if one.err == nil {
			continue
		}
		if ctx.Err() != nil {
			return all, nil, ctx.Err()
		}
		one.Changes = append(one.Changes, lockfile.Change{
			Server: one.Server, Code: Unseen, Text: h.Clean(strings.TrimPrefix(one.err.Error(), "server "+one.Server+": ")),
		})
	}
	all = append(all, h.lockGone(lock, accept)...)
	if !slices.ContainsFunc(all, func(one *looked) bool { return one.Accepted != nil || one.Removed }) {
		return all, nil, nil // the file stays as it is
	}
	return all, lock, nil
}

// AcceptLock takes the lock of a comparison that a person has seen. by opens the first approver's key, where one signs.
// It writes the lock and its digest once that is signed, and then recorded.
func (h *App) AcceptLock(ctx context.Context, lock *lockfile.Lock, all []*looked, by RootSigner) error {
	before, err := trust.Digest(h.lockFile())
	if err != nil {
		return err
	}
	text, err := lock.Text()
	if err != nil {
		return err
	}
	trusted, changed, err := trust.AcceptLock(h.State, h.Config, before, strictjson.Digest(text))
	if err == nil {
		err = h.SignTrust(ctx, changed, by)
	}
	if err == nil {
		err = h.recordLocks(ctx, lock, all)
	}
	if err == nil {
		err = lock.Write(h.lockFile())
	}
	if err != nil || trusted == nil {
		return err
	}
	return trust.Write(h.State, trusted)
}

// recordLocks records what is accepted, with the digest of the server's entry.
func (h *App) recordLocks(ctx context.Context, lock *lockfile.Lock, all []*looked) error {
	for _, one := range all {
		action, digest := "lock.remove", ""
		switch {
		case one.Accepted != nil:
			entry, err := json.Marshal(lock.Servers[one.Server])
			if err != nil {
				return err
			}
			action, digest = "lock.accept", strictjson.Digest(entry)
		case !one.Removed:
			continue
		}
		if err := h.RecordChange(ctx, action, one.Server, digest); err != nil {
			return err
		}
	}
	return nil
}

// OfferLock has every waldo serve of this lock take it. It returns their replies, and how many did not answer in time.
func (h *App) OfferLock(ctx context.Context) (file string, replies []control.Reply, silent int, err error) {
	if file, err = filepath.Abs(h.lockFile()); err != nil {
		return "", nil, 0, err
	}
	digest, err := trust.Digest(file)
	if err != nil {
		return "", nil, 0, err
	}
	replies, silent, err = control.Put(ctx, h.Store, control.Lock, control.Order{File: file, Lock: digest})
	return file, replies, silent, err
}

// lookTogether is the number of servers inspected concurrently.
const lookTogether = 4

// lockServers inspects servers concurrently and returns results in the order of their names. With accept it inspects
// only those.
func (h *App) lockServers(
	ctx context.Context, lock *lockfile.Lock, accept []string, begin func(part string) (end func()),
) []*looked {
	names := h.Upstreams.Names()
	if len(accept) > 0 {
		names = slices.DeleteFunc(names, func(n string) bool { return !slices.Contains(accept, n) })
	}
	all := make([]*looked, len(names))
	var mu sync.Mutex // of the lock
	var wg sync.WaitGroup
	room := make(chan struct{}, lookTogether)
	for i, name := range names {
		one := &looked{Server: name}
		all[i] = one
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			one.err = h.lockServer(ctx, one, lock, &mu, len(accept) > 0, begin)
		})
	}
	wg.Wait()
	return all
}

// lockGone reports servers in the lock that are no longer configured, or removes those in accept.
func (h *App) lockGone(lock *lockfile.Lock, accept []string) (all []*looked) {
	for _, name := range slices.Sorted(maps.Keys(lock.Servers)) {
		switch _, is := h.Config.Servers[name]; {
		case is:
		case slices.Contains(accept, name):
			delete(lock.Servers, name)
			all = append(all, &looked{Server: name, Removed: true})
		case len(accept) == 0:
			all = append(all, &looked{
				Server: name,
				Changes: []lockfile.Change{{Server: name, Code: "lock.gone",
					Text: "in waldo.lock, and no longer a server of the configuration"}},
			})
		}
	}
	return all
}

// lockServer compares one server with the lock, or accepts it.
func (h *App) lockServer(
	ctx context.Context, one *looked, lock *lockfile.Lock, mu *sync.Mutex, accept bool, begin func(part string) (end func()),
) error {
	name := one.Server
	end := begin(name + ": its package")
	changes, absent, err := h.Packages.Lock(ctx, h.Config.Servers[name], accept)
	end()
	defer begin(name + ": starts")()
	one.Changes = changes
	if err != nil || absent {
		return err
	}
	now, err := h.Upstreams.Seen(ctx, name)
	if err != nil {
		return err
	}
	for _, p := range h.held(name) {
		if !strings.HasPrefix(p.Code, "lock.") { // accepting does not change these
			one.Hidden = append(one.Hidden, p)
		}
	}
	if err := h.withAppeared(ctx, name, &now); err != nil {
		return err
	}
	now.Package = h.Packages.Pin(name)
	mu.Lock()
	defer mu.Unlock()
	_, known := lock.Servers[name]
	if accept {
		shown := shownOf(name, lock, now)
		one.Accepted, one.Inventory = &shown, inventory(now)
		lock.Accept(name, now)
	} else if !known {
		one.Changes = append(one.Changes, lockfile.Change{
			Server: name, Code: "lock.absent", Text: "not locked: " + inventory(now),
		})
	}
	one.Changes = append(one.Changes, lock.Compare(name, now)...)
	return nil
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
func (h *App) readLock() (err error) {
	if h.Lock, err = lockfile.Read(h.lockFile()); err != nil {
		return &fault.Error{Usage: true, Err: err, Tip: "fix or remove it, then look with waldo lock"}
	}
	return nil
}

// lockFile is waldo.lock beside the configuration.
func (h *App) lockFile() string { return trust.LockFile(h.State, h.Config) }

// ShownServer is one server as `waldo lock --show` prints it: the definitions that --accept would pin.
type ShownServer struct {
	Server  string       `json:"server"`
	Name    string       `json:"name"`              // as the server calls itself
	Package string       `json:"package,omitempty"` // name, version and the digest of all that is installed
	Started string       `json:"started"`           // new, same or changed: how it is started
	Tools   []Definition `json:"tools"`
	Prompts []Definition `json:"prompts,omitempty"`
	// Templates of resources.
	Templates []Definition `json:"templates,omitempty"`
	// Gone are the names that were accepted and that the server no longer shows.
	Gone []string `json:"gone,omitempty"`
}

// Definition is one definition of a server.
type Definition struct {
	Name   string `json:"name"`
	State  string `json:"state"`  // new, same or changed
	Digest string `json:"digest"` // of the whole definition
	Texts  []Text `json:"texts"`  // all that a model could read
}

// Text is one text of a definition.
type Text struct {
	Where string `json:"where"` // as in description or inputSchema.properties.a.enum
	Text  string `json:"text"`
}

// the states of a definition, against what was accepted.
const (
	isNew     = "new"
	Same      = "same"
	isChanged = "changed"
)

// shownOf describes a server as it is now, against what was accepted of it.
func shownOf(name string, lock *lockfile.Lock, now lockfile.Locked) ShownServer {
	was, known := lock.Servers[name]
	s := ShownServer{Server: name, Name: now.Name, Started: stateOf(was.Command, now.Command, known)}
	if p := now.Package; p != nil {
		s.Package = strings.TrimSpace(p.Spec+" "+p.Version) + ", " + p.Lock.Digest()
	}
	s.Tools = defsOf(now.Tools, now.Definitions, was.Tools)
	s.Prompts = defsOf(now.Prompts.Digests, now.Prompts.Definitions, was.Prompts.Digests)
	s.Templates = defsOf(now.Templates.Digests, now.Templates.Definitions, was.Templates.Digests)
	for _, kind := range [][2]map[string]string{
		{was.Tools, now.Tools}, {was.Prompts.Digests, now.Prompts.Digests}, {was.Templates.Digests, now.Templates.Digests},
	} {
		for _, n := range slices.Sorted(maps.Keys(kind[0])) {
			if _, still := kind[1][n]; !still {
				s.Gone = append(s.Gone, n)
			}
		}
	}
	return s
}

func stateOf(was, now string, known bool) string {
	switch {
	case !known:
		return isNew
	case was == now:
		return Same
	}
	return isChanged
}

func defsOf(digests map[string]string, definitions map[string]strictjson.Value, before map[string]string) []Definition {
	out := []Definition{}
	for _, name := range slices.Sorted(maps.Keys(digests)) {
		old, known := before[name]
		d := Definition{Name: name, Digest: digests[name], State: stateOf(old, digests[name], known)}
		out = append(out, d.with("", definitions[name]))
	}
	return out
}

// with adds the texts of a value, and each other value as it is written.
func (d Definition) with(at string, v strictjson.Value) Definition {
	if s, ok := v.Text(); ok {
		d.Texts = append(d.Texts, Text{at, s})
		return d
	}
	items, _ := v.Elements()
	for _, item := range items {
		d = d.with(at, item)
	}
	m, _ := v.Members()
	for _, name := range slices.Sorted(maps.Keys(m)) {
		d = d.with(strings.TrimPrefix(at+"."+name, "."), m[name])
	}
	if len(items)+len(m) == 0 && !v.IsZero() {
		d.Texts = append(d.Texts, Text{at, string(v.Canonical())}) // true, 1, {}
	}
	return d
}

// ShowLock looks at servers, without accepting anything, and returns what accepting them would accept.
// A package that was never accepted is installed to look at it: sealed and without scripts, as accepting does.
func (h *App) ShowLock(
	ctx context.Context, names []string, begin func(name string) (end func()),
) ([]ShownServer, error) {
	lock, err := lockfile.Read(h.lockFile())
	if err != nil {
		return nil, err
	}
	out := []ShownServer{}
	for _, name := range names {
		done := begin(name)
		s, ok := h.Config.Servers[name]
		if !ok {
			return nil, fault.Usage("waldo lock lists the servers", "unknown server %s", name)
		}
		w, packaged, err := serverpackage.Wanted(s)
		if err != nil {
			return nil, err
		}
		if pin := h.Packages.Pin(name); packaged && (pin == nil || !pin.Is(w)) {
			if err := h.Packages.Accept(ctx, s, w); err != nil {
				return nil, unshown(ctx, h.Clean(err.Error()))
			}
		}
		now, err := h.Upstreams.Seen(ctx, name)
		if err != nil {
			return nil, unshown(ctx, h.Clean(err.Error()))
		}
		now.Package = h.Packages.Pin(name)
		out = append(out, shownOf(name, lock, now))
		done()
	}
	return out, nil
}

// unshown is the error for a server that could not be looked at: a problem that a check found.
func unshown(ctx context.Context, text string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &fault.Error{Problems: true, Text: text}
}
