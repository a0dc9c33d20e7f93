package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"waldo/internal/core/policy"
	"waldo/internal/executor/protect"
	serverfiles "waldo/internal/executor/upstream/files"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/storage/safefile"
)

// Changes lists what runs change below their writable mounts, and keeps what a person may take or take back.
type Changes interface {
	// Begin is called before a run, with its call's id and writable mounts. An error with a hint refuses the run.
	Begin(call, mode string, folders []Folder) (Ledger, error)
}

// Folder is a writable mount.
type Folder struct {
	Source, Target string
	Root           *os.Root // the folder itself, wherever its path leads by now
	Rules          protect.Rules
}

// Ledger is the changes of one run.
type Ledger interface {
	Aside(folder int) string            // where writes to it go; empty: to the folder itself
	Hold(folder int, path string) error // keeps a copy of what is about to be taken out
	End() (*facts.Changes, error)       // after the last process of the run
	Close() error                       // drops a run that has not come to its End
}

// unlisted is the ledger of a run without writable mounts, or of a waldo that lists no changes.
type unlisted struct{}

func (unlisted) Aside(int) string             { return "" }
func (unlisted) Hold(int, string) error       { return nil }
func (unlisted) End() (*facts.Changes, error) { return nil, nil }
func (unlisted) Close() error                 { return nil }

// ledger begins the changes of a run.
func (r *Runner) ledger(d policy.Decision, o *Options) (Ledger, *call.Reason) {
	var all []Folder
	for _, m := range o.mounts {
		if m.Writable {
			all = append(all, Folder{m.Source, m.Target, m.root, m.rules})
		}
	}
	switch {
	case o.Changes != "" && !slices.Contains([]string{"keep", "review", "discard"}, o.Changes):
		return nil, &call.Reason{Code: "changes.mode", Text: "changes are keep, review or discard"}
	case len(all) == 0:
		return unlisted{}, nil
	case r.Changes == nil && o.Changes != "" && o.Changes != "keep":
		return nil, &call.Reason{Code: "changes.absent", Text: "this waldo cannot hold changes for review"}
	}
	l, err := Ledger(unlisted{}), error(nil)
	if r.Changes != nil {
		l, err = r.Changes.Begin(d.Call.ID, o.Changes, all)
	}
	if err != nil {
		slog.Warn("changes cannot be recorded", "capability", string(d.Call.Capability), "why", err)
		return nil, &call.Reason{Code: "changes.begin", Text: "the changes of this run could not be recorded; the operator sees why",
			Cause: err.Error()}
	}
	n := 0
	for i := range o.mounts {
		m := &o.mounts[i]
		if !m.Writable {
			continue
		}
		if m.Aside = l.Aside(n); m.Aside != "" {
			m.Sealed = nil // what is written aside is marked, and runs nowhere
		} else if o.Lend != nil {
			m.lend(o.Lend)
		}
		n++
	}
	forget, err := o.noted(r.State, d)
	o.start.end()
	if err != nil {
		slog.Warn("the mounts of a run cannot be noted", "capability", string(d.Call.Capability), "why", err)
		why := call.Reason{Code: "changes.begin", Text: "the mounts of this run could not be noted; the operator sees why",
			Cause: err.Error()}
		return nil, &why
	}
	cleaning.add(1)
	return notedLedger{l, forget}, nil
}

// notedLedger is a ledger that ends a run's note.
type notedLedger struct {
	Ledger
	forget func()
}

func (n notedLedger) Close() error {
	defer cleaning.add(-1)
	n.forget()
	return n.Ledger.Close()
}

// cleaning counts the runs of this process with writable mounts, until what they planted is taken out.
var cleaning counter

type counter struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n is 0 again; nil: nothing waits
}

func (c *counter) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n += n; c.n == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// Cleaned is closed once no run of this process has protected names to take out.
func Cleaned() <-chan struct{} {
	cleaning.mu.Lock()
	defer cleaning.mu.Unlock()
	none := cleaning.none
	if none == nil {
		none = make(chan struct{})
		if cleaning.n == 0 {
			close(none)
			return none
		}
		cleaning.none = none
	}
	return none
}

// liveMount is a mount of a contract.
type liveMount struct {
	sandbox.Mount
	root     *os.Root // opened once; nil: it is a file
	rules    protect.Rules
	before   []protect.Found
	uid, gid int // of the folder's owner, where the sandbox has this number too
}

// release closes the folders of a run that has ended.
func (o *Options) release() {
	for _, m := range o.mounts {
		if m.root != nil {
			_ = m.root.Close()
		}
	}
}

