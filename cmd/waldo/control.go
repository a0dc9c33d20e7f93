package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/core/session"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/model/id"
	"waldo/internal/storage/database"
	"waldo/internal/storage/presence"
)

// Orders of the operator reach every waldo of a state directory through its store, without a daemon. Each waldo polls
// for orders, carries them out and stores a reply.
const (
	ordersBucket = "orders"  // reload, and "stop NAME" while it is in force
	repliesFor   = "replies" // "ORDER ASKER": the reply of one waldo to an order
	reloadOrder  = "reload"
	stopOrder    = "stop "
	releaseOrder = "release" // a stop was cancelled
	everybody    = "*"

	ordersEvery = 250 * time.Millisecond
	repliesTime = 15 * time.Second // a waldo without a reply by then is reported
)

// The record kinds of orders in the log.
const (
	kindReload = "reload"
	kindStop   = "stop"
)

// order is the stored form of an order.
type order struct {
	ID   string    `json:"id"`
	At   time.Time `json:"at"`
	File string    `json:"file,omitempty"` // of an order about a lock
	Lock string    `json:"lock,omitempty"` // its digest
}

// orderedAt returns the time of an order.
func orderedAt(row string) time.Time {
	var o order
	_ = json.Unmarshal([]byte(row), &o) // an unreadable order counts as old
	return o.At
}

// reply is the reply of one waldo to an order.
type reply struct {
	PID    int      `json:"pid"`
	Serves bool     `json:"serves,omitempty"` // it is a waldo serve
	Said   string   `json:"said,omitempty"`   // after a reload: the configuration in force
	Kept   string   `json:"kept,omitempty"`   // why the earlier configuration stays in force
	Ended  []string `json:"ended,omitempty"`  // sessions
}

// attendant carries out the orders in one waldo.
type attendant struct {
	h    *application
	seen map[string]string
	end  context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex                      // one reload at a time
	reload func(ctx context.Context) reply // nil: this waldo cannot reload
}

// attend applies the orders in force, then polls for new ones until Close. hup carries the signals that request a
// reload.
func (h *application) attend(ctx context.Context, hup <-chan os.Signal) error {
	rows, err := h.store.List(ctx, ordersBucket)
	if err != nil {
		return err
	}
	h.sessions.Stop(stoppedBy(rows))
	maps.DeleteFunc(rows, func(_, row string) bool { // a recent order can still wait for our reply
		return time.Since(orderedAt(row)) < repliesTime
	})
	a := &attendant{h: h, seen: rows}
	ctx, a.end = context.WithCancel(context.WithoutCancel(ctx))
	h.attendant = a
	a.work.Go(func() {
		t := time.NewTicker(ordersEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
				a.work.Go(func() { a.renew(ctx) })
			case <-t.C:
				a.look(ctx)
			}
		}
	})
	return nil
}

// Close stops polling and waits for the work on orders.
func (a *attendant) Close() {
	a.end()
	a.work.Wait()
}

// look carries out new orders.
func (a *attendant) look(ctx context.Context) {
	rows, err := a.h.store.List(ctx, ordersBucket)
	if err != nil {
		if ctx.Err() == nil {
			slog.Warn("the operator's orders cannot be read", "why", err)
		}
		return
	}
	if maps.Equal(rows, a.seen) {
		return
	}
	ended := a.h.sessions.Stop(stoppedBy(rows))
	a.over(ctx, ended)
	for name, row := range rows {
		var o order
		if a.seen[name] == row || json.Unmarshal([]byte(row), &o) != nil {
			continue
		}
		if name == lockOrder {
			a.work.Go(func() { a.say(ctx, o, a.relock(ctx, o)) })
			continue
		}
		stop, is := strings.CutPrefix(name, stopOrder)
		if !is && name != releaseOrder {
			a.work.Go(func() { a.say(ctx, o, a.renew(ctx)) }) // fetching secrets can be slow, and a stop must not wait
			continue
		}
		r := reply{PID: os.Getpid(), Serves: a.serves()}
		for _, n := range ended {
			if named(stop, n) {
				r.Ended = append(r.Ended, string(n.ID))
			}
		}
		a.say(ctx, o, r)
	}
	a.seen = rows
}

func (a *attendant) serves() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reload != nil
}

// renew reloads the configuration if this waldo can reload.
func (a *attendant) renew(ctx context.Context) reply {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reload == nil {
		return reply{PID: os.Getpid()}
	}
	return a.reload(ctx)
}

// over ends the other resources of stopped sessions.
func (a *attendant) over(ctx context.Context, ended []session.Info) {
	for _, n := range ended {
		for _, h := range a.h.lives.All() {
			h.upstreams.Forget(n.ID)
			a.work.Go(func() {
				if err := h.runner.End(n.ID); err != nil {
					slog.Warn("ending a session", "session", n.ID, "why", err)
				}
			})
		}
		a.h.record(ctx, kindStop, map[string]any{"name": string(n.Principal), "session": n.ID, "by": principal()})
	}
}

