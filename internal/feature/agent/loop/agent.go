// Package loop is a small agent loop: it asks a model, makes the calls that the model asks for through the pipeline,
// and gives the results back as data. A journal holds each step before the next one, so that a killed agent goes on
// without a second call.
package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"waldo/internal/feature/agent/chat"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/frontend/runcode"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
)

// Channel is that of an agent which a person starts.
const Channel = "agent"

// Model answers a conversation.
type Model interface {
	Next(ctx context.Context, r chat.Request, w chat.Watch) (chat.Reply, error)
}

// Fate holds the log's knowledge of a call. The zero value is a call without a record.
type Fate struct {
	Decided    bool // it was decided
	Ended      bool // it has an outcome
	Status     facts.Status
	SideEffect facts.SideEffect
	ApprovalID string // of a call that waits
}

// Limits bound a whole conversation, over all its runs; Time bounds one run. A zero limit allows nothing.
type Limits struct {
	Steps  int // answers of the model
	Tokens int // of requests and answers, as the provider states them
	Time   time.Duration
}

// Options are what an agent needs. Every field must be set, but System.
type Options struct {
	Model   Model
	Lists   *catalog.Catalogue
	Call    func(ctx context.Context, c call.Call) (call.Result, error)
	Refuse  func(ctx context.Context, c call.Call, why call.Reason) (call.Result, error)
	Fate    func(ctx context.Context, callID string) (Fate, error)
	Hide    func(text string) string // hides known secrets in a text of the model
	Session call.Session
	Journal Journal
	Watch   func(Event)
	System  string // the operator's instructions, after waldo's own
	Limits  Limits
}

// Ending says why a run ended.
type Ending string

// The endings. All but Done and Declined can go on.
const (
	Done      Ending = "done"
	Declined  Ending = "refused"   // every provider refused
	Waiting   Ending = "waiting"   // a call waits for a human
	Steps     Ending = "steps"     // the limit on steps
	Tokens    Ending = "tokens"    // the limit on tokens
	Time      Ending = "time"      // the limit on time
	Cancelled Ending = "cancelled" // by the person
	Stopped   Ending = "stopped"   // the operator ended the session
	Failed    Ending = "failed"    // no provider answered, or waldo failed
)

// Outcome is how a run ended.
type Outcome struct {
	End       Ending   `json:"end"`
	Why       string   `json:"why,omitempty"`
	Text      string   `json:"text"` // the last answer of the model
	Approvals []string `json:"approvals,omitempty"`
	Steps     int      `json:"steps"`
	Tokens    int      `json:"tokens"`
}

// Event is one thing that happened, for a person or a program that watches. Texts are the model's or a tool's.
type Event struct {
	Event      string          `json:"event"` // text, retry, reply, call, result, waiting
	Text       string          `json:"text,omitempty"`
	Tool       string          `json:"tool,omitempty"`
	Input      json.RawMessage `json:"input,omitempty"`
	CallID     string          `json:"call_id,omitempty"`
	DecisionID string          `json:"decision_id,omitempty"`
	ApprovalID string          `json:"approval_id,omitempty"`
	Status     facts.Status    `json:"status,omitempty"`
	Tokens     int             `json:"tokens,omitempty"`
	Provider   string          `json:"provider,omitempty"`
}

// Agent is one conversation.
type Agent struct {
	o     Options
	s     *state
	shown map[string]string // wire name to the digest of the definition that the model saw
}

// Start begins a conversation. Its calls are made under the delegations of the chain.
func Start(
	o Options, task string, who call.Principal, workspace, channel string, chain []string,
) (*Agent, error) {
	a := &Agent{o: o, s: &state{}, shown: map[string]string{}}
	return a, a.note(Entry{Kind: kindStart, Task: task, Principal: who, Workspace: workspace, Channel: channel,
		Chain: chain})
}

