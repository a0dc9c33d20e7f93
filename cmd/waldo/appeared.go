package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"waldo/internal/app/trust"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/model/display"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/database"
)

// A tool that a server adds while waldo serve runs may be seen by that waldo alone: waldo lock starts a server of its
// own. So waldo serve leaves its definition in the state directory, where waldo lock finds it. It decides nothing
// there.
const (
	appearedBucket = "appeared" // definitions, by lock file and server
	maxAppeared    = 1 << 20    // bytes of one server
)

type appeared struct {
	Command string                      `json:"command"` // as in waldo.lock
	Tools   map[string]strictjson.Value `json:"tools"`
}

// appearedKey names a server of a configuration; "" where it has no file.
func (h *application) appearedKey(server string) string {
	file, err := filepath.Abs(h.lockFile())
	if err != nil {
		return ""
	}
	return file + " " + server
}

// offerNew keeps the new tools of a server for waldo lock.
func (h *application) offerNew(ctx context.Context, server string) {
	tools := h.upstreams.Appeared(server)
	key := h.appearedKey(server)
	if len(tools) == 0 || key == "" {
		return
	}
	b, err := json.Marshal(appeared{Command: lockfile.Command(h.cfg.Servers[server]), Tools: tools})
	if err == nil && len(b) > maxAppeared {
		err = fmt.Errorf("they have more than %d bytes", maxAppeared)
	}
	if err == nil {
		err = h.store.Put(ctx, appearedBucket, key, string(b))
	}
	if err != nil {
		slog.Warn("new tools of a server cannot be offered to waldo lock", "server", server, "why", err)
	}
}

// withAppeared adds the tools that a running waldo serve has seen to those that a server lists now.
func (h *application) withAppeared(ctx context.Context, server string, now *lockfile.Locked) error {
	row, ok, err := h.store.Get(ctx, appearedBucket, h.appearedKey(server))
	if err != nil || !ok {
		return err
	}
	var a appeared
	v, err := strictjson.Parse([]byte(row))
	if err != nil || v.Decode(&a) != nil || a.Command != now.Command {
		return nil // of another configuration, or not readable: the server's own list counts
	}
	for name, def := range a.Tools {
		if own, _ := def.Member("name").Text(); own == name && now.Tools[name] == "" {
			now.Tools[name], now.Definitions[name] = def.Digest(), def
		}
	}
	return nil
}

// lockOrder has every waldo serve of a lock take what was just accepted.
const lockOrder = "lock"

// relock takes the lock that an order names, and no other that may be in its place by now.
func (a *attendant) relock(ctx context.Context, o order) reply {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.h.lives.inForce()
	r := reply{PID: os.Getpid()}
	file, err := filepath.Abs(h.lockFile())
	if a.reload == nil || err != nil || file != o.File {
		return r
	}
	r.Serves = true
	b, err := os.ReadFile(file)
	if err == nil && strictjson.Digest(b) != o.Lock {
		err = fmt.Errorf("%s is not the one that was accepted", file)
	}
	var lock *lockfile.Lock
	if err == nil {
		lock, err = lockfile.Parse(file, b)
	}
	if err != nil {
		r.Kept = h.known.Text(err.Error())
		slog.Warn("the new lock is not taken; the one before it stays in force", "file", file, "why", r.Kept)
		h.record(ctx, kindReload, map[string]any{"file": file, "taken": false, "why": r.Kept, "by": principal()})
		return r
	}
	h.upstreams.Relock(lock)
	h.relocked.Store(lock)
	for _, server := range h.upstreams.Names() {
		h.catalogue.Invalidate(server)
		h.catalogue.InvalidateOffer(server)
	}
	r.Said = file
	h.record(ctx, kindReload, map[string]any{"file": file, "taken": true, "in_force": o.Lock, "by": principal()})
	return r
}

// tellServes has every waldo serve of this lock take it, and prints which did.
func tellServes(ctx context.Context, s *database.Store, w io.Writer, file string) error {
	full, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	digest, err := trust.Digest(full)
	if err != nil {
		return err
	}
	replies, silent, err := putOrderOf(ctx, s, lockOrder, order{File: full, Lock: digest})
	for _, r := range replies {
		switch {
		case r.Kept != "":
			display.Fprintf(w, "%s keeps the lock that it has: %s\n", r.who(), display.Lines(r.Kept))
		case r.Serves:
			display.Fprintf(w, "%s took %s\n", r.who(), filepath.Base(full))
		}
	}
	if silent > 0 {
		display.Fprintf(w, "waldo: %s did not answer in time and may have the lock before this one\n", display.Count(silent, "waldo process"))
	}
	return err
}
