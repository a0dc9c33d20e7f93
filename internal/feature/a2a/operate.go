package a2a

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"waldo/internal/budget"
	"waldo/internal/frontend/mcpserver/web"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
	"waldo/internal/protocol/strictjson"
)

// The bounds of a page of ListTasks.
const (
	usualPage = 50
	mostPage  = 100
)

// The usual bounds of tasks that are not over, where gateway.limits has none.
const (
	usualAll  = 1000
	usualEach = 100
)

// reply is what follows from an operation: a body, a task to wait for, or one to follow.
type reply struct {
	body    any
	wait    *job
	stream  *job
	rests   bool // the stream ends also where the task needs an answer
	history *int
}

// operate carries out one operation for a principal (§3.1).
func (s *server) operate(r *http.Request, who call.Principal, method string, params strictjson.Value) (reply, *fault) {
	ctx := r.Context()
	switch method {
	case "SendMessage", "SendStreamingMessage":
		var p sending
		if f := decode(params, &p); f != nil {
			return reply{}, f
		}
		if keys := r.Header.Values("Idempotency-Key"); len(keys) > 1 {
			return reply{}, badParams.says("a request has one Idempotency-Key")
		}
		p.key = call.KeyOf(r.Header.Values("Idempotency-Key")...)
		p.trace = web.TraceOf(r.Header)
		j, f := s.send(ctx, who, p)
		switch c := p.Configuration; {
		case f != nil:
			return reply{}, f
		case method == "SendStreamingMessage":
			return reply{stream: j, rests: true, history: c.HistoryLength}, nil
		case c.ReturnImmediately:
			return reply{body: map[string]any{"task": j.view(c.HistoryLength, true)}}, nil
		default:
			return reply{wait: j, history: c.HistoryLength}, nil
		}
	case "ListTasks":
		return s.list(ctx, who, params)
	case "GetExtendedAgentCard":
		return s.extended(r, who)
	case "CreateTaskPushNotificationConfig":
		var p PushConfig
		if f := decode(params, &p); f != nil {
			return reply{}, f
		}
		made, f := s.pushes.create(ctx, who, p)
		return reply{body: made}, f
	}
	var p naming
	if f := decode(params, &p); f != nil {
		return reply{}, f
	}
	if p.Tenant != "" {
		return reply{}, badParams.says("waldo has no tenants")
	}
	switch method {
	case "GetTask":
		j, err := s.tasks.get(ctx, who, p.ID)
		if err != nil {
			return reply{}, faultOf(err)
		}
		return reply{body: j.view(p.HistoryLength, true)}, nil
	case "CancelTask":
		return s.cancel(ctx, who, p.ID)
	case "SubscribeToTask":
		j, err := s.tasks.get(ctx, who, p.ID)
		switch {
		case err != nil:
			return reply{}, faultOf(err)
		case j.Status.State.ended():
			return reply{}, unsupported.says("the task has ended: read it with GetTask")
		}
		return reply{stream: j}, nil
	case "GetTaskPushNotificationConfig":
		c, f := s.pushes.get(ctx, who, p.TaskID, p.ID)
		return reply{body: c}, f
	case "ListTaskPushNotificationConfigs":
		all, f := s.pushes.list(ctx, who, p.TaskID)
		return reply{body: map[string]any{"configs": all, "nextPageToken": ""}}, f
	case "DeleteTaskPushNotificationConfig":
		return reply{body: map[string]any{}}, s.pushes.drop(ctx, who, p.TaskID, p.ID)
	}
	return reply{}, noMethod.says("A2A %s has no method %q", version, printable(method))
}

// decode reads parameters. Names match exactly; unknown ones are ignored (§5.7).
func decode(v strictjson.Value, into any) *fault {
	if v.IsZero() {
		v, _ = strictjson.Parse([]byte("{}"))
	}
	if err := v.Decode(into); err != nil {
		return badParams.says("the parameters do not have the form of this operation: %s", printable(err.Error()))
	}
	return nil
}