// Resume goes on with a conversation. More words of the person come after the results of open calls; empty: none.
func Resume(ctx context.Context, o Options, lines [][]byte, more string) (*Agent, error) {
	s, err := replay(lines)
	if err != nil {
		return nil, err
	}
	a := &Agent{o: o, s: s, shown: map[string]string{}}
	if err := a.lookUp(ctx); err != nil || more == "" {
		return a, err
	}
	if len(s.open) > 0 {
		return nil, errors.New("it has calls without a result; let it go on first, without further words")
	}
	return a, a.note(Entry{Kind: kindSay, Text: more})
}

// note writes an entry, then takes it into the state.
func (a *Agent) note(e Entry) error {
	e.At = time.Now().UTC()
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := a.o.Journal.Append(line); err != nil {
		return fmt.Errorf("writing the transcript: %w", err)
	}
	return a.s.apply(e)
}

// Run goes on until the model is done, a human is needed, or a limit is reached. An error says that waldo itself
// failed.
func (a *Agent) Run(ctx context.Context) (Outcome, error) {
	timed, cancel := context.WithTimeout(ctx, a.o.Limits.Time)
	defer cancel()
	out, err := a.loop(timed)
	switch {
	case ctx.Err() != nil:
		out, err = Outcome{End: Cancelled}, nil
	case timed.Err() != nil && out.End == "":
		out, err = Outcome{End: Time, Why: "the limit of " + a.o.Limits.Time.String() + " is reached"}, nil
	case err != nil:
		out = Outcome{End: Failed, Why: a.o.Hide(err.Error())}
	}
	out.Text, out.Steps, out.Tokens = a.s.text, a.s.steps, a.s.tokens
	return out, errors.Join(err, a.note(Entry{Kind: kindEnd, End: out.End, Text: out.Why}))
}

// loop settles the open calls, asks the model, and so on.
func (a *Agent) loop(ctx context.Context) (Outcome, error) {
	for {
		if out, err := a.settle(ctx); err != nil || out.End != "" {
			return out, err
		}
		if ctx.Err() != nil {
			return Outcome{}, ctx.Err()
		}
		if n := len(a.s.messages); n == 0 || a.s.messages[n-1].Role != chat.User {
			return Outcome{End: Done}, nil // the model has had the last word
		}
		switch l := a.o.Limits; {
		case a.s.steps >= l.Steps:
			return Outcome{End: Steps, Why: fmt.Sprintf("the limit of %d steps is reached", l.Steps)}, nil
		case a.s.tokens >= l.Tokens:
			return Outcome{End: Tokens, Why: fmt.Sprintf("the limit of %d tokens is reached", l.Tokens)}, nil
		}
		reply, err := a.ask(ctx)
		if err != nil {
			return Outcome{}, err
		}
		switch {
		case reply.Stop == chat.Refused:
			return Outcome{End: Declined, Why: "the model refused"}, nil
		case reply.Stop == chat.Length:
			if err := a.note(Entry{Kind: kindSay, Text: cutOff}); err != nil {
				return Outcome{}, err
			}
		case len(reply.Blocks) == 0:
			return Outcome{End: Done}, nil
		}
	}
}

// most is how many tokens one answer has at most.
const most = 8192

// ask gets one answer and writes it down before any of its calls is made.
func (a *Agent) ask(ctx context.Context) (chat.Reply, error) {
	r := chat.Request{System: instructions(a.o.System), Messages: a.s.messages, Tools: a.tools(ctx),
		Most: min(most, a.o.Limits.Tokens-a.s.tokens)}
	reply, err := a.o.Model.Next(ctx, r, chat.Watch{
		Text:  func(text string) { a.o.Watch(Event{Event: "text", Text: text}) },
		Retry: func(why string) { a.o.Watch(Event{Event: "retry", Text: why}) },
	})
	if err != nil {
		return reply, err
	}
	asked := a.s.asked
	for i := range reply.Blocks {
		b := &reply.Blocks[i]
		if b.Call == nil {
			b.Text = a.o.Hide(b.Text)
			continue
		}
		asked++
		b.Call.ID = fmt.Sprintf("call_%d", asked) // of waldo's own: another provider can go on
	}
	if reply.Stop == chat.Refused {
		reply.Blocks = nil // the refusal is no part of the conversation
	}
	if err := a.note(Entry{Kind: kindReply, Reply: &reply}); err != nil {
		return reply, err
	}
	a.o.Watch(Event{Event: "reply", Text: a.s.text, Tokens: reply.Usage.Sum(), Provider: reply.Provider})
	return reply, nil
}

