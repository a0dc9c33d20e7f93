package sandboxes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"waldo/internal/model/id"
	"waldo/internal/sandbox"
	"waldo/internal/storage/safefile"
)

// look is how often a command looks whether its sandbox was paused or removed.
const look = 100 * time.Millisecond

// patience is how long Pause and Remove wait for commands to stand still or end.
const patience = 15 * time.Second

// States that a command writes into its file. It holds the file locked while it runs.
const (
	running = "running"
	frozen  = "paused"
	deaf    = "cannot be paused"
)

// Suffixes of the names of a command's files. A background command outlives the process that started it and does not
// keep the sandbox awake.
const (
	front = ".live"
	back  = ".back" + front
	stop  = ".stop" // somebody wants its end
)

// Command is one command that runs in a sandbox.
type Command struct {
	Call       string `json:"call_id"`
	State      string `json:"state"` // "running", "paused", "cannot be paused"
	Background bool   `json:"background"`
	Note
}

// Note describes a command.
type Note struct {
	Line    string        `json:"command,omitempty"` // its words, as it was asked for
	Started time.Time     `json:"started"`
	PID     int           `json:"pid,omitempty"` // of its sandbox's first process, where that can be reached
	CPU     time.Duration `json:"cpu_ns"`        // that it has used, a second ago at most; 0: nothing counts it
}

// Run is one command that runs in a sandbox, known to every process with this state directory.
type Run struct {
	Sandbox    Sandbox
	m          *Manager
	file       *os.File
	call       string
	background bool
	unmark     func()

	mu   sync.Mutex
	word string // its own state
	note Note
}

// Begin lets a command run in a sandbox, or says why not. A sandbox that was paused because it was
// idle wakes. call names the command; the caller ends the Run.
func (m *Manager) Begin(ctx context.Context, owner, name, call string, background bool) (*Run, error) {
	s, err := m.Get(ctx, owner, name)
	if err != nil {
		return nil, err
	}
	r := &Run{
		m: m, call: call, background: background, word: running, note: Note{Started: m.now().UTC().Truncate(time.Second)},
	}
	if r.file, err = m.announce(s.ID, call+r.end()); err != nil {
		return nil, err
	}
	// Announced first and allowed second, so that a pause or a removal sees it or forbids it.
	r.Sandbox, err = m.change(ctx, s, func(s *Sandbox) error {
		switch {
		case len(m.live(s.ID)) > MaxRuns: // this one too
			return fmt.Errorf("sandbox %s: %w: %d, which is the most", s.Name, ErrBusy, MaxRuns)
		case s.State == Ready, s.State == Paused && s.ByIdle:
		case s.State == Paused:
			return fmt.Errorf("sandbox %s: %w", s.Name, ErrPaused)
		default:
			return fmt.Errorf("sandbox %s: %w", s.Name, ErrStopped)
		}
		s.State, s.ByIdle, s.Runs, s.Last, s.Used = Ready, false, s.Runs+1, call, m.now().UTC().Truncate(time.Millisecond)
		return nil
	})
	if err == nil {
		r.unmark, err = m.mark(r.Sandbox.Workspace) // so that its files go when the sandbox is gone
	}
	if err != nil {
		return nil, errors.Join(err, r.leave())
	}
	return r, nil
}

// end is how the name of the command's file ends.
func (r *Run) end() string {
	if r.background {
		return back
	}
	return front
}