// send takes a message: for a new task, or for one that goes on.
func (s *server) send(ctx context.Context, who call.Principal, p sending) (*job, *fault) {
	if p.Tenant != "" {
		return nil, badParams.says("waldo has no tenants")
	}
	if f := p.Message.check(); f != nil {
		return nil, f
	}
	token, f := p.taken()
	if f != nil {
		return nil, f
	}
	if p.Message.TaskID != "" {
		return s.goOn(ctx, who, p, token)
	}
	skill, args, f := chosen(p.Message, s.host.Skills(ctx, who))
	if f != nil && skill.Named() {
		why := call.Reason{Code: unexposed, Text: "the skill is not on the agent card"}
		return nil, s.refuse(ctx, who, skill, args, f, why)
	}
	if f != nil {
		return nil, f
	}
	if _, err := call.ReadArgs(args); err != nil {
		return nil, badParams.says("%v", err)
	}
	j := &job{Principal: who, Skill: skill, Args: json.RawMessage(args.Raw()), First: p.Message.MessageID, Key: p.key,
		Trace: p.trace}
	if token != nil {
		if f := s.under(ctx, j, *token); f != nil {
			return nil, f
		}
	}
	if strings.HasPrefix(string(skill), agentPrefix) {
		j.Agent = agentID(who, p.Message.MessageID)
		if p.key != "" {
			return nil, badParams.says("an Idempotency-Key is for one call: the messageId is the key of an agent's task")
		}
	}
	j.ID, j.ContextID = id.New(id.Task), p.Message.ContextID
	if j.ContextID == "" {
		j.ContextID = id.New(id.Task)
	}
	p.Message.TaskID, p.Message.ContextID = j.ID, j.ContextID
	j.History = []Message{p.Message}
	j.say(Submitted, "")
	var push *PushConfig
	if c := p.Configuration.Push; c != nil {
		c.TaskID = j.ID
		var f *fault
		if push, f = s.pushes.checked(ctx, *c); f != nil {
			return nil, f
		}
		if err := s.pushes.record(ctx, "named", who, *push, 0, nil); err != nil {
			return nil, faultOf(err)
		}
	}
	l := s.host.Gateway().Limits
	each, all := l.TasksEach, l.Tasks
	if each == 0 {
		each = usualEach
	}
	if all == 0 {
		all = usualAll
	}
	made, err := s.tasks.create(ctx, j, push, each, all)
	if err != nil {
		return nil, faultOf(err)
	}
	s.runner.start()
	return made, nil
}

// agentID returns the id of the agent of a message: always the same, so that a message that comes again starts no other.
func agentID(who call.Principal, message string) call.Session {
	sum := sha256.Sum256([]byte(string(who) + " " + message))
	return call.Session(id.Of(id.Session, [16]byte(sum[:])))
}

// tokenMember names the token of a delegation in the metadata of a message, as in _meta of MCP.
const tokenMember = "waldo/delegation"

// taken takes the token of a delegation out of the message, so that it is neither stored nor shown. nil: none is named.
func (p *sending) taken() (*string, *fault) {
	if outer, _ := p.Metadata.Members(); !outer[tokenMember].IsZero() {
		return nil, badParams.says("%s in the metadata of the request: write it in message.metadata", tokenMember)
	}
	for i, part := range p.Message.Parts {
		if inner, _ := part.Metadata.Members(); !inner[tokenMember].IsZero() {
			return nil, badParams.says("%s in the metadata of part %d: write it in message.metadata", tokenMember, i)
		}
	}
	members, _ := p.Message.Metadata.Members()
	v, named := members[tokenMember]
	if !named {
		return nil, nil
	}
	delete(members, tokenMember)
	b, err := json.Marshal(members)
	if err == nil {
		p.Message.Metadata, err = strictjson.Parse(b)
	}
	if err != nil {
		return nil, faultOf(err)
	}
	token, _ := v.Text() // what is not text is malformed
	return &token, nil
}