// maxTools is how many tools a model is shown. With more, it finds the others with search_tools.
const maxTools = 100

// tools are the definitions that the model gets: those of the tools that its principal can use.
func (a *Agent) tools(ctx context.Context) (out []chat.Tool) {
	all := a.o.Lists.List(ctx, a.viewer())
	all = slices.DeleteFunc(slices.Clone(all), func(e *catalog.Entry) bool {
		return e.Capability == runcode.Name && e.Server == ""
	})
	many := len(all) > maxTools
	for _, e := range all {
		search := e.Server == "" && e.Capability == catalog.SearchTools
		if search && !many || many && e.Server != "" && !slices.Contains(a.s.found, e.Wire) {
			continue
		}
		a.shown[e.Wire] = e.Digest
		out = append(out, chat.Tool{Name: e.Wire, Description: e.Description, Schema: schemaOf(e)})
	}
	return out
}

func (a *Agent) viewer() catalog.Viewer {
	return catalog.Viewer{Principal: a.s.start.Principal, Channel: a.s.start.Channel}
}

// settle makes the open calls, in order. A call that waits for a human does not hold up the others.
func (a *Agent) settle(ctx context.Context) (Outcome, error) {
	var waits []string
	for _, o := range slices.Clone(a.s.open) {
		if ctx.Err() != nil {
			return Outcome{}, ctx.Err()
		}
		approval, stopped, err := a.one(ctx, o)
		if err != nil {
			return Outcome{}, err
		}
		if stopped {
			return Outcome{End: Stopped, Why: "the operator has ended the session"}, nil
		}
		if approval != "" && !slices.Contains(waits, approval) { // two equal calls share one
			waits = append(waits, approval)
		}
	}
	if len(waits) > 0 {
		return Outcome{End: Waiting, Approvals: waits}, nil
	}
	return Outcome{}, nil
}

// one makes one call of the model. It returns the id of an approval that the call waits for.
func (a *Agent) one(ctx context.Context, o open) (approval string, stopped bool, err error) {
	if o.Fault != "" {
		return "", false, a.close(o, Entry{Text: "waldo: not called: " + o.Fault, Error: true})
	}
	args, err := call.ParseArgs(o.Input)
	if err != nil {
		return "", false, a.close(o, Entry{Text: "waldo: not called: " + err.Error(), Error: true})
	}
	c := call.Call{ID: id.New(id.Call), Args: args, Session: a.o.Session, Principal: a.s.start.Principal,
		Channel: a.s.start.Channel, ApprovalID: o.approvalID, Chain: a.s.start.Chain}
	e, found := a.o.Lists.Lookup(ctx, o.Tool)
	if found && e.Server == "" && e.Capability == catalog.SearchTools {
		return "", false, a.search(ctx, o, args)
	}
	do := func(ctx context.Context) (call.Result, error) { return a.o.Call(ctx, c) }
	if found {
		c.Of(e.Tool)
		if seen := a.shown[e.Wire]; seen != "" {
			c.ToolDigest = seen
		}
	}
	if why := a.against(&c, o.Tool, e, found); why != nil {
		do = func(ctx context.Context) (call.Result, error) { return a.o.Refuse(ctx, c, *why) }
	}
	if err := a.note(Entry{Kind: kindCalling, Asked: o.ID, CallID: c.ID, Capability: string(c.Capability)}); err != nil {
		return "", false, err
	}
	a.o.Watch(Event{Event: "call", Tool: string(c.Capability), Input: o.Input, CallID: c.ID})
	r, err := do(ctx)
	if err != nil {
		text := "waldo: waldo itself failed over this call; whether it took effect is not known."
		return "", false, errors.Join(err, a.close(o, Entry{Text: text, Error: true, CallID: c.ID}))
	}
	if r.Status == facts.Waiting && r.Suspended == nil {
		a.o.Watch(Event{Event: "waiting", Tool: string(c.Capability), CallID: c.ID, ApprovalID: r.ApprovalID})
		return r.ApprovalID, false, a.note(Entry{Kind: kindWaiting, Asked: o.ID, ApprovalID: r.ApprovalID})
	}
	a.o.Watch(Event{Event: "result", Tool: string(c.Capability), CallID: c.ID, DecisionID: r.DecisionID, Status: r.Status,
		Text: reason(r)})
	stopped = slices.ContainsFunc(r.Why, func(w call.Reason) bool { return w.Code == call.SessionStopped })
	return "", stopped, a.close(o, Entry{Text: render(c, r), Error: r.IsError, Status: r.Status, CallID: c.ID,
		DecisionID: r.DecisionID})
}

