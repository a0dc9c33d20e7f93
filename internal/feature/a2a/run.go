package a2a

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"waldo/internal/app"
	"waldo/internal/core/approval"
	"waldo/internal/frontend/mcpserver"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/protocol/strictjson"
)

// Kernel is the part of waldo that carries out the calls of tasks. Its answers are those of the configuration in force.
type Kernel interface {
	// Prepare gives a call the definition of its tool, and returns why its arguments do not fit it.
	Prepare(ctx context.Context, c *call.Call) *call.Reason
	Call(ctx context.Context, c call.Call) (call.Result, error)
	Refuse(ctx context.Context, c call.Call, why call.Reason) (call.Result, error)
	// Session returns the lasting session of a principal.
	Session(ctx context.Context, p call.Principal) (call.Session, error)
	// Give gives a task to the built-in agent.
	Give(ctx context.Context, t app.Task) (call.Result, error)
	// Reads reports whether a capability only reads, by its contract.
	Reads(c call.Capability) bool
	// Exposed reports whether agents elsewhere may call a capability, or give tasks to the built-in agent.
	Exposed(c call.Capability, agent bool) bool
	// Ended reports whether a delegation of a principal's task was revoked or is over.
	Ended(ctx context.Context, p call.Principal, chain []string) bool
	// Question returns an open question and its state.
	Question(ctx context.Context, approvalID string) (approval.Question, approval.State, error)
	// Withdraw ends a question that no call waits for any more.
	Withdraw(ctx context.Context, approvalID, why string) error
	// Share returns a question as it travels to the client of its task; false: it does not.
	Share(ctx context.Context, q approval.Question) (approval.Elsewhere, bool)
}

// Limits of the calls that this process makes for tasks.
const (
	workers     = 16 // at a time
	workersEach = 4  // for one principal
	every       = time.Second
)

// elsewhere is how long a task is left to a waldo whose configuration exposes it, before it is refused.
const elsewhere = 30 * time.Second

// drain is how long calls go on once waldo is told to end; a test chooses it.
var drain = 10 * time.Second

// runner makes the calls of tasks: of each task one call at a time, and again once its question has an answer.
type runner struct {
	tasks   *tasks
	kernel  Kernel
	changed *bell // rung at each change of a task
	wake    chan struct{}

	mu      sync.Mutex
	each    map[string]int                // calls under way of each principal
	running map[string]context.CancelFunc // by task
}

func newRunner(t *tasks, k Kernel) *runner {
	return &runner{tasks: t, kernel: k, changed: &bell{}, wake: make(chan struct{}, 1), each: map[string]int{},
		running: map[string]context.CancelFunc{}}
}

// start lets run look for tasks at once.
func (r *runner) start() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run makes the calls of tasks until ctx is done. Then it waits for those under way, for a while; the next waldo takes
// the rest.
func (r *runner) run(ctx context.Context) {
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var all sync.WaitGroup
	tick := time.NewTicker(every)
	defer tick.Stop()
	for looked := (time.Time{}); ctx.Err() == nil; {
		if time.Since(looked) >= every {
			looked = time.Now()
			r.answered(ctx)
		}
		due, err := r.tasks.due(ctx)
		if err != nil && ctx.Err() == nil {
			slog.Warn("the tasks of A2A wait", "why", err)
		}
		for _, w := range due {
			if release := r.take(w); release != nil {
				all.Go(func() {
					defer r.start()
					defer release()
					r.work(work, w)
				})
			}
		}
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-tick.C:
		}
	}
	stop := time.AfterFunc(drain, end)
	defer stop.Stop()
	all.Wait()
}

// take reserves a worker for a task; nil: all are at work, all of its principal are, or the task has one.
func (r *runner) take(w waiter) (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.running) >= workers || r.each[w.principal] >= workersEach || r.running[w.id] != nil {
		return nil
	}
	r.each[w.principal]++
	r.running[w.id] = func() {}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, w.id)
		if r.each[w.principal]--; r.each[w.principal] == 0 {
			delete(r.each, w.principal)
		}
	}
}

