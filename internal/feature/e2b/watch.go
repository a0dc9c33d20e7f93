package e2b

import (
	"context"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"waldo/internal/storage/sandboxes"
)

// glance is how long a watched folder rests before it is compared with what it was.
const glance = 300 * time.Millisecond

// What one folder takes of memory.
const (
	maxGlance = 16 << 20 // bytes of its names, with perName for each
	perName   = 256
)

// watched is one state of a folder.
type watched map[string]seen

// change is one event of a folder.
type change struct {
	at, kind string
	now      seen // zero: it is gone
}

// watchKey names a watched folder.
type watchKey struct {
	box, abs string
	depth    int
}

// watch compares one folder with what it was, for all of its streams. s.mu guards it.
type watch struct {
	key  watchKey
	all  map[*watcher]bool // true: it has begun
	wake chan struct{}     // somebody waits to begin
	stop context.CancelFunc
	over chan struct{} // closed when it ended
	why  error         // after over
}

// watcher is one stream.
type watcher struct {
	begun  chan struct{} // closed when the state is known whose changes it gets
	rounds chan []change
	gone   chan struct{} // closed when it is left
}

// watchDir sends what changes in a folder, until the client ends it.
func (s *server) watchDir(b box, _ sandboxes.Sandbox, out *sender, r *http.Request, body []byte) error {
	var in struct {
		Path      string `json:"path"`
		Recursive bool   `json:"recursive"`
		Entries   bool   `json:"includeEntry"`
		Mounts    bool   `json:"allowNetworkMounts"` // there are none
	}
	if err := parse(body, &in); err != nil {
		return err
	}
	limit, err := deadline(r)
	if err != nil {
		return err
	}
	_, _, abs, err := locate(in.Path)
	if err != nil {
		return err
	}
	leave, err := s.watched.Enter(r.Context(), b.Owner, 0)
	if err != nil {
		return fail(429, "%d streams of one key watch folders at most", maxWatches)
	}
	defer leave()
	depth := 1
	if in.Recursive {
		depth = maxDepth
	}
	w, me, part := s.watch(b, watchKey{b.ID, abs, depth})
	defer part()
	ping := time.NewTicker(out.every)
	defer ping.Stop()
	late := after(limit)
	begun := me.begun
	for {
		var err error
		select {
		case <-r.Context().Done():
			return r.Context().Err()
		case <-late:
			return fail(504, "the time of the watch is over")
		case <-w.over:
			return w.why
		case <-begun:
			begun = nil
			err = out.send(map[string]any{"start": struct{}{}})
		case <-ping.C:
			err = out.send(map[string]any{"keepalive": struct{}{}})
		case round := <-me.rounds:
			for i := 0; i < len(round) && err == nil; i++ {
				err = out.send(map[string]any{"filesystem": round[i].event(abs, in.Entries)})
			}
		}
		if err != nil {
			return err
		}
	}
}