// against says why a call goes no further than this front end. A tool that no contract covers is the pipeline's to
// deny.
func (a *Agent) against(c *call.Call, name string, e *catalog.Entry, found bool) *call.Reason {
	if found {
		faults := e.Check(c.Args)
		if len(faults) == 0 || !a.o.Lists.Shows(a.viewer(), e) {
			return nil
		}
		var say []string
		for _, f := range faults {
			say = append(say, f.String())
		}
		return &call.Reason{Code: "args.schema", Text: "the arguments do not fit the tool: " + strings.Join(say, "; ")}
	}
	c.Capability = call.Capability(strings.ReplaceAll(name, "__", "."))
	switch {
	case !c.Capability.Named():
		c.Capability = "unnamed"
		return &call.Reason{Code: "capability.malformed", Text: "this is not the name of a tool"}
	case a.o.Lists.Visible(c.Capability):
		return &call.Reason{Code: "tool.unknown", Text: "this tool is no longer listed"}
	}
	return nil
}

// close gives an open call its result.
func (a *Agent) close(o open, e Entry) error {
	e.Kind, e.Asked = kindResult, o.ID
	return a.note(e)
}

// search answers search_tools. The tools that it finds are shown from the next step on.
func (a *Agent) search(ctx context.Context, o open, args call.Args) error {
	var in struct {
		Query string `json:"query"`
	}
	if err := args.Value().Decode(&in); err != nil || in.Query == "" {
		return a.close(o, Entry{Text: "waldo: search_tools needs a query", Error: true})
	}
	var told []catalog.SearchResult
	var names []string
	for _, e := range a.o.Lists.Search(ctx, a.viewer(), in.Query, 0) {
		told, names = append(told, e.Tell(catalog.Basic)), append(names, e.Wire)
	}
	b, err := json.Marshal(map[string]any{"tools": told})
	if err != nil {
		return err
	}
	return a.close(o, Entry{Text: string(b), Found: names, Status: facts.OK})
}

// lookUp closes the calls that were under way when the agent was killed. It takes the outcome of each from the log and
// makes no call again. A call that the log shows as waiting goes on to wait.
func (a *Agent) lookUp(ctx context.Context) error {
	for _, o := range slices.Clone(a.s.open) {
		if o.callID == "" {
			continue
		}
		f, err := a.o.Fate(ctx, o.callID)
		if err != nil {
			return fmt.Errorf("looking up call %s: %w", o.callID, err)
		}
		if f.Ended && f.Status == facts.Waiting && f.ApprovalID != "" {
			err = a.note(Entry{Kind: kindWaiting, Asked: o.ID, ApprovalID: f.ApprovalID})
		} else {
			err = a.close(o, Entry{Text: interrupted(o, f), Error: true, CallID: o.callID, Status: f.Status})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