// answered has tasks go on whose question has an answer, or can have none any more. The question of a task whose
// delegation has ended is withdrawn.
func (r *runner) answered(ctx context.Context) {
	all, err := r.tasks.asking(ctx)
	for _, w := range all {
		over := false
		if w.bound {
			j, gerr := r.tasks.get(ctx, call.Principal(w.principal), w.id)
			over = gerr == nil && r.kernel.Ended(ctx, j.Principal, j.Chain)
		}
		if _, state, qerr := r.kernel.Question(ctx, w.approval); qerr == nil && state == approval.Pending && !over {
			continue
		} else if qerr != nil && !errors.As(qerr, new(*approval.Refused)) {
			continue // the store cannot be read now
		}
		_, _, cerr := r.tasks.change(ctx, w.id, free, func(j *job, _ string) bool {
			if j.Approval != w.approval || j.Status.State != InputRequired { // canceled, or another waldo was faster
				return false
			}
			j.say(Submitted, "")
			return true
		})
		if err = errors.Join(err, cerr); over && cerr == nil {
			r.withdraw(ctx, w.approval, "the delegation of the task has ended")
		}
		r.changed.ring(w.id)
	}
	if err != nil && ctx.Err() == nil {
		slog.Warn("the tasks of A2A wait", "why", err)
	}
}

// cancel ends the call of a task in this process.
func (r *runner) cancel(task string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if end := r.running[task]; end != nil {
		end()
	}
}

// byClient is why the question of a canceled task is withdrawn.
const byClient = "the client canceled the task"

// withdraw ends the question of a task that is over, unless another task waits for its answer as well.
func (r *runner) withdraw(ctx context.Context, approvalID, why string) {
	all, err := r.tasks.asking(ctx)
	if err == nil && !slices.ContainsFunc(all, func(w waiter) bool { return w.approval == approvalID }) {
		err = r.kernel.Withdraw(ctx, approvalID, why)
	}
	if err != nil {
		slog.Warn("the question of a task that is over is still open", "approval", approvalID, "why", err)
	}
}

// work makes the call of a task that waits, and stores how it ended.
func (r *runner) work(ctx context.Context, w waiter) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	r.running[w.id] = cancel
	r.mu.Unlock()
	next := id.New(id.Call)
	j, took, err := r.tasks.change(ctx, w.id, take, func(j *job, holder string) bool {
		if holder != "" && !r.tasks.gone(holder) || j.Status.State.rests() && (holder == "" || j.Status.State.ended()) {
			return false // another waldo has it, or it waits
		}
		if !r.kernel.Exposed(j.Skill, j.Agent != "") && time.Since(j.changed()) < elsewhere {
			return false // another waldo of the state directory can have another configuration
		}
		j.CallID, j.Below = next, ""
		j.say(Working, "")
		return true
	})
	if err != nil || !took {
		if err != nil && !errors.Is(err, errNone) {
			slog.Warn("a task of A2A waits", "task", w.id, "why", err)
		}
		return
	}
	r.changed.ring(j.ID)
	result, err := r.call(call.WithAsking(ctx, func(question strictjson.Value, refused string) {
		r.asks(ctx, j, question, refused)
	}), j)
	asked := asked{}
	if err == nil && result.Status == facts.Waiting {
		asked = r.question(ctx, j, result)
	}
	canceled := false
	if _, _, cerr := r.tasks.change(ctx, j.ID, free, func(now *job, holder string) bool {
		canceled = now.CallID == j.CallID && now.Status.State.ended()
		switch {
		case now.CallID != j.CallID:
			return false
		case canceled: // by the client
			now.Metadata = now.metadata(result)
		case now.Agent != "" && result.Status == facts.Cancelled: // waldo ends; the next one goes on
			now.say(Submitted, "")
		default:
			ends(now, result, asked, err)
		}
		return true
	}); cerr != nil && !errors.Is(cerr, errNone) {
		slog.Error("the end of a task of A2A was not stored", "task", j.ID, "call", j.CallID, "why", cerr)
	}
	if canceled && result.ApprovalID != "" && result.Status == facts.Waiting {
		r.withdraw(context.WithoutCancel(ctx), result.ApprovalID, byClient)
	}
	r.changed.ring(j.ID)
}