// under puts a new task under the delegation of a token. For a task that goes on, it must be the task's own. The refusal
// of another, or of one that the principal cannot use, is recorded.
func (s *server) under(ctx context.Context, j *job, token string) *fault {
	proof, _ := ctx.Value(proven{}).(call.Proof)
	link, why := s.host.Enter(ctx, token, proof, j.Principal)
	if why == nil && j.ID == "" {
		j.Chain = []string{link}
		return nil
	}
	if n := len(j.Chain); why == nil && n > 0 && j.Chain[n-1] == link {
		return nil
	}
	if why == nil {
		why = &call.Reason{Code: "delegation.outside", Text: link + " is not the delegation of the task"}
	}
	args, err := strictjson.Parse(j.Args)
	if err != nil {
		return faultOf(err)
	}
	return s.refuse(ctx, j.Principal, j.Skill, args, badParams.says("%s: %s", why.Code, why.Text), *why)
}

// refuse records that a message of a principal is refused, and returns f. Only arguments of an object are recorded.
func (s *server) refuse(
	ctx context.Context, who call.Principal, skill call.Capability, args strictjson.Value, f *fault, why call.Reason,
) *fault {
	n, err := s.host.Session(ctx, who)
	if err != nil {
		return faultOf(err)
	}
	given, _ := call.ReadArgs(args) // else none
	c := call.Call{ID: id.New(id.Call), Capability: skill, Args: given, Session: n, Principal: who, Channel: call.A2A}
	if _, err := s.host.Refuse(ctx, c, why); err != nil {
		return faultOf(err)
	}
	return f
}

// weight returns the bytes of messages as they are stored, each with the mark after it.
func weight(all ...Message) (n int) {
	for _, m := range all {
		b, err := json.Marshal(m)
		if err != nil {
			return maxTask + 1
		}
		n += len(b) + 1
	}
	return n + 1
}

// goOn takes a message to a task. It quotes the token of a preview, or is noted: a person's approval comes another way.
func (s *server) goOn(ctx context.Context, who call.Principal, p sending, delegated *string) (*job, *fault) {
	j, err := s.tasks.get(ctx, who, p.Message.TaskID)
	switch {
	case err != nil:
		return nil, faultOf(err)
	case p.Message.ContextID != "" && p.Message.ContextID != j.ContextID:
		return nil, badParams.says("the task belongs to another context")
	case p.key != "" && p.key != j.Key:
		return nil, badParams.says("the task began with another Idempotency-Key, or with none")
	}
	if delegated != nil {
		if f := s.under(ctx, j, *delegated); f != nil {
			return nil, f
		}
	}
	if answer := p.Message.Metadata.Member(answerMember); !answer.IsZero() {
		if f := s.answered(ctx, j, answer); f != nil {
			return nil, f
		}
	}
	if held, err := s.tasks.held(ctx, who); err != nil {
		return nil, faultOf(err)
	} else if held+int64(weight(p.Message)) > maxBytes {
		return nil, faultOf(errSize)
	}
	token, quoted := p.Message.Metadata.Member("confirm").Text()
	ended := false
	j, _, err = s.tasks.change(ctx, j.ID, keep, func(j *job, _ string) bool {
		if ended = j.Status.State.ended(); ended {
			return false
		}
		p.Message.ContextID = j.ContextID
		if p.trace.Parent != "" {
			j.Trace = p.trace
		}
		j.History = append(j.History, p.Message)
		size := weight(j.History...)
		for len(j.History) > 2 && (len(j.History) > maxHistory || size > maxTask) {
			size -= weight(j.History[1]) - 1
			j.History = append(j.History[:1], j.History[2:]...)
		}
		if quoted && j.Status.State == InputRequired && j.Approval == "" && j.Below == "" {
			j.Confirm = token
			j.say(Submitted, "")
		}
		return true
	})
	switch {
	case err != nil:
		return nil, faultOf(err)
	case ended:
		return nil, unsupported.says("the task has ended and takes no more messages: send one without taskId")
	}
	s.runner.changed.ring(j.ID)
	s.runner.start()
	return j, nil
}