func (a *attendant) say(ctx context.Context, o order, r reply) {
	b, err := json.Marshal(r)
	if err == nil && a.h.asker != nil {
		err = a.h.store.Put(ctx, repliesFor, o.ID+" "+a.h.asker.Name, string(b))
	}
	if err != nil {
		slog.Warn("an order was not answered", "order", o.ID, "why", err)
	}
}

// record writes the result of an order to the log.
func (h *application) record(ctx context.Context, kind string, body any) {
	if err := recordOrder(ctx, h.log, kind, body); err != nil {
		slog.Warn("an order could not be recorded", "order", kind, "why", err)
	}
}

func recordOrder(ctx context.Context, log *audit.Log, kind string, body any) error {
	b, err := json.Marshal(body)
	if err == nil {
		_, err = log.Append(context.WithoutCancel(ctx), kind, b, true)
	}
	return err
}

// ordered summarises the record of an order.
func ordered(p terminal.Paint, r audit.Record) display.Text {
	var b struct {
		File, By, Why, Name, Session string
		InForce                      string `json:"in_force"`
		Taken, Release               bool
	}
	_ = json.Unmarshal(r.Body, &b)
	switch {
	case r.Kind == kindReload && b.Taken:
		return display.Sprintf("%s %s %s, by %s", p.Good("taken"), orNone(b.File), b.InForce, b.By)
	case r.Kind == kindReload:
		return display.Sprintf("%s %s by %s: %s", p.Bad("kept"), b.InForce, b.By, b.Why)
	case b.Session != "":
		return display.Sprintf("%s session %s of %s, by %s", p.Bad("ended"), b.Session, b.Name, b.By)
	case b.Release:
		return display.Sprintf("%s %s, by %s", p.Good("let in"), b.Name, b.By)
	}
	return display.Sprintf("%s %s, by %s", p.Bad("stopped"), b.Name, b.By)
}

// named reports whether a name identifies a session: its principal, the principal without "token:", or its id.
func named(name string, n session.Info) bool {
	return name == everybody || name == string(n.Principal) || "token:"+name == string(n.Principal) || n.ID != "" && name == string(n.ID)
}

// stoppedBy returns a predicate for the sessions that the orders stop.
func stoppedBy(rows map[string]string) func(session.Info) bool {
	var names []string
	for name := range rows {
		if name, is := strings.CutPrefix(name, stopOrder); is {
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

// putOrder stores an order. It returns the replies of every running waldo, and how many sent none in time.
func putOrder(ctx context.Context, s *database.Store, name string) (replies []reply, silent int, err error) {
	return putOrderOf(ctx, s, name, order{})
}

func putOrderOf(ctx context.Context, s *database.Store, name string, o order) (replies []reply, silent int, err error) {
	o.ID, o.At = id.New("o_"), time.Now().UTC()
	b, err := json.Marshal(o)
	if err != nil {
		return nil, 0, err
	}
	if err := s.Put(ctx, ordersBucket, name, string(b)); err != nil {
		return nil, 0, err
	}
	if err := forgetReplies(ctx, s); err != nil {
		return nil, 0, err
	}
	wanted := map[string]bool{}
	gone := presence.Gone(s.Dir())
	all, err := os.ReadDir(filepath.Join(s.Dir(), presence.Folder))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, 0, err
	}
	for _, f := range all {
		wanted[f.Name()] = true
	}
	for until := time.Now().Add(repliesTime); ; time.Sleep(ordersEvery / 5) {
		rows, err := s.List(ctx, repliesFor)
		if err != nil {
			return replies, len(wanted), err
		}
		for row, text := range rows {
			from, is := strings.CutPrefix(row, o.ID+" ")
			var r reply
			if !is || !wanted[from] || json.Unmarshal([]byte(text), &r) != nil {
				continue
			}
			delete(wanted, from)
			replies = append(replies, r)
			if err := s.Delete(ctx, repliesFor, row); err != nil {
				return replies, len(wanted), err
			}
		}
		maps.DeleteFunc(wanted, func(from string, _ bool) bool { return gone(from) })
		if len(wanted) == 0 || time.Now().After(until) || ctx.Err() != nil {
			return replies, len(wanted), ctx.Err()
		}
	}
}

// forgetReplies deletes the replies to orders that no longer exist.
func forgetReplies(ctx context.Context, s *database.Store) error {
	orders, err := s.List(ctx, ordersBucket)
	if err != nil {
		return err
	}
	stand := map[string]bool{}
	for _, row := range orders {
		var o order
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

func (r reply) who() string {
	if r.Serves {
		return fmt.Sprintf("waldo serve (process %d)", r.PID)
	}
	return fmt.Sprintf("waldo (process %d)", r.PID)
}