// call passes the call of a task through the pipeline. The calls of one message have one key, so that a write is made
// once: also if waldo ends during the call, or if the message comes again when its task has made room for others.
func (r *runner) call(ctx context.Context, j *job) (call.Result, error) {
	args, err := call.ParseArgs(j.Args)
	if err != nil {
		return call.Result{}, err
	}
	if j.Agent != "" {
		task, _ := args.Value().Member("task").Text()
		return r.kernel.Give(ctx, app.Task{ID: j.Agent, Text: task, By: j.Principal, Chain: j.Chain})
	}
	n, err := r.kernel.Session(ctx, j.Principal)
	if err != nil {
		return call.Result{}, err
	}
	c := call.Call{ID: j.CallID, Capability: j.Skill, Args: args, Session: n, Principal: j.Principal, Channel: call.A2A,
		ApprovalID: j.Approval, Confirm: j.Confirm, Chain: j.Chain, Trace: j.Trace}
	if c.Key = j.Key; c.Key == "" && !r.kernel.Reads(j.Skill) {
		c.Key = "a2a:" + j.First
	}
	if why := r.kernel.Prepare(ctx, &c); why != nil {
		return r.kernel.Refuse(ctx, c, *why)
	}
	result, err := r.kernel.Call(ctx, c)
	if err != nil || result.Status != facts.OK {
		return result, err
	}
	return r.embed(ctx, c, result)
}

// ends gives a task the state in which its call left it.
func ends(j *job, result call.Result, asked asked, err error) {
	j.Metadata = j.metadata(result)
	j.Approval, j.Confirm, j.Below = "", "", ""
	switch {
	case err != nil:
		slog.Error("a call failed in waldo itself", "call", j.CallID, "capability", j.Skill, "error", err)
		j.say(Failed, "waldo itself failed over this call, and whether it took effect is not known. The operator's log says "+
			"more under "+j.CallID)
	case result.Status == facts.OK:
		j.Artifacts = artifacts(j, result)
		j.say(Completed, "")
	case result.Status == facts.Waiting && result.Preview != nil:
		j.say(InputRequired, text(result)+"\nTo have it done, send a message to this task with metadata {\"confirm\": \""+
			result.Preview.Token+"\"}.")
	case result.Status == facts.Waiting:
		j.Approval = result.ApprovalID
		if asked.travels != nil {
			j.Metadata[questionMember] = asked.travels
		}
		j.say(InputRequired, asked.text)
	case result.Earlier():
		j.say(Failed, mcpserver.Epilogue(result))
	case result.Status == facts.Denied:
		j.say(Rejected, mcpserver.Epilogue(result))
	default:
		j.Artifacts = artifacts(j, result)
		j.say(Failed, mcpserver.Epilogue(result))
	}
}

// The members of metadata by which a question travels to whoever can answer it, and its signed answer back.
const (
	questionMember = "waldo/question"
	refusedMember  = "waldo/refused" // why the last answer was not taken
	answerMember   = "waldo/answer"  // of a message
)

// asked is a question for the client of a task: in words, and where it travels as an approver signs it.
type asked struct {
	text    string
	travels any
}