// answered takes the signed answer to the question of a task: one of this waldo, or of a peer further down. Who sent it
// counts for nothing.
func (s *server) answered(ctx context.Context, j *job, answer strictjson.Value) *fault {
	err := errors.New("the task waits for no person")
	switch {
	case j.Status.State != InputRequired:
	case j.Below != "":
		if err = s.host.PassDown(ctx, j.Below, answer.Raw()); err == nil {
			_, _, err = s.tasks.change(ctx, j.ID, keep, func(j *job, _ string) bool {
				_, had := j.Metadata[refusedMember]
				delete(j.Metadata, refusedMember)
				return had
			})
		}
	case j.Approval != "":
		err = s.host.Deliver(ctx, j.Approval, answer.Raw())
	}
	if err != nil {
		return badParams.says("%v", err)
	}
	return nil
}

func (s *server) cancel(ctx context.Context, who call.Principal, task string) (reply, *fault) {
	if _, err := s.tasks.get(ctx, who, task); err != nil {
		return reply{}, faultOf(err)
	}
	asked := ""
	j, did, err := s.tasks.change(ctx, task, free, func(j *job, _ string) bool {
		if j.Status.State.ended() {
			return false
		}
		if asked = ""; j.Status.State == InputRequired {
			asked = j.Approval
		}
		say := "The client canceled the task."
		if j.Status.State == Working {
			say += " Its call is being ended; metadata says later whether it had an effect."
		}
		j.say(Canceled, say)
		return true
	})
	switch {
	case err != nil:
		return reply{}, faultOf(err)
	case !did:
		return reply{}, notCancelable.says("the task has ended as %s", j.Status.State)
	}
	s.runner.cancel(task)
	if asked != "" {
		s.runner.withdraw(context.WithoutCancel(ctx), asked, byClient)
	}
	s.runner.changed.ring(task)
	return reply{body: j.view(nil, true)}, nil
}

func (s *server) list(ctx context.Context, who call.Principal, params strictjson.Value) (reply, *fault) {
	var l listing
	if f := decode(params, &l); f != nil {
		return reply{}, f
	}
	n := usualPage
	if l.PageSize != nil {
		if n = *l.PageSize; n < 1 || n > mostPage {
			return reply{}, badParams.says("pageSize must be 1 to %d", mostPage)
		}
	}
	if l.Status != "" && !strings.HasPrefix(string(l.Status), "TASK_STATE_") {
		return reply{}, badParams.says("status must be a state of a task, as in %s", Working)
	}
	if l.HistoryLength != nil && *l.HistoryLength < 0 {
		return reply{}, badParams.says("historyLength must be 0 or more")
	}
	if l.Tenant != "" {
		return reply{}, badParams.says("waldo has no tenants")
	}
	if l.After != "" {
		t, err := time.Parse(time.RFC3339Nano, l.After)
		if err != nil {
			return reply{}, badParams.says("statusTimestampAfter must be a time, as in 2026-01-31T12:00:00Z")
		}
		l.After = stamp(t)
	}
	p, err := s.tasks.list(ctx, who, l, n)
	if err != nil {
		return reply{}, faultOf(err)
	}
	found := make([]Task, len(p.jobs))
	for i, j := range p.jobs {
		found[i] = j.view(l.HistoryLength, l.IncludeArtifacts)
	}
	return reply{body: map[string]any{"tasks": found, "nextPageToken": p.next, "pageSize": n, "totalSize": p.total}}, nil
}

// extended is the card for an authenticated client: the skills that it can use, with the schemas of their arguments.
func (s *server) extended(r *http.Request, who call.Principal) (reply, *fault) {
	skills := s.host.Skills(r.Context(), who)
	b, err := s.sign(cardOf(s.host.Version(), s.base(r), s.host.Gateway(), skills, true), s.base(r))
	if err != nil {
		return reply{}, faultOf(err)
	}
	return reply{body: json.RawMessage(b)}, nil
}

