// Package control carries the orders of the operator to every waldo of a state directory: reload, stop, take a lock.
package control

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"waldo/internal/app/fault"
	"waldo/internal/core/audit"
	"waldo/internal/core/session"
	"waldo/internal/model/id"
	"waldo/internal/storage/database"
	"waldo/internal/storage/presence"
)

// Orders of the operator reach every waldo of a state directory through its store, without a daemon. Each waldo polls
// for orders, carries them out and stores a reply.
const (
	Bucket     = "orders"  // reload, and "stop NAME" while it is in force
	repliesFor = "replies" // "ORDER ASKER": the reply of one waldo to an order
	Reload     = "reload"
	Stop       = "stop "
	released   = "release" // a stop was cancelled
	Lock       = "lock"    // every waldo serve of a lock takes what was just accepted
	Revoke     = "revoke"  // a delegation has ended, by the log
	// Token begins the principal of a token; its name alone means it too.
	Token     = "token:"
	Everybody = "*"

	every       = 250 * time.Millisecond
	repliesTime = 15 * time.Second // a waldo without a reply by then is reported
)

// The record kinds of orders in the log.
const (
	KindReload = "reload"
	KindStop   = "stop"
)

// Order is the stored form of an order.
type Order struct {
	ID   string    `json:"id"`
	At   time.Time `json:"at"`
	File string    `json:"file,omitempty"` // of an order about a lock
	Lock string    `json:"lock,omitempty"` // its digest
}

// orderedAt returns the time of an order.
func orderedAt(row string) time.Time {
	var o Order
	_ = json.Unmarshal([]byte(row), &o) // an unreadable order counts as old
	return o.At
}

// Reply is the reply of one waldo to an order.
type Reply struct {
	PID    int      `json:"pid"`
	Serves bool     `json:"serves,omitempty"` // it is a waldo serve
	Said   string   `json:"said,omitempty"`   // after a reload: the configuration in force
	Kept   string   `json:"kept,omitempty"`   // why the earlier configuration stays in force
	Ended  []string `json:"ended,omitempty"`  // sessions
	Calls  int      `json:"calls,omitempty"`  // that were under way and are cancelled
}

// Options name the parts of a process that orders change.
type Options struct {
	Store    *database.Store
	Log      *audit.Log
	Sessions *session.Manager
	By       string                                       // the principal that is recorded
	Asker    string                                       // names this process; empty: it cannot reply
	Ended    func(n session.Info, begin func(end func())) // ends what a stopped session has beside its calls
	Relock   func(ctx context.Context, o Order) Reply     // takes the lock that an order names
	Revoked  func(ctx context.Context) int                // ends the calls of delegations that have ended
	Reloads  <-chan os.Signal                             // requests a reload; nil: no signal does
}

// Attendant carries out the orders in one waldo.
type Attendant struct {
	o    Options
	seen map[string]string
	end  context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex                               // one reload at a time
	reload func(ctx context.Context, o Order) Reply // nil: this waldo cannot reload
}

// Attend applies the orders in force, then polls for new ones until Close.
func Attend(ctx context.Context, o Options) (*Attendant, error) {
	rows, err := o.Store.List(ctx, Bucket)
	if err != nil {
		return nil, err
	}
	o.Sessions.Stop(stoppedBy(rows))
	maps.DeleteFunc(rows, func(_, row string) bool { // a recent order can still wait for our reply
		return time.Since(orderedAt(row)) < repliesTime
	})
	a := &Attendant{o: o, seen: rows}
	ctx, a.end = context.WithCancel(context.WithoutCancel(ctx))
	a.work.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-o.Reloads:
				a.work.Go(func() { a.Renew(ctx, Order{}) })
			case <-t.C:
				a.look(ctx)
			}
		}
	})
	return a, nil
}

// TakeReloads lets this waldo reload: it is a waldo serve. A request of this process has the zero Order.
func (a *Attendant) TakeReloads(reload func(ctx context.Context, o Order) Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reload = reload
}

// Close stops polling and waits for the work on orders.
func (a *Attendant) Close() {
	a.end()
	a.work.Wait()
}

