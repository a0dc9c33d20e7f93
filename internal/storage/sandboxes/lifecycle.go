// Package sandboxes keeps named sandboxes: a workspace, a template, limits and an owner that outlive
// the commands run in them, and waldo itself. Each command has a fresh sandbox over the same workspace. A
// command in the background is held by a waldo of its own, and is known, paused and ended by its file,
// as every other. Beside them it keeps snapshots of their files.
package sandboxes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"strings"
	"time"

	"waldo/internal/model/id"
	"waldo/internal/sandbox"
	"waldo/internal/storage/database"
	"waldo/internal/storage/workspace"
)

// State says which operations a sandbox allows.
type State string

// The states. The empty state allows nothing.
const (
	Ready   State = "ready"
	Paused  State = "paused"  // its commands are frozen, and no command starts
	Stopped State = "stopped" // paused for long: its disposable files are gone too
)

// Sandbox is the stored form of one named sandbox.
type Sandbox struct {
	ID        string         `json:"id"`    // "s_…"
	Name      string         `json:"name"`  // unique among its owner's
	Owner     string         `json:"owner"` // a principal
	Session   string         `json:"session"`
	Workspace string         `json:"workspace"` // "w_…"
	Template  string         `json:"template"`
	Digest    string         `json:"template_digest,omitempty"`
	Isolation string         `json:"isolation"`
	Limits    sandbox.Limits `json:"limits"`
	CPUFixed  bool           `json:"cpu_fixed,omitempty"` // its limit of processor time holds for longer commands too
	// as in 3000:8080, forwarded from this machine's loopback while a command runs
	Ports   []string      `json:"ports,omitempty"`
	Idle    time.Duration `json:"idle_ns"` // without a command, after which it is paused, and after as long again stopped
	State   State         `json:"state"`
	ByIdle  bool          `json:"by_idle,omitempty"` // paused because it was idle: a command wakes it
	Created time.Time     `json:"created"`
	Used    time.Time     `json:"used"`
	Runs    int           `json:"runs"`                // commands begun
	Last    string        `json:"last_call,omitempty"` // of the last of them; empty: its files were restored since
	Running int           `json:"running"`
}

// MaxRuns is how many commands may run in one sandbox at a time, each with processes of its own.
const MaxRuns = 8

// The reasons why a sandbox cannot be used.
var (
	ErrAbsent    = errors.New("no such sandbox")
	ErrNoPicture = errors.New("no such snapshot")
	ErrExists    = errors.New("there is a sandbox of that name")
	ErrPaused    = errors.New("the sandbox is paused")
	ErrStopped   = errors.New("the sandbox is stopped")
	ErrBusy      = errors.New("commands run in the sandbox")
	ErrChanged   = errors.New("its files were replaced meanwhile")
	ErrNoCommand = errors.New("no such command runs in the sandbox")
	ErrName      = errors.New("a name is 1 to 63 of a-z, 0-9, '-' and '_', and begins with a letter")
)

const bucket = "sandbox"

// Manager keeps the sandboxes of one state directory. Any number of processes may have one.
type Manager struct {
	store *database.Store
	now   func() time.Time
}

// New returns a manager over a store. now is the clock.
func New(s *database.Store, now func() time.Time) *Manager { return &Manager{store: s, now: now} }

// validName reports whether a name can be typed in a shell and is not an id.
func validName(s string) bool {
	return len(s) >= 1 && len(s) <= 63 && s[0] >= 'a' && s[0] <= 'z' &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") == "" && !strings.HasPrefix(s, "s_")
}

// key returns the database key of a sandbox. Names hold no slash, so keys are unique.
func key(owner, name string) string { return owner + "/" + name }

// Create keeps a new sandbox. Its owner, name, template, isolation, limits and idle time come from
// s; the rest is made here. Limits of zero are refused.
func (m *Manager) Create(ctx context.Context, s Sandbox) (Sandbox, error) {
	return m.create(ctx, s, nil)
}

