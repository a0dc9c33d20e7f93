package mcpserver

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/frontend/mcpserver/tasks"
	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// taskPage is how many tasks one page of tasks/list holds.
const taskPage = 50

// takesTasks reports whether a legacy client may ask for tasks: those of 2025-11-25 alone know them.
func (s *Session) takesTasks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision == jsonrpc.Legacy
}

// extended reports whether a modern request declares the extension for tasks.
func extended(m jsonrpc.Message) bool {
	_, ok := meta(m, jsonrpc.MetaCapabilities).Member("extensions").Member(tasks.Extension).Members()
	return ok
}

func (s *Session) owner() tasks.Owner { return tasks.Owner{Principal: s.who.Principal, Session: s} }

// callAsTask answers a tools/call of a legacy client that asks for a task (MCP 2025-11-25 basic/utilities/tasks).
func (s *Session) callAsTask(ctx context.Context, m jsonrpc.Message) (map[string]any, error) {
	life, ok := tasks.Wanted(m.Param("task"))
	if !ok {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "task is an object, and its ttl a number of milliseconds")
	}
	if name, _ := m.Param("name").Text(); name == catalog.SearchTools {
		return nil, jsonrpc.Errorf(jsonrpc.CodeNoMethod, "%s answers at once: it does not run as a task", name)
	}
	long, p := s.suspendable(ctx, m, false, nil)
	t, err := s.task(p, life)
	if err != nil {
		p.cancel()
		return nil, jsonrpc.Errorf(jsonrpc.CodeBusy, "%v", err)
	}
	p.host.link = related{s.stream, t} // nothing else has the host yet
	p.run(long, func(ctx context.Context, h *host) (map[string]any, error) { return s.call(ctx, m, h) })
	return map[string]any{"task": t.View()}, nil
}

// task makes a task of a suspended call. The call goes on, and its questions are those of the task.
func (s *Session) task(p *suspendedCall, life time.Duration) (*tasks.Task, error) {
	t, err := s.d.tasks.Create(s.owner(), life, int64(p.asked.Weight), p.host.can.Legacy, p.cancel)
	if err != nil {
		return nil, err
	}
	select {
	case <-s.closed: // it may have dropped its tasks before this one
		s.d.tasks.Drop(s)
	default:
	}
	p.host.mu.Lock()
	p.host.task = t
	p.host.mu.Unlock()
	close(p.became)
	go func() {
		o := <-p.done
		t.Finish(o.result, o.err)
	}()
	return t, nil
}

// related is the link to a legacy client for messages of a task outside its requests.
type related struct {
	Link
	t *tasks.Task
}

// Notify satisfies Link.
func (l related) Notify(method string, params any) bool {
	if m, ok := params.(map[string]any); ok {
		params = l.t.RelatedTo(m)
	}
	return l.Link.Notify(method, params)
}

// asTask returns the task that a call runs as, and makes one of it if the client takes one; nil: it takes none.
func (h *host) asTask(ctx context.Context) *tasks.Task {
	if h == nil || h.p == nil {
		return nil
	}
	h.mu.Lock()
	t := h.task
	h.mu.Unlock()
	if t != nil || !h.p.maybe {
		return t
	}
	if t, mine := h.p.asTask(); mine {
		return t
	}
	answered := make(chan *tasks.Task, 1)
	select {
	case h.p.long <- answered:
		return <-answered
	case <-h.p.became:
		return h.asTask(ctx)
	case <-ctx.Done():
		return nil
	}
}

// answered waits for the answer to an approval, and reports whether the call should be made again. A call that cannot
// run as a task waits for the host's own person alone.
func (s *Session) answered(ctx context.Context, h *host, approvalID string) bool {
	var t *tasks.Task
	if s.d.o.Consent != nil {
		t = h.asTask(ctx)
	}
	if t == nil {
		return s.consent(ctx, h, approvalID)
	}
	t.Say("a human has to agree first (approval " + approvalID + "), for example with: waldo approve " + approvalID)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked, settled := make(chan bool, 1), make(chan error, 1)
	go func() { asked <- s.consent(ctx, h, approvalID) }()
	go func() { settled <- s.d.o.Consent.Await(ctx, approvalID) }()
	for {
		select {
		case said := <-asked:
			if said {
				return true
			}
			asked = nil // another carrier can bring the answer
		case err := <-settled:
			t.Say("")
			return err == nil
		}
	}
}

// aboutTasks answers the methods tasks/*.
func (s *Session) aboutTasks(ctx context.Context, m jsonrpc.Message, modern bool, link Link) (map[string]any, error) {
	none := jsonrpc.Errorf(jsonrpc.CodeNoMethod, "no such method: %.50q", m.Method)
	of := map[string]func(ctx context.Context, t *tasks.Task, m jsonrpc.Message, link Link) (map[string]any, error){
		"tasks/get": s.taskGet, "tasks/result": s.taskResult, "tasks/cancel": s.taskCancel}
	if modern {
		of = map[string]func(ctx context.Context, t *tasks.Task, m jsonrpc.Message, link Link) (map[string]any, error){
			"tasks/get": s.taskDetailed, "tasks/update": s.taskUpdate, "tasks/cancel": s.taskCancelled}
	}
	answer := of[m.Method]
	switch {
	case !modern && !s.takesTasks():
		return nil, none
	case !modern && m.Method == "tasks/list":
		return s.taskList(m)
	case answer == nil:
		return nil, none
	case modern && !extended(m):
		return nil, lacksTasks()
	}
	id, _ := m.Param("taskId").Text()
	t := s.d.tasks.Get(s.owner(), id)
	if t == nil {
		return nil,
			stateError("task.unknown", "this session has no task of that id: its time is over, or it ended with an earlier "+
				"waldo; the log says how its call ended")
	}
	return answer(ctx, t, m, link)
}

