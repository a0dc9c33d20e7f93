package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/storage/sandboxes"
)

// home is where commands find the files of their sandbox.
const home = "/home/user"

// box is what E2B keeps of a sandbox besides what waldo does. Its row is small: lists of all sandboxes read it.
type box struct {
	ID       string    `json:"id"` // "s_…"
	Owner    string    `json:"owner"`
	Template string    `json:"template"` // as it was asked for
	Offline  bool      `json:"offline,omitempty"`
	Started  time.Time `json:"started"`
	End      time.Time `json:"end"`
	Pause    bool      `json:"pause,omitempty"` // at its end, instead of being killed
	Size     int       `json:"size"`            // bytes of its stored body
	body     `json:"-"`
	from     string // the snapshot that a fork starts from
}

// body is what a client chose the size of. It has a row apart: whole reads it.
type body struct {
	Metadata map[string]string `json:"metadata,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Network  *network          `json:"network,omitempty"`
}

// hosts returns the hosts of a contract that remain to its commands; offline: none does.
func (b box) hosts(c contract.Network) (remain []string, offline bool) {
	if b.Offline {
		return nil, true
	}
	return b.Network.hosts(c)
}

// The buckets of rows and of bodies.
const (
	bucket = "e2b"
	bodies = "e2b.body"
)

// put keeps a new box.
func (s *server) put(ctx context.Context, b box, text string) error {
	b.Size = len(text)
	row, err := json.Marshal(b)
	if err == nil {
		err = s.h.Store.Put(ctx, bucket, b.ID, string(row)) // first: upgrade deletes bodies without a row
	}
	if err == nil {
		err = s.h.Store.Put(ctx, bodies, b.ID, text)
	}
	if err == nil {
		s.signers.Store(b.ID, s.token(b.ID, forFiles))
	}
	return err
}

// fits returns the stored form of a body that is to be that of a sandbox, if its key has room for it. Sandboxes of
// the key, without this one, are counted. s.making is held.
func (s *server) fits(ctx context.Context, b box) (text string, count int, err error) {
	all, err := s.boxes(ctx)
	if err != nil {
		return "", 0, err
	}
	out, err := json.Marshal(b.body)
	bytes := len(out)
	for _, other := range all {
		if other.Owner == b.Owner && other.ID != b.ID {
			count++
			bytes += other.Size
		}
	}
	if err == nil && bytes > maxBodies {
		err = fail(429, "metadata, variables and networks of the sandboxes of one key have %d bytes at most", maxBodies)
	}
	return string(out), count, err
}

// whole returns a box with its body. The body counts as memory of its key until ctx is done.
func (s *server) whole(ctx context.Context, b box) (box, error) {
	if err := s.hold(ctx, b.Owner, b.Size); err != nil {
		return b, err
	}
	return b, s.load(ctx, &b)
}

// hold counts so many bytes of bodies as memory of a key until ctx is done: as text, as values, and as an answer.
func (s *server) hold(ctx context.Context, owner string, bytes int) error {
	leave, err := s.memory.Enter(ctx, owner, 4*int64(bytes))
	if err == nil {
		context.AfterFunc(ctx, leave)
	}
	return err
}

// load reads the body of a box.
func (s *server) load(ctx context.Context, b *box) error {
	text, ok, err := s.h.Store.Get(ctx, bodies, b.ID)
	if err == nil && ok {
		err = json.Unmarshal([]byte(text), &b.body)
	}
	return err
}

// upgrade gives rows of older versions their body apart, and deletes bodies without a row.
func (s *server) upgrade(ctx context.Context) error {
	names, err := s.h.Store.Names(ctx, bodies)
	if err != nil {
		return err
	}
	rows, err := s.h.Store.List(ctx, bucket)
	if err != nil {
		return err
	}
	for ident, row := range rows {
		var b box
		if b, err = stored(ident, row); err != nil {
			return err
		}
		if err = json.Unmarshal([]byte(row), &b.body); err != nil {
			return err
		}
		if b.Metadata == nil && b.Env == nil && b.Network == nil {
			continue
		}
		text, err := json.Marshal(b.body)
		if err == nil {
			err = s.put(ctx, b, string(text))
		}
		if err != nil {
			return err
		}
	}
	for _, name := range names {
		if _, ok := rows[name]; !ok {
			err = errors.Join(err, s.h.Store.Delete(ctx, bodies, name))
		}
	}
	return err
}

// sign refreshes the tokens that addresses can be signed with. Those that are added meanwhile stay.
func (s *server) sign(ctx context.Context) ([]box, error) {
	gone := map[any]bool{}
	s.signers.Range(func(ident, _ any) bool { gone[ident] = true; return true })
	now, err := s.boxes(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range now {
		delete(gone, b.ID)
		if _, ok := s.signers.Load(b.ID); !ok {
			s.signers.Store(b.ID, s.token(b.ID, forFiles))
		}
	}
	for ident := range gone {
		s.signers.Delete(ident)
	}
	return now, nil
}

// change changes a kept box.
func (s *server) change(ctx context.Context, ident string, f func(*box)) (b box, err error) {
	err = s.h.Store.Modify(ctx, bucket, ident, func(text string, ok bool) (string, bool, error) {
		if !ok {
			return "", false, fail(404, "no such sandbox")
		}
		if b, err = stored(ident, text); err != nil {
			return "", false, err
		}
		f(&b)
		out, err := json.Marshal(b)
		return string(out), true, err
	})
	return b, err
}

// stored reads the row of a sandbox, by its id.
func stored(ident, text string) (b box, err error) {
	if err = json.Unmarshal([]byte(text), &b); err == nil && (b.ID != ident || !id.Is(id.Sandbox, ident)) {
		err = sandboxes.ErrRow
	}
	if err != nil {
		return box{}, fmt.Errorf("sandbox %q: its stored form cannot be read: %w", ident, err)
	}
	return b, nil
}

// boxes returns all kept boxes, of all owners, oldest first.
func (s *server) boxes(ctx context.Context) ([]box, error) {
	kept, err := s.h.Store.List(ctx, bucket)
	if err != nil {
		return nil, err
	}
	all := make([]box, 0, len(kept))
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		b, err := stored(name, kept[name])
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// find returns the sandbox of a full id. One whose time is over is ended first.
func (s *server) find(ctx context.Context, ident string) (b box, is sandboxes.Sandbox, err error) {
	text, ok, err := s.h.Store.Get(ctx, bucket, ident)
	if err != nil {
		return b, is, err
	}
	if !ok {
		return b, is, fail(404, "no such sandbox")
	}
	if b, err = stored(ident, text); err != nil {
		return b, is, err
	}
	if err := s.rest(ctx, b, time.Now()); err != nil {
		return b, is, err
	}
	if is, err = s.m.Get(ctx, b.Owner, b.ID); errors.Is(err, sandboxes.ErrAbsent) {
		return b, is, errors.Join(fail(404, "no such sandbox"), s.forgotten(ctx, b.ID))
	}
	return b, is, err
}

// owned returns the sandbox that a path names, if it is the asker's. Another principal's is absent.
func (s *server) owned(who call.Principal, r *http.Request) (box, sandboxes.Sandbox, error) {
	ident, err := internal(r.PathValue("id"))
	if err != nil {
		return box{}, sandboxes.Sandbox{}, err
	}
	b, is, err := s.find(r.Context(), ident)
	if err == nil && b.Owner != string(who) {
		return box{}, is, fail(404, "no such sandbox")
	}
	return b, is, err
}

// requested is owned, and reads the body of the request.
func (s *server) requested(
	who call.Principal, w http.ResponseWriter, r *http.Request, body any,
) (box, sandboxes.Sandbox, error) {
	b, is, err := s.owned(who, r)
	if err == nil {
		err = read(w, r, body)
	}
	return b, is, err
}

// rest pauses or kills a sandbox whose time is over.
func (s *server) rest(ctx context.Context, b box, now time.Time) error {
	if now.Before(b.End) {
		return nil
	}
	is, err := s.m.Get(ctx, b.Owner, b.ID)
	switch {
	case err != nil:
		return nil // find returns why
	case !b.Pause:
		return s.end(ctx, b, "timeout")
	case is.State == sandboxes.Ready:
		return s.freeze(ctx, b)
	}
	return nil
}

// expire ends sandboxes whose time is over, until ctx is done.
func (s *server) expire(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		all, err := s.sign(ctx)
		for _, b := range all {
			err = errors.Join(err, s.rest(ctx, b, time.Now()))
		}
		if err != nil && ctx.Err() == nil {
			slog.Warn("ending sandboxes of E2B clients", "why", err)
		}
	}
}

// end kills a sandbox with its files.
func (s *server) end(ctx context.Context, b box, why string) error {
	s.drop(b.ID)
	err := s.m.Remove(ctx, b.Owner, b.ID, true)
	if errors.Is(err, sandboxes.ErrAbsent) {
		err = nil
	}
	return errors.Join(err, s.forgotten(ctx, b.ID),
		s.record(ctx, record{Op: why, Sandbox: b.ID, Principal: b.Owner}))
}

// forgotten deletes the rows of a sandbox.
func (s *server) forgotten(ctx context.Context, ident string) error {
	s.signers.Delete(ident)
	return errors.Join(s.h.Store.Delete(ctx, bucket, ident), s.h.Store.Delete(ctx, bodies, ident))
}

// freeze pauses a sandbox. It fails where commands cannot be stopped in place.
func (s *server) freeze(ctx context.Context, b box) error {
	_, going, err := s.m.Pause(ctx, b.Owner, b.ID)
	if err == nil && going > 0 {
		s.drop(b.ID) // its commands end: none goes on in a paused sandbox
	}
	if err == nil {
		err = s.record(ctx, record{Op: "pause", Sandbox: b.ID, Principal: b.Owner})
	}
	return err
}