// look carries out new orders.
func (a *Attendant) look(ctx context.Context) {
	rows, err := a.o.Store.List(ctx, Bucket)
	if err != nil {
		if ctx.Err() == nil {
			slog.Warn("the operator's orders cannot be read", "why", err)
		}
		return
	}
	if maps.Equal(rows, a.seen) {
		return
	}
	ended := a.o.Sessions.Stop(stoppedBy(rows))
	a.over(ctx, ended)
	for name, row := range rows {
		var o Order
		if a.seen[name] == row || json.Unmarshal([]byte(row), &o) != nil {
			continue
		}
		if name == Lock {
			a.work.Go(func() { a.say(ctx, o, a.Relock(ctx, o)) })
			continue
		}
		if name == Revoke {
			a.say(ctx, o, Reply{PID: os.Getpid(), Serves: a.serves(), Calls: a.o.Revoked(ctx)})
			continue
		}
		stop, is := strings.CutPrefix(name, Stop)
		if !is && name != released {
			a.work.Go(func() { a.say(ctx, o, a.Renew(ctx, o)) }) // fetching secrets can be slow, and a stop must not wait
			continue
		}
		r := Reply{PID: os.Getpid(), Serves: a.serves()}
		for _, n := range ended {
			if named(stop, n) {
				r.Ended = append(r.Ended, string(n.ID))
			}
		}
		a.say(ctx, o, r)
	}
	a.seen = rows
}

func (a *Attendant) serves() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reload != nil
}

// Renew reloads the configuration if this waldo can reload.
func (a *Attendant) Renew(ctx context.Context, o Order) Reply {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reload == nil {
		return Reply{PID: os.Getpid()}
	}
	return a.reload(ctx, o)
}

// Relock takes a lock if this waldo can reload.
func (a *Attendant) Relock(ctx context.Context, o Order) Reply {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reload == nil {
		return Reply{PID: os.Getpid()}
	}
	return a.o.Relock(ctx, o)
}

// over ends the other resources of stopped sessions.
func (a *Attendant) over(ctx context.Context, ended []session.Info) {
	for _, n := range ended {
		a.o.Ended(n, a.work.Go)
		Record(ctx, a.o.Log, KindStop, map[string]any{"name": string(n.Principal), "session": n.ID, "by": a.o.By})
	}
}

func (a *Attendant) say(ctx context.Context, o Order, r Reply) {
	b, err := json.Marshal(r)
	if err == nil && a.o.Asker != "" {
		err = a.o.Store.Put(ctx, repliesFor, o.ID+" "+a.o.Asker, string(b))
	}
	if err != nil {
		slog.Warn("an order was not answered", "order", o.ID, "why", err)
	}
}

// Record writes the result of an order to the log, and a failure to do so to the process's own log.
func Record(ctx context.Context, log *audit.Log, kind string, body any) {
	if err := RecordSync(ctx, log, kind, body); err != nil {
		slog.Warn("an order could not be recorded", "order", kind, "why", err)
	}
}

// RecordSync writes an order to the log.
func RecordSync(ctx context.Context, log *audit.Log, kind string, body any) error {
	b, err := json.Marshal(body)
	if err == nil {
		_, err = log.Append(context.WithoutCancel(ctx), kind, b, true)
	}
	return err
}

// named reports whether a name identifies a session: its principal, the principal without "token:", or its id.
func named(name string, n session.Info) bool {
	return name == Everybody || name == string(n.Principal) || Token+name == string(n.Principal) ||
		n.ID != "" && name == string(n.ID)
}

// stoppedBy returns a predicate for the sessions that the orders stop.
func stoppedBy(rows map[string]string) func(session.Info) bool {
	var names []string
	for name := range rows {
		if name, is := strings.CutPrefix(name, Stop); is {
			names = append(names, name)
		}
	}
	return func(n session.Info) bool {
		for _, name := range names {
			if named(name, n) {
				return true
			}
		}
		return false
	}
}

// Stopped returns a predicate for the sessions that the orders in force stop.
func Stopped(ctx context.Context, s *database.Store) (func(session.Info) bool, error) {
	rows, err := s.List(ctx, Bucket)
	return stoppedBy(rows), err
}

