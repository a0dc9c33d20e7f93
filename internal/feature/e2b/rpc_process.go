package e2b

import (
	"net/http"
	"time"

	"waldo/internal/storage/sandboxes"
)

// tail follows a process to its end, or to the end of its time.
func (p *process) tail(l *listener, out *sender, r *http.Request, limit time.Duration) error {
	if err := out.send(event{map[string]any{"start": map[string]any{"pid": p.pid}}}); err != nil {
		return err
	}
	ping := time.NewTicker(out.every)
	defer ping.Stop()
	late := after(limit)
	for {
		select {
		case e := <-l.events:
			if err := out.send(e); err != nil {
				return err
			}
		case <-ping.C:
			if err := out.alive(); err != nil {
				return err
			}
		case <-late:
			return fail(504, "the time of the command is over")
		case <-r.Context().Done():
			return r.Context().Err()
		case <-p.over:
			return p.rest(l, out)
		}
	}
}

// after is when a limit is over; nil: there is none.
func after(limit time.Duration) <-chan time.Time {
	if limit <= 0 {
		return nil
	}
	return time.After(limit)
}

// rest sends what a process has left when it ended.
func (p *process) rest(l *listener, out *sender) error {
	for {
		select {
		case e := <-l.events:
			if err := out.send(e); err != nil {
				return err
			}
			continue
		default:
		}
		if p.failed != nil {
			return p.failed
		}
		return out.send(p.ended)
	}
}

// startCommand answers Start. The command outlives the stream; its time ends it.
func (s *server) startCommand(b box, _ sandboxes.Sandbox, out *sender, r *http.Request, body []byte) error {
	var in starting
	if err := parse(body, &in); err != nil {
		return err
	}
	limit, err := deadline(r)
	if err == nil {
		err = in.check()
	}
	if err == nil {
		b, err = s.whole(r.Context(), b)
	}
	if err != nil {
		return err
	}
	p, l, leave, err := s.start(r.Context(), b, in, limit)
	if err != nil {
		return err
	}
	defer leave()
	err = p.tail(l, out, r, limit)
	if f := failedAs(err); f != nil && f.status == 504 {
		p.kill()
	}
	return err
}

// failedAs returns the failure that an error is; nil: it is none.
func failedAs(err error) *failure {
	f, _ := err.(*failure)
	return f
}

// followCommand answers Connect.
func (s *server) followCommand(b box, _ sandboxes.Sandbox, out *sender, r *http.Request, body []byte) error {
	var in struct {
		Process selector `json:"process"`
	}
	if err := parse(body, &in); err != nil {
		return err
	}
	limit, err := deadline(r)
	if err != nil {
		return err
	}
	p, err := s.of(b.ID).command(in.Process)
	if err != nil {
		return err
	}
	l, leave := p.follow()
	defer leave()
	return p.tail(l, out, r, limit)
}

func (s *server) listCommands(b box, _ sandboxes.Sandbox, _ http.ResponseWriter, _ *http.Request, body []byte) (any, error) {
	if err := parse(body, &struct{}{}); err != nil {
		return nil, err
	}
	out := []map[string]any{}
	for _, p := range s.of(b.ID).all() {
		one := map[string]any{"pid": p.pid, "config": p.config}
		if p.tag != "" {
			one["tag"] = p.tag
		}
		out = append(out, one)
	}
	return map[string]any{"processes": out}, nil
}

func (s *server) updateCommand(b box, _ sandboxes.Sandbox, _ http.ResponseWriter, _ *http.Request, body []byte) (any, error) {
	var in struct {
		Process selector `json:"process"`
		PTY     *screen  `json:"pty"`
	}
	if err := parse(body, &in); err != nil {
		return nil, err
	}
	p, err := s.of(b.ID).command(in.Process)
	switch {
	case err != nil:
		return nil, err
	case p.master == nil || in.PTY == nil || in.PTY.Size == nil:
		return nil, fail(400, "the process has no terminal, or no size was given")
	}
	return struct{}{}, resize(p.master, *in.PTY.Size)
}

func (s *server) sendInput(b box, _ sandboxes.Sandbox, _ http.ResponseWriter, _ *http.Request, body []byte) (any, error) {
	var in struct {
		Process selector `json:"process"`
		Input   input    `json:"input"`
	}
	if err := parse(body, &in); err != nil {
		return nil, err
	}
	p, err := s.of(b.ID).command(in.Process)
	if err != nil {
		return nil, err
	}
	to, text := p.stdin, in.Input.Stdin
	if in.Input.PTY != nil {
		to, text = p.master, in.Input.PTY
	}
	if to == nil || text == nil {
		return nil, fail(400, "the process does not take this input: it was started without stdin or pty")
	}
	bytes, err := raw(*text)
	if err != nil {
		return nil, fail(400, "the input is no base64")
	}
	_ = to.SetWriteDeadline(time.Now().Add(slowWrite)) // a pipe and a terminal can
	if _, err := to.Write(bytes); err != nil {
		return nil, fail(409, "the process does not take its input")
	}
	return struct{}{}, nil
}

func (s *server) closeStdin(b box, _ sandboxes.Sandbox, _ http.ResponseWriter, _ *http.Request, body []byte) (any, error) {
	var in struct {
		Process selector `json:"process"`
	}
	if err := parse(body, &in); err != nil {
		return nil, err
	}
	p, err := s.of(b.ID).command(in.Process)
	if err == nil && p.stdin == nil {
		err = fail(400, "the process was started without stdin")
	}
	if err == nil {
		_ = p.stdin.Close() // twice is once
	}
	return struct{}{}, err
}

// sendSignal ends a process with all that it started. waldo sends no other signal than the last one.
func (s *server) sendSignal(b box, _ sandboxes.Sandbox, _ http.ResponseWriter, _ *http.Request, body []byte) (any, error) {
	var in struct {
		Process selector `json:"process"`
		Signal  string   `json:"signal"`
	}
	if err := parse(body, &in); err != nil {
		return nil, err
	}
	if in.Signal != "SIGNAL_SIGKILL" && in.Signal != "SIGNAL_SIGTERM" {
		return nil, fail(400, "signal: SIGNAL_SIGKILL or SIGNAL_SIGTERM, and both end the process at once")
	}
	p, err := s.of(b.ID).command(in.Process)
	if err != nil {
		return nil, err
	}
	p.kill()
	<-p.over
	return struct{}{}, nil
}