// announce makes the file of a command and locks it.
func (m *Manager) announce(sandboxID, name string) (*os.File, error) {
	dir := m.store.Path("run", sandboxID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, name+".new"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	ok, err := safefile.TryLock(f, false)
	if err == nil && !ok {
		err = fmt.Errorf("%s is locked", f.Name())
	}
	if err == nil {
		_, err = f.WriteString(running)
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	return f, nil
}

// live returns the commands that run in a sandbox. Files that no process holds are of commands that
// ended with their waldo, and are removed.
func (m *Manager) live(sandboxID string) []Command {
	names, err := filepath.Glob(filepath.Join(m.store.Path("run", sandboxID), "*"+front))
	if err != nil {
		return nil
	}
	var commands []Command
	for _, n := range names {
		f, err := os.OpenFile(n, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if ok, err := safefile.TryLock(f, false); err == nil && ok {
			_ = os.Remove(n)
		} else if b, err := safefile.Read(n); err == nil {
			call, background := strings.CutSuffix(filepath.Base(n), back)
			state, note, _ := strings.Cut(string(b), "\n")
			c := Command{Call: strings.TrimSuffix(call, front), State: state, Background: background}
			_ = json.Unmarshal([]byte(note), &c.Note) // a command that has only begun has none
			commands = append(commands, c)
		}
		_ = f.Close()
	}
	return commands
}

// awake reports whether a command runs that somebody waits for.
func (m *Manager) awake(sandboxID string) bool {
	return slices.ContainsFunc(m.live(sandboxID), func(c Command) bool { return !c.Background })
}

// Commands returns the commands that run in an owner's sandbox.
func (m *Manager) Commands(ctx context.Context, owner, name string) ([]Command, error) {
	s, err := m.Get(ctx, owner, name)
	if err != nil {
		return nil, err
	}
	return append([]Command{}, m.live(s.ID)...), nil
}

// Kill ends a command that runs in an owner's sandbox, and returns when it has ended.
func (m *Manager) Kill(ctx context.Context, owner, name, call string) error {
	s, err := m.Get(ctx, owner, name)
	if err != nil {
		return err
	}
	lives := func() bool {
		return slices.ContainsFunc(m.live(s.ID), func(c Command) bool { return c.Call == call })
	}
	if !lives() {
		return fmt.Errorf("sandbox %s: %w: %s", s.Name, ErrNoCommand, call)
	}
	wanted := m.store.Path("run", s.ID, call+stop)
	if err := os.WriteFile(wanted, nil, 0o600); err != nil {
		return err
	}
	defer os.Remove(wanted)
	for end := time.Now().Add(patience); lives(); time.Sleep(look / 4) {
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("sandbox %s: command %s does not end: %w", s.Name, call, ErrBusy)
		}
	}
	return nil
}

// OutputOf returns the files with the output of a background command. They stay until the sandbox is removed.
func (m *Manager) OutputOf(ctx context.Context, owner, name, call string) (stdout, stderr string, err error) {
	s, err := m.Get(ctx, owner, name)
	if err != nil {
		return "", "", err
	}
	if !id.Is(id.Call, call) {
		return "", "", fmt.Errorf("sandbox %s: %w: %s", s.Name, ErrNoCommand, call)
	}
	at := m.store.Path("run", s.ID, call)
	return at + ".out", at + ".err", os.MkdirAll(filepath.Dir(at), 0o700)
}

// Shared is the folder by which the commands of a sandbox find one another.
func (m *Manager) Shared(s Sandbox) string { return m.store.Path("run", s.ID) }

func (m *Manager) forget(sandboxID string) error { return os.RemoveAll(m.store.Path("run", sandboxID)) }

// maxLine is how much of a command's words is shown.
const maxLine = 2 << 10

// Tell notes the words of the command.
func (r *Run) Tell(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.note.Line = line; len(line) > maxLine {
		r.note.Line = strings.ToValidUTF8(line[:maxLine], "") + "…"
	}
	r.write()
}

// say changes what the command says of itself.
func (r *Run) say(word string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.word = word
	r.write()
}

// spent notes the processor time of the command.
func (r *Run) spent(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note.CPU = d
	r.write()
}

// write brings the command's file up to date. One that reads it meanwhile sees its state first.
func (r *Run) write() {
	text, err := json.Marshal(r.note)
	if err != nil {
		panic("lifecycle: a note has no JSON form: " + err.Error()) // plain fields only
	}
	text = append([]byte(r.word+"\n"), text...)
	_, _ = r.file.WriteAt(text, 0)
	_ = r.file.Truncate(int64(len(text)))
}

// leave takes the command off the list.
func (r *Run) leave() error {
	name := strings.TrimSuffix(r.file.Name(), ".new")
	return errors.Join(os.Remove(name), r.file.Close())
}

// Watch holds a running sandbox to its sandbox's state until over is called: it is paused and resumed with it,
// and end is called when the sandbox is gone.
func (r *Run) Watch(sb sandbox.Sandbox, end func()) (over func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(look)
		defer tick.Stop()
		state := Ready
		can := sb.Abilities()
		spent := can.Spent
		if can.PID != nil {
			r.mu.Lock()
			r.note.PID = can.PID()
			r.write()
			r.mu.Unlock()
		}
		for looks := 0; ; looks++ {
			select {
			case <-done:
				return
			case <-tick.C:
				state = r.follow(sb, state, end)
			}
			if spent != nil && looks%10 == 0 {
				r.spent(spent().CPU)
			}
		}
	}()
	return func() {
		close(done)
		<-gone
		r.say(running) // its files are not stored yet
	}
}

// follow brings a running sandbox into the state that its sandbox has now, and returns that state.
func (r *Run) follow(sb sandbox.Sandbox, was State, end func()) State {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := r.m.Get(ctx, r.Sandbox.Owner, r.Sandbox.Name)
	if _, wanted := os.Lstat(r.m.store.Path("run", r.Sandbox.ID, r.call+stop)); wanted == nil ||
		errors.Is(err, ErrAbsent) || err == nil && s.ID != r.Sandbox.ID {
		end()
		return was
	}
	if err == nil && r.background { // no other process checks while it runs
		s, err = r.m.rest(ctx, s)
	}
	if err == nil && s.State == Stopped && r.background {
		end()
		return was
	}
	if err != nil || (s.State == Ready) == (was == Ready) {
		return was // unknown now: the next call checks again
	}
	can := sb.Abilities()
	switch {
	case s.State == Ready:
		if can.Resume != nil {
			_ = can.Resume()
		}
		r.say(running)
	case can.Pause != nil && can.Pause() == nil:
		r.say(frozen)
	default:
		r.say(deaf)
	}
	return s.State
}

// End takes the command off the list and notes when it ended.
func (r *Run) End(ctx context.Context) error {
	_, err := r.m.change(ctx, r.Sandbox, func(s *Sandbox) error {
		s.Used = r.m.now().UTC().Truncate(time.Millisecond)
		return nil
	})
	if errors.Is(err, ErrAbsent) {
		err = nil
	}
	r.unmark()
	return errors.Join(err, r.leave())
}
