// Package tasks holds the calls that run as tasks of a client: their states, questions and results. It knows both forms
// of MCP: basic/utilities/tasks of 2025-11-25, and the extension io.modelcontextprotocol/tasks of 2026-07-28. The
// package mcpserver carries out the calls.
//
// A task belongs to one session of one principal. Its id is random. Its life, and the number and bytes of all tasks,
// are bounded. Tasks live in memory: they end with waldo.
package tasks

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// Names of the protocol.
const (
	Extension = "io.modelcontextprotocol/tasks"        // in capabilities.extensions, 2026-07-28
	Related   = "io.modelcontextprotocol/related-task" // in _meta, 2025-11-25
)

// Limits bound all tasks. A limit of zero is replaced by that of DefaultLimits.
type Limits struct {
	All, Each int           // tasks of all clients, and of one principal
	Bytes     int64         // of requests and results of all tasks; one principal has a quarter of it
	Life      time.Duration // of one task, from its creation
}

// DefaultLimits are for one machine.
func DefaultLimits() Limits { return Limits{All: 1000, Each: 100, Bytes: 64 << 20, Life: time.Hour} }

// shortest is the least life of a task.
const shortest = 10 * time.Second

// pollEvery is how often a client should ask for a task's state.
const pollEvery = time.Second

// Reasons for refusing a task. The client sees them.
var (
	ErrEach = errors.New("this principal has too many tasks (gateway.limits.tasks_each): fetch their results, " +
		"or cancel some")
	ErrAll   = errors.New("too many tasks are open (gateway.limits.tasks); ask again later")
	ErrBytes = errors.New("the tasks of this principal hold too many bytes: fetch their results, or cancel some")
)

// Owner is who made a task. Session is compared by ==.
type Owner struct {
	Principal call.Principal
	Session   any
}

// Store holds the tasks of all sessions.
type Store struct {
	limits  Limits
	changed func(t *Task)
	running sync.WaitGroup

	mu    sync.Mutex
	tasks map[string]*Task
	made  int // how many tasks there ever were
	bytes int64
	each  map[call.Principal]*share
}

// share is the part of the limits that one principal uses.
type share struct {
	tasks int
	bytes int64
}

// New makes a store. It calls changed, which must not block, after each change of a task.
func New(l Limits, changed func(t *Task)) *Store {
	d := DefaultLimits()
	if l.All <= 0 {
		l.All = d.All
	}
	if l.Each <= 0 {
		l.Each = d.Each
	}
	if l.Bytes <= 0 {
		l.Bytes = d.Bytes
	}
	if l.Life <= 0 {
		l.Life = d.Life
	}
	return &Store{limits: l, changed: changed, tasks: map[string]*Task{}, each: map[call.Principal]*share{}}
}

// Create makes a task for a call whose request takes size bytes. The task lives for the wanted time within the limits,
// or as long as possible if that is 0; then cancel is called, and the task is forgotten. The caller calls Finish once.
func (s *Store) Create(o Owner, wanted time.Duration, size int64, legacy bool, cancel func()) (*Task, error) {
	life := s.limits.Life
	if wanted > 0 {
		life = min(life, max(wanted, shortest))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.room(o.Principal, 1, size); err != nil {
		return nil, err
	}
	now := time.Now()
	s.made++
	t := &Task{
		ID: "t_" + rand.Text(), Legacy: legacy, store: s, owner: o, number: s.made, life: life, created: now, updated: now,
		status: Working, size: size, questions: map[string]*pending{}, over: make(chan struct{}), wake: make(chan struct{}),
		cancel: cancel,
	}
	s.tasks[t.ID] = t
	s.count(t, 1, size)
	t.expire = time.AfterFunc(life, func() { s.remove(t) })
	s.running.Add(1)
	return t, nil
}

// room makes room for a task or bytes more of a principal: ended tasks of the same principal whose result the client
// has, the oldest first, make room. The lock is held.
func (s *Store) room(who call.Principal, tasks int, size int64) error {
	for {
		own := s.each[who]
		if own == nil {
			own = &share{}
		}
		var err error
		switch {
		case tasks > 0 && own.tasks >= s.limits.Each:
			err = ErrEach
		case tasks > 0 && len(s.tasks) >= s.limits.All:
			err = ErrAll
		case own.bytes+size > s.limits.Bytes/4 || s.bytes+size > s.limits.Bytes:
			err = ErrBytes
		default:
			return nil
		}
		var old *Task
		for _, t := range s.tasks {
			if t.owner.Principal == who && t.ended() && t.fetched && (old == nil || t.number < old.number) {
				old = t
			}
		}
		if old == nil {
			return err
		}
		s.forget(old)
	}
}

// count adds tasks and bytes to the use of a task's principal. The caller holds the lock.
func (s *Store) count(t *Task, tasks int, size int64) {
	own := s.each[t.owner.Principal]
	if own == nil {
		own = &share{}
		s.each[t.owner.Principal] = own
	}
	own.tasks += tasks
	own.bytes += size
	s.bytes += size
	if own.tasks == 0 {
		delete(s.each, t.owner.Principal)
	}
}

// forget takes a task out of the store. The lock is held.
func (s *Store) forget(t *Task) {
	if s.tasks[t.ID] != t {
		return
	}
	delete(s.tasks, t.ID)
	t.expire.Stop()
	s.count(t, -1, -t.size)
	t.gone, t.result = true, nil
	if !t.ended() {
		t.status = Cancelled
	}
	t.tell()
}

// remove cancels a task and forgets it.
func (s *Store) remove(t *Task) {
	s.mu.Lock()
	s.forget(t)
	s.mu.Unlock()
	t.cancel()
}

// Get returns a task of its owner; nil: the owner has none of that id, even if another has.
func (s *Store) Get(o Owner, id string) *Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tasks[id]; t != nil && t.owner == o {
		return t
	}
	return nil
}