// create stores a new sandbox. It replaces old, if given, provided that no command runs in it. The caller deletes the
// old one's files.
func (m *Manager) create(ctx context.Context, s Sandbox, old *Sandbox) (Sandbox, error) {
	if s.Owner == "" {
		return s, fmt.Errorf("sandbox: owner %q", s.Owner)
	}
	s.ID = id.New(id.Sandbox)
	if s.Name == "" {
		s.Name = "sandbox-" + s.ID[len(s.ID)-8:]
	}
	if !validName(s.Name) {
		return s, fmt.Errorf("sandbox %q: %w", s.Name, ErrName)
	}
	if s.Idle <= 0 || s.Limits.Wall <= 0 || s.Limits.Disk <= 0 {
		return s, fmt.Errorf("sandbox %s: idle time and limits must be above zero", s.Name)
	}
	s.Session, s.Workspace = id.New(id.Session), id.New(id.Workspace)
	s.Created = m.now().UTC().Truncate(time.Millisecond)
	s.Used, s.State, s.ByIdle, s.Runs, s.Running = s.Created, Ready, false, 0, 0
	done, err := m.mark(s.Workspace)
	if err != nil {
		return s, err
	}
	defer done()
	w, err := m.open(s)
	if err != nil {
		return s, err
	}
	if old != nil {
		_, err = m.change(ctx, *old, func(now *Sandbox) error {
			err := errors.Join(m.quiet(*now), same(*now, *old))
			*now = s
			return err
		})
	} else {
		err = m.store.Modify(ctx, bucket, key(s.Owner, s.Name), func(_ string, there bool) (string, bool, error) {
			if there {
				return "", false, fmt.Errorf("sandbox %s: %w", s.Name, ErrExists)
			}
			return encode(s), true, nil
		})
	}
	if err != nil {
		return s, errors.Join(err, w.Destroy())
	}
	return s, w.Close()
}

// quiet returns an error where commands run in a sandbox. Asked while its entry is being changed, none begins
// unseen: a command is announced before it asks the entry.
func (m *Manager) quiet(s Sandbox) error {
	if n := len(m.live(s.ID)); n > 0 {
		return fmt.Errorf("sandbox %s: %w: %d", s.Name, ErrBusy, n)
	}
	return nil
}

// same returns an error where a sandbox has other files than when it was looked at.
func same(now, looked Sandbox) error {
	if now.Workspace != looked.Workspace {
		return fmt.Errorf("sandbox %s: %w; try again", now.Name, ErrChanged)
	}
	return nil
}

func encode(s Sandbox) string {
	s.Running = 0 // counted, never kept
	b, err := json.Marshal(s)
	if err != nil {
		panic("lifecycle: a sandbox has no JSON form: " + err.Error()) // plain fields only
	}
	return string(b)
}

// ErrRow: a stored row is damaged, or somebody changed the database.
var ErrRow = errors.New("its row in the database is damaged; restore it, or the database, from a backup")

// decode reads the row of a key. Its ids become paths, so a row with others than waldo makes is refused.
func decode(at, text string) (Sandbox, error) {
	var s Sandbox
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return Sandbox{}, fmt.Errorf("sandbox: its stored form cannot be read: %w", err)
	}
	if at != key(s.Owner, s.Name) || !s.sound() {
		return Sandbox{}, fmt.Errorf("sandbox %q: %w", at, ErrRow)
	}
	return s, nil
}

// sound reports whether the ids and the name are of the forms that waldo makes.
func (s Sandbox) sound() bool {
	return validName(s.Name) && id.Is(id.Sandbox, s.ID) && id.Is(id.Session, s.Session) && id.Is(id.Workspace, s.Workspace)
}

// open opens the sandbox's workspace.
func (m *Manager) open(s Sandbox) (*workspace.Workspace, error) {
	return workspace.Open(m.store.Path("workspaces"), s.Workspace)
}

// Files opens the workspace of an owner's sandbox, until the caller calls done.
func (m *Manager) Files(
	ctx context.Context, owner, name string,
) (s Sandbox, w *workspace.Workspace, done func(), err error) {
	if s, err = m.Get(ctx, owner, name); err != nil {
		return s, nil, nil, err
	}
	unmark, err := m.mark(s.Workspace)
	if err != nil {
		return s, nil, nil, err
	}
	if w, err = m.open(s); err != nil {
		unmark()
		return s, nil, nil, err
	}
	return s, w, func() { _ = w.Close(); unmark() }, nil
}

