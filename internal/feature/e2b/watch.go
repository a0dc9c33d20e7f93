package e2b

import (
	"context"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"waldo/internal/storage/sandboxes"
)

// glance is how often a watched folder is compared with what it was.
const glance = 300 * time.Millisecond

// watched is one state of a folder.
type watched map[string]fs.FileInfo

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
	depth := 1
	if in.Recursive {
		depth = maxDepth
	}
	was, err := s.glance(r.Context(), b, in.Path, depth)
	if err != nil {
		return err
	}
	if err := out.send(map[string]any{"start": struct{}{}}); err != nil {
		return err
	}
	tick, ping := time.NewTicker(glance), time.NewTicker(out.every)
	defer tick.Stop()
	defer ping.Stop()
	late := after(limit)
	for {
		select {
		case <-r.Context().Done():
			return r.Context().Err()
		case <-s.ctx.Done():
			return fail(502, "waldo ends")
		case <-late:
			return fail(504, "the time of the watch is over")
		case <-ping.C:
			if err := out.send(map[string]any{"keepalive": struct{}{}}); err != nil {
				return err
			}
		case <-tick.C:
			if _, _, err := s.running(r, b.ID); err != nil {
				return err
			}
			now, err := s.glance(r.Context(), b, in.Path, depth)
			if err != nil {
				return err
			}
			for _, e := range was.changed(now, place(in.Path), in.Entries) {
				if err := out.send(map[string]any{"filesystem": e}); err != nil {
					return err
				}
			}
			was = now
		}
	}
}

// glance lists a folder. Files of running commands are in it.
func (s *server) glance(ctx context.Context, b box, name string, depth int) (watched, error) {
	d, err := s.disk(ctx, b, name)
	if err != nil {
		return nil, err
	}
	defer d.close()
	st, err := d.look(name)
	if err == nil && !st.IsDir() {
		err = fail(400, "path %.200q is no folder", name)
	}
	if err != nil {
		return nil, err
	}
	now := watched{}
	return now, d.walk(depth, func(at string, st fs.FileInfo) error {
		if len(now) >= maxListed {
			return fail(413, "the folder holds more than %d entries", maxListed)
		}
		now[at] = st
		return nil
	})
}

// changed returns the events between two states, in the order of their names.
func (w watched) changed(now watched, root string, entries bool) (out []map[string]any) {
	kinds := map[string]string{}
	for at, st := range now {
		was, there := w[at]
		switch {
		case !there:
			kinds[at] = "EVENT_TYPE_CREATE"
		case !st.IsDir() && (!was.ModTime().Equal(st.ModTime()) || was.Size() != st.Size()):
			kinds[at] = "EVENT_TYPE_WRITE"
		case was.Mode() != st.Mode():
			kinds[at] = "EVENT_TYPE_CHMOD"
		}
	}
	for at := range w {
		if _, there := now[at]; !there {
			kinds[at] = "EVENT_TYPE_REMOVE"
		}
	}
	names := make([]string, 0, len(kinds))
	for at := range kinds {
		names = append(names, at)
	}
	slices.Sort(names)
	for _, at := range names {
		e := map[string]any{"name": strings.TrimPrefix(at, path.Clean(root)+"/"), "type": kinds[at]}
		if st := now[at]; entries && st != nil {
			e["entry"] = entry(at, st)
		}
		out = append(out, e)
	}
	return out
}
