package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"waldo/internal/app/control"
	"waldo/internal/app/trust"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/protocol/strictjson"
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
func (h *App) appearedKey(server string) string {
	file, err := filepath.Abs(h.lockFile())
	if err != nil {
		return ""
	}
	return file + " " + server
}

// offerNew keeps the new tools of a server for waldo lock.
func (h *App) offerNew(ctx context.Context, server string) {
	tools := h.Upstreams.Appeared(server)
	key := h.appearedKey(server)
	if len(tools) == 0 || key == "" {
		return
	}
	b, err := json.Marshal(appeared{Command: lockfile.Command(h.Config.Servers[server]), Tools: tools})
	if err == nil && len(b) > maxAppeared {
		err = fmt.Errorf("they have more than %d bytes", maxAppeared)
	}
	if err == nil {
		err = h.Store.Put(ctx, appearedBucket, key, string(b))
	}
	if err != nil {
		slog.Warn("new tools of a server cannot be offered to waldo lock", "server", server, "why", err)
	}
}

// withAppeared adds the tools that a running waldo serve has seen to those that a server lists now.
func (h *App) withAppeared(ctx context.Context, server string, now *lockfile.Locked) error {
	row, ok, err := h.Store.Get(ctx, appearedBucket, h.appearedKey(server))
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

// relock takes the lock that an order names, and no other that may be in its place by now.
func (h *App) relock(ctx context.Context, o control.Order) control.Reply {
	r := control.Reply{PID: os.Getpid()}
	file, err := filepath.Abs(h.lockFile())
	if err != nil || file != o.File {
		return r
	}
	r.Serves = true
	if o.ID != "" && o.At.Before(h.began) { // this process read the lock after the order
		r.Said = file
		return r
	}
	b, err := os.ReadFile(file)
	if err == nil && strictjson.Digest(b) != o.Lock {
		err = fmt.Errorf("%s is not the one that was accepted", file)
	}
	var lock *lockfile.Lock
	if err == nil {
		var was trust.Record
		if was, err = h.signed(ctx); err == nil && was.Lock != "" && was.Lock != o.Lock {
			err = fmt.Errorf("%s is not the one that was signed", file)
		}
	}
	if err == nil {
		lock, err = lockfile.Parse(file, b)
	}
	if err != nil {
		r.Kept = h.known.Text(err.Error())
		slog.Warn("the new lock is not taken; the one before it stays in force", "file", file, "why", r.Kept)
		control.Record(ctx, h.Log, control.KindReload, map[string]any{
			"file": file, "taken": false, "why": r.Kept, "by": Principal(),
		})
		return r
	}
	h.Upstreams.Relock(lock)
	h.relocked.Store(lock)
	for _, server := range h.Upstreams.Names() {
		h.Catalogue.Invalidate(server)
		h.Catalogue.InvalidateOffer(server)
	}
	r.Said = file
	control.Record(ctx, h.Log, control.KindReload, map[string]any{
		"file": file, "taken": true, "in_force": o.Lock, "by": Principal(),
	})
	return r
}