// List returns at most n tasks of an owner that were made after the given number, the oldest first, and the number
// after which the next ones come; 0: there are no more.
func (s *Store) List(o Owner, after, n int) (page []*Task, next int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if t.owner == o && t.number > after {
			page = append(page, t)
		}
	}
	slices.SortFunc(page, func(a, b *Task) int { return a.number - b.number })
	if len(page) > n {
		return page[:n], page[n-1].number
	}
	return page, 0
}

// Drop cancels and forgets all tasks of a session.
func (s *Store) Drop(session any) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.tasks))
	s.mu.Unlock()
	for _, t := range all {
		if t.owner.Session == session {
			s.remove(t)
		}
	}
}

// Settle waits until every call has ended, for at most the given time.
func (s *Store) Settle(most time.Duration) {
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(most):
	}
}

// Status is the state of a task.
type Status string

// The states of a task.
const (
	Working       Status = "working"
	InputRequired Status = "input_required"
	Completed     Status = "completed"
	Failed        Status = "failed"
	Cancelled     Status = "cancelled"
)

// Task is one call that runs as a task.
type Task struct {
	ID     string // unguessable
	Legacy bool   // made by a request of 2025-11-25

	store   *Store
	owner   Owner
	number  int // in the order of creation
	life    time.Duration
	created time.Time
	cancel  func()
	expire  *time.Timer
	over    chan struct{} // closed when the call has ended

	// Held by store.mu.
	status    Status
	message   string
	updated   time.Time
	questions map[string]*pending
	asked     int // how many questions there ever were
	size      int64
	result    map[string]any
	fault     *jsonrpc.Error
	bad       bool          // the result says that it is an error
	fetched   bool          // the client has the end
	gone      bool          // forgotten
	wake      chan struct{} // closed at the next change
}

// Owner returns who made the task.
func (t *Task) Owner() Owner { return t.owner }

// ended reports whether the task is in a last state. The lock is held.
func (t *Task) ended() bool { return t.status != Working && t.status != InputRequired }

// tell notes a change. The lock is held.
func (t *Task) tell() {
	t.updated = time.Now()
	close(t.wake)
	t.wake = make(chan struct{})
}

// change changes a task under the lock, and reports the change. do returns whether there was one.
func (t *Task) change(do func() bool) bool {
	t.store.mu.Lock()
	did := !t.gone && do()
	if did {
		t.tell()
	}
	t.store.mu.Unlock()
	if did && t.store.changed != nil {
		t.store.changed(t)
	}
	return did
}

// Say sets the message that goes with the state.
func (t *Task) Say(message string) {
	t.change(func() bool {
		if t.ended() {
			return false
		}
		t.message = message
		return true
	})
}

// Cancel cancels a task; false: it has ended before. The state is final at once. The call ends soon after.
func (t *Task) Cancel() bool {
	did := t.change(func() bool {
		if t.ended() {
			return false
		}
		t.status, t.message = Cancelled, "the client cancelled the task"
		return true
	})
	if did {
		t.cancel()
	}
	return did
}

// Finish takes the end of the call. A result that exceeds the limits is replaced by a text that says so.
func (t *Task) Finish(result map[string]any, err error) {
	defer t.store.running.Done()
	defer close(t.over)
	fault, _ := errors.AsType[*jsonrpc.Error](err)
	if err != nil && fault == nil {
		fault = jsonrpc.Errorf(jsonrpc.CodeInternal, "the request failed")
	}
	size := sizeOf(result)
	t.change(func() bool {
		s := t.store
		s.count(t, 0, -t.size)
		t.size = 0
		if s.room(t.owner.Principal, 0, size) != nil {
			result = tooLarge(result, size)
			size = sizeOf(result)
		}
		t.size = size
		s.count(t, 0, size)
		t.result, t.fault, t.questions = result, fault, nil
		t.bad, _ = result["isError"].(bool)
		if t.status == Cancelled {
			t.message = "the client cancelled the task: " + brief(result)
			return true
		}
		t.status, t.message = Completed, ""
		switch {
		case fault != nil:
			t.status, t.message = Failed, fault.Message
		case t.bad:
			t.message = brief(result)
		}
		return true
	})
}