// Put stores an order. It returns the replies of every running waldo, and how many sent none in time.
func Put(ctx context.Context, s *database.Store, name string, o Order) (replies []Reply, silent int, err error) {
	o.ID, o.At = id.New("o_"), time.Now().UTC()
	b, err := json.Marshal(o)
	if err != nil {
		return nil, 0, err
	}
	if err := s.Put(ctx, Bucket, name, string(b)); err != nil {
		return nil, 0, err
	}
	if err := forgetReplies(ctx, s); err != nil {
		return nil, 0, err
	}
	wanted := map[string]bool{}
	gone := presence.Gone(s)
	all, err := presence.All(ctx, s)
	if err != nil {
		return nil, 0, err
	}
	for _, name := range all {
		wanted[name] = true
	}
	for until := time.Now().Add(repliesTime); ; time.Sleep(every / 5) {
		over := map[string]bool{} // looked at before the replies: one that replied and ended since is not left out
		for from := range wanted {
			over[from] = gone(from)
		}
		rows, err := s.List(ctx, repliesFor)
		if err != nil {
			return replies, len(wanted), err
		}
		for row, text := range rows {
			from, is := strings.CutPrefix(row, o.ID+" ")
			var r Reply
			if !is || !wanted[from] || json.Unmarshal([]byte(text), &r) != nil {
				continue
			}
			delete(wanted, from)
			replies = append(replies, r)
			if err := s.Delete(ctx, repliesFor, row); err != nil {
				return replies, len(wanted), err
			}
		}
		maps.DeleteFunc(wanted, func(from string, _ bool) bool { return over[from] })
		if len(wanted) == 0 || time.Now().After(until) || ctx.Err() != nil {
			return replies, len(wanted), ctx.Err()
		}
	}
}

// forgetReplies deletes the replies to orders that no longer exist.
func forgetReplies(ctx context.Context, s *database.Store) error {
	orders, err := s.List(ctx, Bucket)
	if err != nil {
		return err
	}
	stand := map[string]bool{}
	for _, row := range orders {
		var o Order
		if json.Unmarshal([]byte(row), &o) == nil {
			stand[o.ID] = true
		}
	}
	rows, err := s.List(ctx, repliesFor)
	if err != nil {
		return err
	}
	for row := range rows {
		if of, _, _ := strings.Cut(row, " "); !stand[of] {
			if err := s.Delete(ctx, repliesFor, row); err != nil {
				return err
			}
		}
	}
	return nil
}

// Who names the process of a reply.
func (r Reply) Who() string {
	if r.Serves {
		return fmt.Sprintf("waldo serve (process %d)", r.PID)
	}
	return fmt.Sprintf("waldo (process %d)", r.PID)
}

// InForce returns the name of a stop as it is stored, with or without "token:".
func InForce(ctx context.Context, s *database.Store, name string) (string, error) {
	if id.Is(id.Session, name) {
		return "", fault.Usage("its principal opens another", "a session that has ended stays ended")
	}
	orders, err := s.List(ctx, Bucket)
	if err != nil {
		return "", err
	}
	for _, stored := range []string{name, Token + name, strings.TrimPrefix(name, Token)} {
		if _, is := orders[Stop+stored]; is {
			return stored, nil
		}
	}
	var now []string
	for order := range orders {
		if of, is := strings.CutPrefix(order, Stop); is && !id.Is(id.Session, of) {
			now = append(now, strings.ReplaceAll(of, Everybody, "--all"))
		}
	}
	if len(now) == 0 {
		return "", fault.Usage("", "nothing is stopped under that name, nor under any other")
	}
	slices.Sort(now)
	return "", fault.Usage("stopped now: "+strings.Join(now, ", "), "nothing is stopped under that name")
}

// Release cancels a stop as it is stored, and waits until every running waldo knows.
func Release(ctx context.Context, s *database.Store, name string) (replies []Reply, silent int, err error) {
	if err := s.Delete(ctx, Bucket, Stop+name); err != nil {
		return nil, 0, err
	}
	return Put(ctx, s, released, Order{})
}

// ForgetStops deletes the stops of sessions that ended before a time.
func ForgetStops(ctx context.Context, s *database.Store, before time.Time) error {
	orders, err := s.List(ctx, Bucket)
	if err != nil {
		return err
	}
	for order, row := range orders {
		of, is := strings.CutPrefix(order, Stop)
		if is && id.Is(id.Session, of) && orderedAt(row).Before(before) {
			if err := s.Delete(ctx, Bucket, order); err != nil {
				return err
			}
		}
	}
	return nil
}