// mounted opens the mounts of a call: those of its contract, or those of them that the call names.
func (r *Runner) mounted(d policy.Decision, o *Options, driver sandbox.Driver) *call.Reason {
	rules, err := protect.New(d.Contract.Protect, d.Contract.Unprotect)
	if err != nil {
		return &call.Reason{Code: "mounts.protect", Text: err.Error()}
	}
	chosen, why := chosen(d.Contract, o.Mounts)
	if why != nil {
		return why
	}
	for _, m := range chosen {
		from, err := r.Machine.Place(m.At, m.From)
		if f := (serverfiles.Fault{}); errors.As(err, &f) && f.Refused {
			return operator(d, "mounts.refused", "may not be shown", m, err)
		}
		if err != nil {
			return operator(d, "mounts.absent", "is not there", m, err)
		}
		p := liveMount{Mount: sandbox.Mount{Source: from, Target: m.Target, Writable: m.Writable, Live: m.Writable, Exact: true},
			rules: rules.At(from)}
		if m.Writable && driver.Name() != "namespace" {
			return &call.Reason{Code: "mounts.isolation", Text: "isolation " + driver.Name() +
				" cannot keep protected names of a writable folder read-only; isolation namespace can"}
		}
		why := p.look(d, m)
		if o.mounts = append(o.mounts, p); why != nil {
			return why
		}
	}
	return nil
}

// place looks at the mounts of a run. With a writable one, no other run of this state directory starts before start.end.
func (r *Runner) place(ctx context.Context, d policy.Decision, o *Options, driver sandbox.Driver) (why *call.Reason) {
	writes := func(m contract.Mount) bool { return m.Writable }
	if r.State != "" && slices.ContainsFunc(d.Contract.Mounts, writes) {
		var err error
		if o.start, err = starts(ctx, r.State); err != nil {
			slog.Warn("the notes of other runs cannot be read", "capability", string(d.Call.Capability), "why", err)
			return &call.Reason{Code: "changes.begin", Text: "the mounts of this run could not be noted; the operator sees why",
				Cause: err.Error()}
		}
	}
	if why = r.mounted(d, o, driver); why != nil || o.start == nil {
		return why
	}
	for i := range o.mounts {
		if m := &o.mounts[i]; m.Writable {
			if err := o.start.narrow(m, d.Contract); err != nil {
				return operator(d, "mounts.busy", "is written to under other rules at present",
					contract.Mount{From: m.Source, Target: m.Target}, err)
			}
		}
	}
	return nil
}

// operator logs a fault and returns a reason that does not name the path.
func operator(d policy.Decision, code, what string, m contract.Mount, err error) *call.Reason {
	slog.Warn("a mount is refused", "capability", string(d.Call.Capability), "code", code, "why", err)
	if d.Contract.BuiltIn { // the person at the terminal named it
		return &call.Reason{Code: code, Text: "--mount " + m.From + ": " + err.Error()}
	}
	return &call.Reason{Code: code, Text: "the mount " + m.Target + " of this capability " + what + "; the operator sees why",
		Cause: err.Error()}
}

// chosen returns the mounts of a contract, narrowed to those that a call asks for.
func chosen(c contract.Contract, asked []call.Mount) (out []contract.Mount, why *call.Reason) {
	if len(asked) == 0 {
		return c.Mounts, nil
	}
	for _, a := range asked {
		found := false
		for _, m := range c.Mounts {
			from, err := m.At.Beside(m.From)
			if err == nil && m.Target == a.Target && (from == a.Source || m.From == a.Source) && (m.Writable || !a.Writable) {
				m.Writable, found = a.Writable, true
				out = append(out, m)
			}
		}
		if !found {
			return nil, &call.Reason{Code: "mounts.contract", Text: fmt.Sprintf("the contract does not show %s at %s%s",
				a.Source, a.Target, map[bool]string{true: " for writing"}[a.Writable])}
		}
	}
	return out, nil
}

// look finds the protected names of a mount, and whose it is.
func (p *liveMount) look(d policy.Decision, m contract.Mount) *call.Reason {
	info, err := os.Lstat(p.Source)
	if err == nil && info.Mode().IsRegular() {
		if p.Writable {
			return operator(d, "mounts.file", "is a file, and only a folder can be writable", m,
				errors.New("only a folder can be writable: "+p.Source+" is a file"))
		}
		return nil
	}
	if err == nil {
		p.root, err = safefile.Exact(p.Source)
	}
	if errors.Is(err, safefile.ErrChanged) {
		return operator(d, "mounts.refused", "may not be shown", m, err)
	}
	if err == nil {
		info, err = p.root.Stat(".")
	}
	if err == nil && p.Writable {
		p.uid, p.gid, err = owner(info)
	}
	if err != nil {
		return operator(d, "mounts.owner", "belongs to another user", m, err)
	}
	if p.before, err = p.rules.Look(p.root); err != nil {
		return operator(d, "mounts.protected", "cannot be looked through for protected names", m, err)
	}
	for _, f := range p.before {
		switch {
		case f.Hidden:
			name := f.Path
			if f.Mode.IsDir() {
				name += "/"
			}
			if f.Mode.Type()&os.ModeSymlink != 0 {
				if name = p.linked(f.Path); name == "" {
					continue // what it leads to is not shown
				}
			}
			if !slices.Contains(p.Hidden, name) {
				p.Hidden = append(p.Hidden, name)
			}
		case !p.Writable, f.Link != "": // a link that the run changes is taken out at its end
		case f.Mode.Type()&os.ModeSymlink != 0:
			return operator(d, "mounts.link", "has a protected name that is a link", m, fmt.Errorf("%s is a link, which "+
				"cannot be kept from being changed; unprotect: [%q] gives it up", filepath.Join(p.Source, f.Path), f.Row.Pattern))
		default:
			p.Sealed = append(p.Sealed, f.Path)
		}
	}
	return p.sealConfig(d, m)
}