// Over is closed when the call has ended.
func (t *Task) Over() <-chan struct{} { return t.over }

// End returns what the call returned, once Over is closed; false: the task was forgotten meanwhile.
func (t *Task) End() (result map[string]any, fault *jsonrpc.Error, ok bool) {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if t.gone {
		return nil, nil, false
	}
	t.fetched = true
	return t.result, t.fault, true
}

// pending is one question that the client has not answered.
type pending struct {
	call.Question
	key    string
	number int
	name   string // of the asker
	of     *round
	out    bool // it is on its way to the client
}

// round are questions that were asked together.
type round struct {
	left    int
	answers map[string]strictjson.Value
	err     error
	done    chan struct{} // closed at the end
}

// end ends a round, with an error unless all answers are there. The lock is held.
func (r *round) end(err error) {
	select {
	case <-r.done:
	default:
		r.err = err
		close(r.done)
	}
}

// Ask puts questions to the client and waits for all answers. The task is in the state input_required meanwhile.
func (t *Task) Ask(ctx context.Context, asked map[string]call.Question) (map[string]strictjson.Value, error) {
	r := &round{left: len(asked), answers: map[string]strictjson.Value{}, done: make(chan struct{})}
	open := t.change(func() bool {
		if t.ended() {
			return false
		}
		for _, name := range slices.Sorted(maps.Keys(asked)) {
			t.asked++ // no key is used twice
			key := "q" + strconv.Itoa(t.asked)
			t.questions[key] = &pending{Question: asked[name], key: key, number: t.asked, name: name, of: r}
		}
		t.status = InputRequired
		return true
	})
	if !open {
		return nil, errors.New("the task has ended")
	}
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	t.store.mu.Lock()
	r.end(ctx.Err())
	t.store.mu.Unlock()
	t.change(func() bool {
		maps.DeleteFunc(t.questions, func(_ string, q *pending) bool { return q.of == r })
		if t.status != InputRequired || len(t.questions) > 0 {
			return false
		}
		t.status = Working
		return true
	})
	if r.err != nil { // it no longer changes
		return nil, r.err
	}
	return r.answers, nil
}

// Answer takes answers by the keys of their questions. It ignores other keys, and answers that are not objects.
func (t *Task) Answer(given map[string]strictjson.Value) {
	t.change(func() bool {
		did := false
		for key, v := range given {
			q := t.questions[key]
			if _, ok := v.Members(); q == nil || !ok {
				continue
			}
			delete(t.questions, key)
			q.of.answers[q.name] = v
			if q.of.left--; q.of.left == 0 {
				q.of.end(nil)
			}
			did = true
		}
		return did
	})
}

// refuse takes the client's error in place of an answer.
func (t *Task) refuse(q *pending, err error) {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if t.questions[q.key] == q {
		q.of.end(err)
	}
}

// Deliver puts the questions of a task to a legacy client by ask, one after the other, until the call has ended. An
// error of ask that is a *call.Fault is the client's answer; after any other Deliver returns it, and the question
// remains.
func (t *Task) Deliver(
	ctx context.Context, ask func(ctx context.Context, q call.Question) (strictjson.Value, error),
) error {
	for {
		t.store.mu.Lock()
		var q *pending
		for _, o := range t.questions {
			if !o.out && (q == nil || o.number < q.number) {
				q = o
			}
		}
		if q != nil {
			q.out = true
		}
		wake := t.wake
		t.store.mu.Unlock()
		if q == nil {
			select {
			case <-t.over:
				return nil
			case <-wake:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := t.deliver(ctx, q, ask); err != nil {
			return err
		}
	}
}

func (t *Task) deliver(
	ctx context.Context, q *pending, ask func(ctx context.Context, q call.Question) (strictjson.Value, error),
) error {
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // the question can be settled elsewhere
		select {
		case <-q.of.done:
		case <-t.over:
		case <-short.Done():
		}
		cancel()
	}()
	v, err := ask(short, q.Question)
	if fault, ok := errors.AsType[*call.Fault](err); ok {
		t.refuse(q, fault)
		return nil
	}
	if err == nil {
		t.Answer(map[string]strictjson.Value{q.key: v})
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	q.out = false // another request for the result puts it again
	if t.questions[q.key] != q {
		return nil
	}
	return err
}
