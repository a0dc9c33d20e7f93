// Package notify runs the operator's command for each approval question.
package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/model/contract"
)

// Notifier runs the operator's command for each question, to alert a person who is away.
type Notifier struct {
	rules   func() contract.Approvals
	prepare func(command []string) (argv []string, dir string, err error)
	slots   chan struct{}
}

// How many of the operator's commands run at a time, and how long one runs.
const (
	maxNotifying = 4
	notifyTime   = 30 * time.Second
	Wait         = 2 * time.Second // how long a waldo that ends waits for them; they then go on alone
)

// New returns a notifier that reads the rules at each question. prepare gives a command as it is to run and an empty
// folder to start in, or refuses it.
func New(rules func() contract.Approvals, prepare func([]string) (argv []string, dir string, err error)) Notifier {
	return Notifier{rules, prepare, make(chan struct{}, maxNotifying)}
}

// notice is the input of the command. It holds the agent's words only if the operator asks for them.
type notice struct {
	Approval   string          `json:"approval_id"`
	Capability string          `json:"capability"`
	Principal  string          `json:"principal"`
	Session    string          `json:"session"`
	Channel    string          `json:"channel"`
	Mode       string          `json:"mode"`
	Danger     int             `json:"danger"`
	Role       string          `json:"role,omitempty"`
	Because    []string        `json:"because"` // codes
	Created    time.Time       `json:"created"`
	Expires    time.Time       `json:"expires"`
	Answer     string          `json:"answer"` // the command that answers
	Args       json.RawMessage `json:"args,omitempty"`
	Notes      []string        `json:"notes,omitempty"` // values of the tokens in the arguments, and the preview
}

// Name satisfies approval.Carrier.
func (Notifier) Name() string { return "notify" }

// Notify runs the command and waits for it; the call that asked does not. It fails in the log of
// waldo's own messages alone.
func (n Notifier) Notify(ctx context.Context, q approval.Question) {
	rules := n.rules()
	if len(rules.Notify) == 0 {
		return
	}
	select {
	case n.slots <- struct{}{}:
		defer func() { <-n.slots }()
	default:
		slog.Warn("approval.notify was not run: too many of its commands are at work", "approval", q.ID)
		return
	}
	told := notice{
		Approval: q.ID, Capability: string(q.Capability), Principal: string(q.Principal), Session: string(q.Session),
		Channel: q.Channel, Mode: q.Mode, Danger: q.Danger, Role: q.Role, Because: []string{}, Created: q.Created,
		Expires: q.Expires, Answer: "waldo approve " + q.ID,
	}
	for _, r := range q.Reasons {
		told.Because = append(told.Because, r.Code)
	}
	if rules.NotifyArguments {
		told.Args, told.Notes = q.Args, slices.Concat(q.Notes, q.Preview)
	}
	b, err := json.Marshal(told)
	argv, dir := rules.Notify, ""
	if err == nil {
		argv, dir, err = n.prepare(rules.Notify)
	}
	if err == nil {
		defer os.RemoveAll(dir)
		ctx, cancel := context.WithTimeout(ctx, notifyTime)
		defer cancel()
		c := exec.CommandContext(ctx, argv[0], argv[1:]...)
		c.Dir = dir
		c.Stdin, c.WaitDelay = bytes.NewReader(append(b, '\n')), time.Second
		err = c.Run()
	}
	if err != nil {
		slog.Warn("approval.notify failed", "approval", q.ID, "command", rules.Notify[0], "why", err)
	}
}