// rest answers one request of HTTP+JSON (§11).
func (s *server) rest(w http.ResponseWriter, r *http.Request, who call.Principal) {
	out := answer{w: w, r: r}
	method, params, ok := route(r)
	if !ok {
		out.fail(noMethod.says("A2A %s has no %s %s", version, printable(r.Method), printable(r.URL.Path)))
		return
	}
	if f := spoken(w, r); f != nil {
		out.fail(f)
		return
	}
	var lease *budget.Lease
	if r.Method == http.MethodPost && r.ContentLength != 0 {
		v, _, held, f := s.body(w, r, who, mediaType, "application/json")
		if f != nil {
			out.fail(f)
			return
		}
		lease = held
		defer func() { _ = lease.Close() }()
		members, is := v.Members()
		if !is {
			out.fail(badRequest.says("the body of a request is an object"))
			return
		}
		for name, member := range members {
			if _, fixed := params[name]; !fixed { // the path counts
				params[name] = member
			}
		}
	}
	b, err := json.Marshal(params)
	if err != nil {
		out.fail(internal.says("the request cannot be read"))
		return
	}
	v, err := strictjson.Parse(b)
	if err != nil {
		out.fail(badParams.says("%s", printable(err.Error())))
		return
	}
	s.answer(out, who, method, v, lease)
}

// numbers and words are the query parameters that are no texts.
var (
	numbers = map[string]bool{"historyLength": true, "pageSize": true}
	words   = map[string]bool{"includeArtifacts": true}
)

// route finds the operation of a request of HTTP+JSON, with the parameters of its path and query.
func route(r *http.Request) (method string, params map[string]any, ok bool) {
	params = map[string]any{}
	if r.Method == http.MethodGet {
		for name, values := range r.URL.Query() {
			text := values[0]
			n, err := strconv.Atoi(text)
			switch {
			case name == "A2A-Version":
			case numbers[name] && err == nil:
				params[name] = n
			case words[name] && (text == "true" || text == "false"):
				params[name] = text == "true"
			default:
				params[name] = text
			}
		}
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/a2a/"), "/")
	get, post := r.Method == http.MethodGet, r.Method == http.MethodPost
	switch first := parts[0]; {
	case len(parts) == 1 && first == "message:send" && post:
		return "SendMessage", params, true
	case len(parts) == 1 && first == "message:stream" && post:
		return "SendStreamingMessage", params, true
	case len(parts) == 1 && first == "extendedAgentCard" && get:
		return "GetExtendedAgentCard", params, true
	case len(parts) == 1 && first == "tasks" && get:
		return "ListTasks", params, true
	case first != "tasks" || len(parts) < 2:
		return "", nil, false
	}
	task, verb, _ := strings.Cut(parts[1], ":")
	switch {
	case len(parts) == 2 && verb == "" && get:
		params["id"] = task
		return "GetTask", params, true
	case len(parts) == 2 && verb == "cancel" && post:
		params["id"] = task
		return "CancelTask", params, true
	case len(parts) == 2 && verb == "subscribe" && (get || post):
		params["id"] = task
		return "SubscribeToTask", params, true
	case len(parts) < 3 || parts[2] != "pushNotificationConfigs" || verb != "":
		return "", nil, false
	}
	params["taskId"] = task
	switch {
	case len(parts) == 3 && post:
		return "CreateTaskPushNotificationConfig", params, true
	case len(parts) == 3 && get:
		return "ListTaskPushNotificationConfigs", params, true
	case len(parts) == 4 && get:
		params["id"] = parts[3]
		return "GetTaskPushNotificationConfig", params, true
	case len(parts) == 4 && r.Method == http.MethodDelete:
		params["id"] = parts[3]
		return "DeleteTaskPushNotificationConfig", params, true
	}
	return "", nil, false
}