// asks shows the client of a task the question of a peer that its call waits for. The zero question: it waits no more.
func (r *runner) asks(ctx context.Context, j *job, question strictjson.Value, refused string) {
	id, _ := question.Member("question").Member("id").Text()
	name, _ := question.Member("question").Member("capability").Text()
	_, did, err := r.tasks.change(ctx, j.ID, keep, func(now *job, _ string) bool {
		was, _ := now.Metadata[refusedMember].(string)
		if now.CallID != j.CallID || now.Status.State.ended() || now.Below == id && was == refused {
			return false
		}
		if now.Below, now.Metadata = id, nil; id == "" {
			now.say(Working, "")
			return true
		}
		now.Metadata = map[string]any{questionMember: question, "waldo/approval_id": id}
		say := fmt.Sprintf("A person has to agree first, at an agent that this call reaches (approval %s). Nothing was done "+
			"yet.\nThe question: may %s be called?", printable(id), printable(name))
		if refused != "" {
			now.Metadata[refusedMember] = refused
			say += "\nThe last answer was refused: " + printable(refused)
		}
		now.say(InputRequired, say+"\nThe task goes on when the question is answered.")
		return true
	})
	if err != nil {
		slog.Warn("the question of a task of A2A was not stored", "task", j.ID, "why", err)
	}
	if did {
		r.changed.ring(j.ID)
	}
}

// question is for the other agent while a human is asked. It holds what that agent sent, and nothing that is hidden from
// it.
func (r *runner) question(ctx context.Context, j *job, result call.Result) (a asked) {
	var b strings.Builder
	fmt.Fprintf(&b, "A person has to agree first (approval %s). ", result.ApprovalID)
	if j.Agent == "" {
		b.WriteString("Nothing was done yet.")
	} else {
		b.WriteString("The agent has not made this call yet.")
	}
	if q, _, err := r.kernel.Question(ctx, result.ApprovalID); err == nil {
		if shared, ok := r.kernel.Share(ctx, q); ok {
			a.travels = shared
		}
		fmt.Fprintf(&b, "\nThe question: may %s be called, danger %d, by %s?", q.Capability, q.Danger, q.Principal)
		for _, line := range q.Preview {
			b.WriteString("\n" + line)
		}
	}
	for _, why := range result.Cause() {
		b.WriteString("\n" + why.Code + ": " + why.Text)
	}
	b.WriteString("\nThe task goes on when the question is answered.")
	a.text = b.String()
	return a
}

// metadata is how a call ended, for a program.
func (j *job) metadata(r call.Result) map[string]any {
	if r.Earlier() {
		r.Facts.SideEffect = facts.Unknown // of the task: that of the earlier call
	}
	meta := r.Meta()
	if j.Agent != "" { // its calls are in the log
		delete(meta, "waldo/call_id")
		delete(meta, "waldo/decision_id")
		meta["waldo/agent"] = j.Agent
	}
	meta["waldo/side_effect"] = r.Facts.SideEffect
	return meta
}

// text joins the texts of a result.
func text(r call.Result) string {
	var all []string
	for _, c := range r.Content {
		if c.Type == "text" && c.Text != "" {
			all = append(all, c.Text)
		}
	}
	return strings.Join(all, "\n")
}

// artifacts are the contents of a result as one artifact: texts, files, links to files, and structured content as data.
func artifacts(j *job, r call.Result) []Artifact {
	var parts []Part
	size := 0
	for _, c := range r.Content {
		p, ok := part(c)
		if !ok {
			continue
		}
		size += len(c.Text) + len(c.Raw.Raw())
		parts = append(parts, p)
	}
	if !r.Structured.IsZero() {
		size += len(r.Structured.Raw())
		parts = append(parts, Part{Data: r.Structured, MediaType: "application/json"})
	}
	if r.Facts.Stderr != "" {
		parts = append(parts, textPart("stderr:\n"+r.Facts.Stderr))
	}
	switch {
	case size > maxTask/2:
		parts = []Part{textPart(fmt.Sprintf("[the result was left out: %d bytes are more than an artifact may have]", size))}
	case len(parts) == 0:
		parts = []Part{textPart("(no output)")}
	}
	return []Artifact{{ArtifactID: j.ID + "-result", Name: string(j.Skill), Parts: parts}}
}