// watch adds a stream to those of a folder, until part is called.
func (s *server) watch(b box, key watchKey) (w *watch, me *watcher, part func()) {
	me = &watcher{begun: make(chan struct{}), rounds: make(chan []change), gone: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w = s.watches[key]; w == nil {
		w = &watch{key: key, all: map[*watcher]bool{}, wake: make(chan struct{}, 1), over: make(chan struct{})}
		var ctx context.Context
		ctx, w.stop = context.WithCancel(s.ctx)
		s.watches[key] = w
		go s.compare(ctx, b, w)
	} else if len(w.wake) == 0 {
		w.wake <- struct{}{}
	}
	w.all[me] = false
	return w, me, func() {
		close(me.gone)
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(w.all, me); len(w.all) == 0 {
			s.unwatch(w)
		}
	}
}

// unwatch ends a watch. s.mu is held.
func (s *server) unwatch(w *watch) {
	w.stop()
	if s.watches[w.key] == w {
		delete(s.watches, w.key)
	}
}

// compare compares a folder with what it was, until its last stream is left or it cannot be seen.
func (s *server) compare(ctx context.Context, b box, w *watch) {
	held := s.memory.Lease(b.Owner)
	defer func() { _ = held.Close() }() // never fails
	var was watched
	var err error
	for err == nil {
		s.mu.Lock()
		streams := maps.Clone(w.all)
		s.mu.Unlock()
		var now watched
		var bytes int64
		if now, bytes, err = s.glance(ctx, b, w.key); err == nil {
			held.Shrink(bytes)
			err = held.Cover(ctx, bytes)
		}
		if err != nil {
			break
		}
		s.hand(ctx, w, streams, was.changed(now))
		was = now
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-time.After(glance):
		}
		err = ctx.Err()
	}
	if ctx.Err() != nil {
		err = fail(502, "waldo ends")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwatch(w)
	w.why = err
	close(w.over)
}

// hand gives a round to the streams that have begun, and begins the others. The slowest stream delays the next look.
func (s *server) hand(ctx context.Context, w *watch, streams map[*watcher]bool, round []change) {
	for one, begun := range streams {
		switch {
		case !begun:
			close(one.begun)
			s.mu.Lock()
			if _, there := w.all[one]; there {
				w.all[one] = true
			}
			s.mu.Unlock()
		case len(round) > 0:
			select {
			case one.rounds <- round:
			case <-one.gone:
			case <-ctx.Done():
			}
		}
	}
}

// glance lists a folder. Files of running commands are in it. The folders of one key are listed one at a time, and the
// next one waits for as long as this one took.
func (s *server) glance(ctx context.Context, b box, key watchKey) (now watched, bytes int64, err error) {
	leave, err := s.glances.Enter(ctx, b.Owner, 0)
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	defer func() { time.AfterFunc(time.Since(began), leave) }()
	if _, _, err = s.usable(ctx, b.ID); err != nil {
		return nil, 0, err
	}
	d, err := s.disk(ctx, b, key.abs)
	if err != nil {
		return nil, 0, err
	}
	defer d.close()
	st, err := d.look(key.abs)
	if err == nil && !st.IsDir() {
		err = fail(400, "path %.200q is no folder", key.abs)
	}
	if err != nil {
		return nil, 0, err
	}
	now = watched{}
	err = d.walk(key.depth, func(at string, st fs.FileInfo) error {
		if bytes += int64(len(at)) + perName; len(now) >= maxListed || bytes > maxGlance {
			return fail(413, "the folder holds more than %d entries, or %d bytes of names", maxListed, maxGlance)
		}
		now[at] = seenIn(st)
		return nil
	})
	return now, bytes, err
}

// changed returns the events between two states, in the order of their names.
func (w watched) changed(now watched) (all []change) {
	for at, st := range now {
		was, there := w[at]
		switch {
		case !there:
			all = append(all, change{at, "EVENT_TYPE_CREATE", st})
		case !st.mode.IsDir() && (!was.at.Equal(st.at) || was.size != st.size):
			all = append(all, change{at, "EVENT_TYPE_WRITE", st})
		case was.mode != st.mode:
			all = append(all, change{at, "EVENT_TYPE_CHMOD", st})
		}
	}
	for at := range w {
		if _, there := now[at]; !there {
			all = append(all, change{at: at, kind: "EVENT_TYPE_REMOVE"})
		}
	}
	slices.SortFunc(all, func(a, b change) int { return strings.Compare(a.at, b.at) })
	return all
}

// event is a change as a client gets it.
func (c change) event(root string, entries bool) map[string]any {
	e := map[string]any{"name": strings.TrimPrefix(c.at, path.Clean(root)+"/"), "type": c.kind}
	if entries && c.kind != "EVENT_TYPE_REMOVE" {
		e["entry"] = entry(c.at, c.now)
	}
	return e
}