// lacksTasks is the error for a modern request that needs the extension and does not declare it.
func lacksTasks() *jsonrpc.Error {
	e := jsonrpc.Errorf(jsonrpc.CodeCapability, "the request does not declare the extension %s", tasks.Extension)
	data,
		err := call.ArgsOf(map[string]any{"requiredCapabilities": map[string]any{"extensions": map[string]any{tasks.Extension: struct{}{}}}})
	if err == nil {
		e.Data = data.Value()
	}
	return e
}

func (s *Session) taskGet(_ context.Context, t *tasks.Task, _ jsonrpc.Message, _ Link) (map[string]any, error) {
	return t.View(), nil
}

// taskResult answers tasks/result, which takes until the call has ended. Questions of the task go to the client while
// it is open.
func (s *Session) taskResult(ctx context.Context, t *tasks.Task, _ jsonrpc.Message, link Link) (map[string]any, error) {
	err := t.Deliver(ctx, func(ctx context.Context, q call.Question) (strictjson.Value, error) {
		members, _ := q.Params.Members()
		params := map[string]any{}
		for k, v := range members {
			params[k] = v
		}
		v, err := link.Call(ctx, q.Method, func(int64) any { return t.RelatedTo(params) }, nil)
		if no := (*jsonrpc.Error)(nil); errors.As(err, &no) {
			return v, &call.Fault{Code: no.Code, Message: no.Message, Data: no.Data}
		}
		return v, err
	})
	if err != nil {
		return nil, err
	}
	result, fault, ok := t.End()
	switch {
	case !ok:
		return nil, stateError("task.unknown", "the time of the task is over; the log says how its call ended")
	case fault != nil:
		return nil, fault
	}
	return t.RelatedTo(result), nil
}

// taskCancel answers tasks/cancel of a legacy client.
func (s *Session) taskCancel(_ context.Context, t *tasks.Task, _ jsonrpc.Message, _ Link) (map[string]any, error) {
	if !t.Cancel() {
		return nil, stateError("task.ended", "the task has ended")
	}
	return t.View(), nil
}

// taskList answers tasks/list.
func (s *Session) taskList(m jsonrpc.Message) (map[string]any, error) {
	after := 0
	if c := m.Param("cursor"); !c.IsZero() {
		text, _ := c.Text()
		b, err := base64.RawURLEncoding.DecodeString(text)
		if err == nil {
			after, err = strconv.Atoi(string(b))
		}
		if err != nil || after <= 0 {
			return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "the cursor is not one of ours")
		}
	}
	page, next := s.d.tasks.List(s.owner(), after, taskPage)
	shown := make([]any, len(page))
	for i, t := range page {
		shown[i] = t.View()
	}
	result := map[string]any{"tasks": shown}
	if next > 0 {
		result["nextCursor"] = base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(next)))
	}
	return result, nil
}

// taskDetailed answers tasks/get of a modern client.
func (s *Session) taskDetailed(_ context.Context, t *tasks.Task, _ jsonrpc.Message, _ Link) (map[string]any, error) {
	v := t.Detailed()
	select {
	case <-t.Over():
		t.End() // the client has it now
	default:
	}
	return v, nil
}

// taskUpdate answers tasks/update, which brings answers to a task's questions.
func (s *Session) taskUpdate(_ context.Context, t *tasks.Task, m jsonrpc.Message, _ Link) (map[string]any, error) {
	given, ok := m.Param("inputResponses").Members()
	if !ok {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "inputResponses is an object")
	}
	t.Answer(given)
	return map[string]any{}, nil
}

// taskCancelled answers tasks/cancel of a modern client.
func (s *Session) taskCancelled(_ context.Context, t *tasks.Task, _ jsonrpc.Message, _ Link) (map[string]any, error) {
	t.Cancel()
	return map[string]any{}, nil
}

// watched returns those of the tasks that a modern subscription names which are the session's.
func (s *Session) watched(ids strictjson.Value) map[string]*tasks.Task {
	out := map[string]*tasks.Task{}
	list, _ := ids.Elements()
	for _, v := range list {
		id, _ := v.Text()
		if t := s.d.tasks.Get(s.owner(), id); t != nil {
			out[id] = t
		}
	}
	return out
}

// taskChanged tells the client of a task that it is another now.
func (d *Server) taskChanged(t *tasks.Task) {
	s, _ := t.Owner().Session.(*Session)
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listening {
		if l.tasks[t.ID] != nil {
			l.tell(t)
		}
	}
	if t.Legacy && s.ready {
		s.stream.Notify("notifications/tasks/status", t.View())
	}
}

// tell sends the state of a task to a modern subscription.
func (l *listener) tell(t *tasks.Task) {
	params := maps.Clone(t.Detailed())
	params["_meta"] = map[string]any{jsonrpc.MetaSubscription: l.id}
	l.link.Notify("notifications/tasks", params)
}

// taskMethod reports whether a method is one of tasks.
func taskMethod(method string) bool { return strings.HasPrefix(method, "tasks/") }