// lend has the session write to copies of git's configuration: what is sealed stays as it is.
func (p *liveMount) lend(lend func(string) string) {
	p.Lent = map[string]string{}
	for _, f := range p.before {
		if f.Row.Pattern != "git:config" || !f.Mode.IsRegular() || !slices.Contains(p.Sealed, f.Path) {
			continue
		}
		if at := lend(filepath.Join(p.Source, f.Path)); at != "" {
			p.Lent[f.Path] = at
		}
	}
}

// linked returns the name below the folder that a link leads to, a folder with a slash at its end; empty: none.
func (p *liveMount) linked(link string) string {
	to, err := filepath.EvalSymlinks(filepath.Join(p.Source, link))
	if err != nil || to == p.Source || !contract.Within(to, p.Source) {
		return ""
	}
	name := strings.TrimPrefix(to, p.Source+"/")
	if info, err := os.Lstat(to); err == nil && info.IsDir() {
		name += "/"
	}
	return name
}

// sealConfig seals the file of the contract in a writable mount, whatever its name.
func (p *liveMount) sealConfig(d policy.Decision, m contract.Mount) *call.Reason {
	own, err := filepath.EvalSymlinks(d.Contract.At.File)
	if err != nil || !p.Writable || d.Contract.BuiltIn {
		return nil
	}
	if own, err = filepath.Abs(own); err != nil || !contract.Within(own, p.Source) {
		return nil
	}
	rel := strings.TrimPrefix(own, p.Source+"/")
	for _, s := range p.Sealed {
		if contract.Within("/"+rel, "/"+s) {
			return nil
		}
	}
	p.Sealed = append(p.Sealed, rel)
	return nil
}

// appeared takes out what a run has planted in its writable mounts, names it, and lists what the run changed.
func (o Options) appeared(l Ledger, f *facts.Facts) {
	n, aside := -1, false
	for _, p := range o.mounts {
		if !p.Writable {
			continue
		}
		if n++; p.Aside != "" {
			aside = true
			continue // it is in no folder of the person's
		}
		if !safefile.Same(p.root, p.Source) {
			f.Warnings = append(f.Warnings, fmt.Sprintf("mounts.moved: the folder of %s is not at its place any more; what "+
				"appeared was looked for in the folder itself", p.Target))
		}
		held, err := p.takeOut(l, n)
		for _, h := range held {
			name := filepath.Join(p.Target, h.Path)
			f.Files.Held = append(f.Files.Held, name)
			f.Warnings = append(f.Warnings, fmt.Sprintf("mounts.held: %s appeared and was removed: %s", facts.Name(name), h.Row.Reason))
		}
		if err != nil {
			f.Warnings = append(f.Warnings, fmt.Sprintf("mounts.unchecked: %s was not looked through for protected names that "+
				"appeared: %v", p.Target, err))
		}
	}
	c, err := l.End()
	f.Files.Changes = c
	switch {
	case err != nil:
		f.SideEffect = facts.Unknown
		slog.Warn("changes could not be recorded", "why", err)
		f.Warnings = append(f.Warnings, "changes.partial: not all changes below the mounts could be recorded")
	case c != nil && !aside && len(c.Written)+len(c.Renamed)+len(c.Removed) > 0:
		f.SideEffect = f.SideEffect.And(facts.Confirmed)
	}
}

func (p liveMount) takeOut(l Ledger, n int) (held []protect.Found, err error) {
	found, err := p.rules.Appeared(p.root, p.before)
	for _, f := range found {
		if !f.Deep() {
			err = errors.Join(err, l.Hold(n, f.Path))
		}
		if gone := protect.Remove(p.root, f.Path); gone != nil {
			err = errors.Join(err, gone)
			continue
		}
		held = append(held, f)
	}
	return held, err
}