// part is one content as a part of an artifact.
func part(c call.Content) (Part, bool) {
	switch {
	case c.Type == "text":
		return textPart(c.Text), c.Text != ""
	case c.Raw.IsZero():
		return Part{}, false
	}
	of := c.Raw
	if c.Type == "resource" {
		of = of.Member("resource")
	}
	member := func(name string) string { s, _ := of.Member(name).Text(); return s }
	file := Part{MediaType: member("mimeType"), Filename: cmp.Or(member("name"), strings.Trim(path.Base(member("uri")), "./"))}
	for _, is := range []struct {
		kind, member string
		at           **string
	}{
		{"image", "data", &file.Raw}, {"audio", "data", &file.Raw}, {"resource_link", "uri", &file.URL},
		{"resource", "blob", &file.Raw}, {"resource", "text", &file.Text},
	} {
		s, ok := of.Member(is.member).Text()
		if !ok || c.Type != is.kind {
			continue
		}
		if _, err := base64.StdEncoding.DecodeString(s); err == nil || is.at != &file.Raw {
			*is.at = &s
			return file, true
		}
	}
	return Part{Data: c.Raw, MediaType: "application/json"}, true
}

// bell wakes those who follow a task.
type bell struct {
	mu    sync.Mutex
	heard map[string]map[chan struct{}]bool
}

// listen returns a channel that gets a value after changes of a task, until stop.
func (b *bell) listen(task string) (c chan struct{}, stop func()) {
	c = make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.heard == nil {
		b.heard = map[string]map[chan struct{}]bool{}
	}
	if b.heard[task] == nil {
		b.heard[task] = map[chan struct{}]bool{}
	}
	b.heard[task][c] = true
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.heard[task], c)
		if len(b.heard[task]) == 0 {
			delete(b.heard, task)
		}
	}
}

func (b *bell) ring(task string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.heard[task] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// agentPrefix begins the id of the skill that is the built-in agent.
const agentPrefix = "agent:"

// chosen returns the capability that a message calls, and its arguments.
func chosen(m Message, skills []Skill) (call.Capability, strictjson.Value, *fault) {
	var data []strictjson.Value
	var words []string
	for _, p := range m.Parts {
		if p.Text != nil {
			words = append(words, *p.Text)
		} else {
			data = append(data, p.Data)
		}
	}
	if len(data) > 1 {
		return "", strictjson.Value{}, badParams.says("a message has one data part: the arguments of one skill")
	}
	name, args := m.Metadata.Member("skill"), strictjson.Value{}
	if len(data) == 1 {
		args = data[0]
		if inner := args.Member("arguments"); !inner.IsZero() && !args.Member("skill").IsZero() && name.IsZero() {
			name, args = args.Member("skill"), inner
		}
	}
	wanted, ok := name.Text()
	if !name.IsZero() && !ok {
		return "", args, badParams.says("the name of a skill is a text")
	}
	at := -1
	for i, s := range skills {
		if s.ID == wanted || wanted == "" && len(skills) == 1 {
			at = i
		}
	}
	switch {
	case at < 0 && wanted == "":
		return "", args, badParams.says("name the skill: message.metadata.skill with its arguments in a data part, or a " +
			`data part {"skill": …, "arguments": …}`)
	case at < 0:
		return call.Capability(wanted), args, badParams.says("%s: there is no skill %q on the agent card for you",
			unexposed, printable(wanted))
	case len(data) == 1 && args.Kind() != '{':
		return "", args, badParams.says("the arguments of a skill are an object")
	case len(data) == 1:
		return skills[at].capability, args, nil
	}
	only := skills[at].only()
	if only == "" {
		return "", args, badParams.says("skill %s takes its arguments in a data part", skills[at].ID)
	}
	a, err := call.ArgsOf(map[string]string{only: strings.Join(words, "\n")})
	if err != nil {
		return "", args, badParams.says("the text is too long")
	}
	return skills[at].capability, a.Value(), nil
}

// unexposed is the reason to refuse a skill that is not on the card.
const unexposed = "a2a.unexposed"

// reads reports whether a contract only reads.
func reads(k contract.Contract, ok bool) bool { return ok && k.Mode == contract.Read }
