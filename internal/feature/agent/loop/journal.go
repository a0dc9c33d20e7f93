package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"waldo/internal/feature/agent/chat"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// Journal keeps the entries of one agent. Append returns when the entry is on the disk.
type Journal interface {
	Append(line []byte) error
}

// The kinds of entry.
const (
	kindStart   = "start"   // the task
	kindSay     = "say"     // more words of the person
	kindReply   = "reply"   // an answer of the model, whole
	kindCalling = "calling" // a call that begins
	kindResult  = "result"  // its result as the model gets it
	kindWaiting = "waiting" // it waits for a human
	kindEnd     = "end"     // why the loop ended
)

// Entry is one line of the journal. Only the fields of its kind are set.
type Entry struct {
	Kind string    `json:"kind"`
	At   time.Time `json:"at"`

	Task      string         `json:"task,omitempty"`
	Principal call.Principal `json:"principal,omitempty"`
	Workspace string         `json:"workspace,omitempty"`
	Channel   string         `json:"channel,omitempty"`
	Chain     []string       `json:"chain,omitempty"` // the delegations that its calls are made under

	Reply *chat.Reply `json:"reply,omitempty"`

	Asked      string       `json:"asked,omitempty"`   // the id of the model's call
	CallID     string       `json:"call_id,omitempty"` // "c_…"
	Capability string       `json:"capability,omitempty"`
	ApprovalID string       `json:"approval_id,omitempty"`
	Text       string       `json:"text,omitempty"`
	Error      bool         `json:"error,omitempty"`
	Status     facts.Status `json:"status,omitempty"`
	DecisionID string       `json:"decision_id,omitempty"`
	Found      []string     `json:"found,omitempty"` // tools that a search showed

	End Ending `json:"end,omitempty"`
}

// open is a call of the model's last answer that has no result yet.
type open struct {
	chat.Call
	callID     string // of the call that began; empty: it has not
	capability string
	approvalID string // the call waits for this answer
}

// state is a conversation, as its entries tell it.
type state struct {
	start    Entry
	messages []chat.Message
	open     []open       // in the order of the answer
	results  []chat.Block // of the calls that have one
	order    []string     // the ids of the calls of the last answer
	asked    int          // calls of the model so far
	steps    int          // answers of the model
	tokens   int          // of all answers
	found    []string     // tools that searches showed
	last     Ending       // of the last run; empty: it was killed, or none was
	text     string       // of the last answer
}

// Read returns the start of a transcript, and how its last run ended: empty if it was killed.
func Read(lines [][]byte) (start Entry, last Ending, text string, err error) {
	s, err := replay(lines)
	if err != nil {
		return Entry{}, "", "", err
	}
	return s.start, s.last, s.text, nil
}

// replay makes the state from the lines of a journal.
func replay(lines [][]byte) (*state, error) {
	s := &state{}
	for i, line := range lines {
		var e Entry
		err := json.Unmarshal(line, &e)
		if err == nil {
			err = s.apply(e)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of the transcript: %w", i+1, err)
		}
	}
	if s.start.Kind == "" {
		return nil, errors.New("the transcript has no beginning")
	}
	return s, nil
}

var errOrder = errors.New("it does not follow from the lines before it")

// apply takes one entry into the state.
func (s *state) apply(e Entry) error {
	if (e.Kind == kindStart) != (s.start.Kind == "") {
		return errOrder
	}
	if e.Kind != kindEnd {
		s.last = ""
	}
	switch e.Kind {
	case kindStart:
		s.start = e
		s.say(e.Task)
	case kindSay:
		if len(s.open) > 0 {
			return errOrder
		}
		s.say(e.Text)
	case kindReply:
		if len(s.open) > 0 || e.Reply == nil {
			return errOrder
		}
		s.reply(*e.Reply)
	case kindCalling, kindWaiting, kindResult:
		i := s.find(e.Asked)
		if i < 0 {
			return errOrder
		}
		o := &s.open[i]
		switch e.Kind {
		case kindCalling:
			o.callID, o.capability = e.CallID, e.Capability
		case kindWaiting:
			o.callID, o.approvalID = "", e.ApprovalID
		default:
			s.found = append(s.found, e.Found...)
			s.result(i, e)
		}
	case kindEnd:
		s.last = e.End
	default:
		return fmt.Errorf("unknown kind %q", e.Kind)
	}
	return nil
}

func (s *state) find(asked string) int {
	for i, o := range s.open {
		if o.ID == asked && asked != "" {
			return i
		}
	}
	return -1
}

// say adds words of the person, to the message of the user that is last, if there is one.
func (s *state) say(text string) {
	b := chat.Block{Text: text}
	if n := len(s.messages); n > 0 && s.messages[n-1].Role == chat.User {
		s.messages[n-1].Blocks = append(s.messages[n-1].Blocks, b)
		return
	}
	s.messages = append(s.messages, chat.Message{Role: chat.User, Blocks: []chat.Block{b}})
}

func (s *state) reply(r chat.Reply) {
	s.steps++
	s.tokens += r.Usage.Sum()
	s.text, s.order = "", nil
	for _, b := range r.Blocks {
		if b.Call != nil {
			s.asked++
			s.order = append(s.order, b.Call.ID)
			s.open = append(s.open, open{Call: *b.Call})
		} else {
			s.text += b.Text
		}
	}
	if len(r.Blocks) > 0 { // providers refuse an empty message
		s.messages = append(s.messages, chat.Message{Role: chat.Assistant, Blocks: r.Blocks})
	}
}

// result closes an open call. The last one brings all results to the model, in one message.
func (s *state) result(i int, e Entry) {
	o := s.open[i]
	s.open = append(s.open[:i:i], s.open[i+1:]...)
	s.results = append(s.results, chat.Block{
		Result: &chat.Result{CallID: o.ID, Tool: o.Tool, Text: e.Text, Error: e.Error}})
	if len(s.open) == 0 {
		slices.SortStableFunc(s.results, func(a, b chat.Block) int { // some APIs know them by their order alone
			return slices.Index(s.order, a.Result.CallID) - slices.Index(s.order, b.Result.CallID)
		})
		s.messages = append(s.messages, chat.Message{Role: chat.User, Blocks: s.results})
		s.results = nil
	}
}