// Get returns an owner's sandbox by its name or id. Another owner's is absent.
func (m *Manager) Get(ctx context.Context, owner, name string) (Sandbox, error) {
	if id.Is(id.Sandbox, name) {
		all, err := m.List(ctx, owner)
		for _, s := range all {
			if s.ID == name {
				return s, nil
			}
		}
		return Sandbox{}, errors.Join(err, fmt.Errorf("sandbox %s: %w", name, ErrAbsent))
	}
	text, ok, err := m.store.Get(ctx, bucket, key(owner, name))
	if err != nil {
		return Sandbox{}, err
	}
	if !ok || strings.Contains(name, "/") { // it would be another owner's
		return Sandbox{}, fmt.Errorf("sandbox %s: %w", name, ErrAbsent)
	}
	s, err := decode(key(owner, name), text)
	if err == nil {
		s.Running = len(m.live(s.ID))
	}
	return s, err
}

// List returns the sandboxes of an owner, oldest first. It leaves out those whose row is not one, and says so.
func (m *Manager) List(ctx context.Context, owner string) ([]Sandbox, error) {
	kept, err := m.store.List(ctx, bucket)
	if err != nil {
		return nil, err
	}
	out := []Sandbox{}
	for k, text := range kept {
		if k[:max(0, strings.LastIndexByte(k, '/'))] != owner {
			continue
		}
		s, err := decode(k, text)
		if err != nil {
			slog.Warn("a sandbox is left out of the list", "why", err)
			continue
		}
		s.Running = len(m.live(s.ID))
		out = append(out, s)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out, nil
}

// change updates the stored form of a sandbox, if it is still the same sandbox.
func (m *Manager) change(ctx context.Context, s Sandbox, f func(s *Sandbox) error) (Sandbox, error) {
	err := m.store.Modify(ctx, bucket, key(s.Owner, s.Name), func(old string, ok bool) (string, bool, error) {
		if !ok {
			return "", false, fmt.Errorf("sandbox %s: %w", s.Name, ErrAbsent)
		}
		now, err := decode(key(s.Owner, s.Name), old)
		if err != nil {
			return "", false, err
		}
		if now.ID != s.ID {
			return "", false, fmt.Errorf("sandbox %s: %w", s.Name, ErrAbsent)
		}
		if err := f(&now); err != nil {
			return "", false, err
		}
		s = now
		return encode(now), true, nil
	})
	return s, err
}

// Pause lets nothing new start in a sandbox and stops what runs in it where it stands. It returns
// when that is so, with how many commands stand still and how many could not be stopped.
func (m *Manager) Pause(ctx context.Context, owner, name string) (still, going int, err error) {
	s, err := m.Get(ctx, owner, name)
	if err != nil {
		return 0, 0, err
	}
	s, err = m.change(ctx, s, func(s *Sandbox) error {
		if s.State == Stopped {
			return fmt.Errorf("sandbox %s: %w", s.Name, ErrStopped)
		}
		s.State, s.ByIdle = Paused, false
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(look / 4) {
		still, going = 0, 0
		for _, c := range m.live(s.ID) {
			if c.State == frozen {
				still++
			} else {
				going++
			}
		}
		if going == 0 || time.Now().After(end) || ctx.Err() != nil {
			return still, going, ctx.Err()
		}
	}
}

// Resume lets a sandbox be used again, after a pause or a stop.
func (m *Manager) Resume(ctx context.Context, owner, name string) (Sandbox, error) {
	s, err := m.Get(ctx, owner, name)
	if err != nil {
		return s, err
	}
	return m.change(ctx, s, func(s *Sandbox) error {
		s.State, s.ByIdle, s.Used = Ready, false, m.now().UTC().Truncate(time.Millisecond)
		return nil
	})
}

// Workspaces returns the workspaces of all sandboxes of all owners.
func (m *Manager) Workspaces(ctx context.Context) (map[string]bool, error) {
	kept, err := m.store.List(ctx, bucket)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for k, text := range kept {
		s, err := decode(k, text)
		if err != nil {
			return nil, err
		}
		out[s.Workspace] = true
	}
	return out, nil
}

// Sweep pauses what was idle for its time, and stops what was for twice that. It returns what it
// changed. Nothing in which a command runs that somebody waits for is idle; commands in the background
// are paused with their sandbox, and end when it is stopped.
func (m *Manager) Sweep(ctx context.Context) ([]Sandbox, error) {
	errs := []error{m.sweepMarks(ctx), m.sweepRuns(ctx)}
	kept, err := m.store.List(ctx, bucket)
	if err != nil {
		return nil, err
	}
	var changed []Sandbox
	for k, text := range kept {
		s, err := decode(k, text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		was := s.State
		if s, err = m.rest(ctx, s); err != nil {
			if !errors.Is(err, ErrAbsent) {
				errs = append(errs, err)
			}
			continue
		}
		if s.State == was {
			continue
		}
		changed = append(changed, s)
	}
	return changed, errors.Join(errs...)
}

// rest pauses or stops a sandbox that was idle for long enough, and returns it as it is then.
func (m *Manager) rest(ctx context.Context, s Sandbox) (Sandbox, error) {
	if m.idle(s) == s.State || m.awake(s.ID) {
		return s, nil
	}
	s, err := m.change(ctx, s, func(s *Sandbox) error {
		was := s.State
		if s.State = m.idle(*s); s.State != was {
			s.ByIdle = s.State == Paused
		}
		return nil
	})
	if err == nil && s.State == Stopped {
		err = m.clear(s, workspace.Tmp)
	}
	return s, err
}

// idle returns the state that a sandbox has by now.
func (m *Manager) idle(s Sandbox) State {
	switch unused := m.now().Sub(s.Used); {
	case s.State == Stopped, unused >= 2*s.Idle:
		return Stopped
	case unused >= s.Idle:
		return Paused
	}
	return s.State
}

func (m *Manager) clear(s Sandbox, folders ...workspace.Folder) error {
	w, err := m.open(s)
	if err != nil {
		return err
	}
	for _, f := range folders {
		err = errors.Join(err, w.Clear(f))
	}
	return errors.Join(err, w.Close())
}

// Remove deletes a sandbox and its files. While commands run in it, only force does: they are ended.
func (m *Manager) Remove(ctx context.Context, owner, name string, force bool) error {
	s, err := m.Get(ctx, owner, name)
	if err != nil {
		return err
	}
	return m.remove(ctx, s, force)
}

// remove removes the sandbox that was looked at, and none that has taken its name since.
func (m *Manager) remove(ctx context.Context, s Sandbox, force bool) error {
	done, err := m.mark(s.Workspace)
	if err != nil {
		return err
	}
	defer done()
	err = m.store.Modify(ctx, bucket, key(s.Owner, s.Name), func(text string, ok bool) (string, bool, error) {
		now, err := decode(key(s.Owner, s.Name), text)
		switch {
		case !ok || err == nil && now.ID != s.ID:
			return "", false, fmt.Errorf("sandbox %s: %w", s.Name, ErrAbsent)
		case err == nil && !force:
			err = m.quiet(now)
		}
		return "", false, errors.Join(err, same(now, s))
	})
	if err != nil {
		return err
	}
	return m.destroy(s)
}

// destroy deletes the files of a removed sandbox after its commands have ended.
func (m *Manager) destroy(s Sandbox) error {
	for end := time.Now().Add(patience); len(m.live(s.ID)) > 0; time.Sleep(look / 4) {
		if time.Now().After(end) {
			return fmt.Errorf("sandbox %s: its commands do not end: %w; its files stay in workspace %s", s.Name,
				ErrBusy, s.Workspace)
		}
	}
	w, err := m.open(s)
	if err != nil {
		return err
	}
	return errors.Join(w.Destroy(), m.forget(s.ID))
}

// Reset gives a sandbox to an owner ("os:1001") as if it were new: other files, another session. Template, limits and
// name stay. It refuses a sandbox in which commands run. After an error or a crash the old or the new sandbox exists.
func (m *Manager) Reset(ctx context.Context, owner, name, next string) (Sandbox, error) {
	s, err := m.Get(ctx, owner, name)
	if err != nil {
		return s, err
	}
	if err := m.quiet(s); err != nil {
		return s, err
	}
	fresh := s
	if fresh.Owner = next; next != s.Owner {
		if fresh, err = m.Create(ctx, fresh); err != nil {
			return s, err
		}
		return fresh, m.Remove(ctx, owner, s.Name, false)
	}
	done, err := m.mark(s.Workspace)
	if err != nil {
		return s, err
	}
	defer done()
	if fresh, err = m.create(ctx, fresh, &s); err != nil {
		return s, err
	}
	return fresh, m.destroy(s)
}
