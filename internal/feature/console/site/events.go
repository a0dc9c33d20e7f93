package site

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits on event streams.
const (
	maxStreams = 64
	keepAlive  = 15 * time.Second
	streamLife = time.Hour // the browser then connects again, and its login is checked again
)

// apiEvents sends server-sent events. A client that connects again names the last event in Last-Event-ID and gets
// those after it. If they are too old, it gets the event reset and must load its lists again.
func (s *Server) apiEvents(q *request) error {
	after := q.Header.Get("Last-Event-ID")
	if after == "" {
		after = q.URL.Query().Get("after")
	}
	var seq uint64
	if after != "" {
		n, err := strconv.ParseUint(after, 10, 63)
		if err != nil {
			return Problemf(http.StatusBadRequest, "event_id", "Last-Event-ID is the number of an event")
		}
		seq = n
	}
	s.mu.Lock()
	full := s.streams >= maxStreams
	if !full {
		s.streams++
	}
	s.mu.Unlock()
	if full {
		return Problemf(http.StatusServiceUnavailable, "too_many", "%d event streams are open", maxStreams)
	}
	defer func() {
		s.mu.Lock()
		s.streams--
		s.mu.Unlock()
	}()
	var kinds []string
	if text := q.URL.Query().Get("kinds"); text != "" {
		kinds = strings.Split(text, ",")
	}
	events, reset, err := s.o.Backend.Live(q.Context(), seq)
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "text/event-stream")
	q.w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(q.w)
	write := func(format string, args ...any) error {
		_ = out.SetWriteDeadline(s.o.Now().Add(keepAlive)) // a reader that stopped reading ends the stream
		if _, err := fmt.Fprintf(q.w, format, args...); err != nil {
			return err
		}
		return out.Flush()
	}
	if err := write("retry: 1000\n\n"); err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	if reset {
		if err := write("event: reset\ndata: {}\n\n"); err != nil {
			return nil //nolint:nilerr // the client is gone
		}
	}
	tick, end := time.NewTicker(keepAlive), time.NewTimer(streamLife)
	defer tick.Stop()
	defer end.Stop()
	for {
		var err error
		select {
		case e, open := <-events:
			switch {
			case !open:
				return nil
			case kinds != nil && !slices.Contains(kinds, e.Kind):
			case e.Seq > 0:
				err = write("id: %d\nevent: %s\ndata: %s\n\n", e.Seq, e.Kind, e.Data)
			default:
				err = write("event: %s\ndata: %s\n\n", e.Kind, e.Data)
			}
		case <-tick.C:
			err = write(":\n\n")
			if q.n != nil && s.session(q.Request) == nil {
				return nil // logged out
			}
		case <-end.C:
			return nil
		case <-q.Context().Done():
			return nil
		}
		if err != nil {
			return nil //nolint:nilerr // the client is gone
		}
	}
}
