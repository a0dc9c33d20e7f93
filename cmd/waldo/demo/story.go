// Package demo runs an agent's script against an example server, and shows what each guard does.
package demo

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"waldo/internal/app"
	"waldo/internal/cli/exitcode"
	"waldo/internal/cli/records"
	"waldo/internal/config"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/executor/runner"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
)

//go:embed waldo.yaml
var setup string

//go:embed agent.py
var script string

// patience is how long the demo waits for its own answers.
const patience = 30 * time.Second

// Story runs the demonstration. It has no policy of its own.
type Story struct {
	out     io.Writer
	p       terminal.Paint
	open    func(ctx context.Context, o app.Options) (*app.App, error)
	verify  func(ctx context.Context) (audit.Report, error)
	mu      sync.Mutex // the script and the approvals speak at the same time
	service *approval.Service
	signer  approval.Signer
	asked   []approval.Question
	Result  call.Result
}

// New returns a demonstration that prints to out. open opens the application, and verify its log.
func New(
	out io.Writer, open func(context.Context, app.Options) (*app.App, error),
	verify func(context.Context) (audit.Report, error),
) *Story {
	return &Story{out: out, p: terminal.Painter(out), open: open, verify: verify}
}

func (d *Story) say(format string, a ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	display.Fprintf(d.out, format+"\n", a...)
}

// Run runs it.
func (d *Story) Run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cfg, problems := config.Parse("demo.yaml", []byte(strings.Replace(setup, "[WALDO,", "["+quoteYAML(self)+",", 1)))
	if len(problems) > 0 {
		return problems
	}
	h, err := d.open(ctx, app.Options{Cfg: cfg, Patience: patience, Carriers: []approval.Notifier{d}})
	if err != nil {
		return err
	}
	defer h.Close()
	if err := d.enrol(ctx, h); err != nil {
		return err
	}
	d.say("%s", d.p.Head("An agent's script, in a sandbox. It has tools, and nothing else:"))
	d.say("%s\n", display.Text(indent(strings.TrimSpace(script))))
	d.say("%s", d.p.Head("It runs."))
	lines := &prefixed{d: d, prefix: "    " + d.p.Dim("script│") + " "}
	d.Result, err = h.Once(ctx, "run_python", map[string]any{"code": script},
		&runner.Options{Run: call.Run{Name: "agent.py"}, Streams: runner.Streams{Stdout: lines, Stderr: lines}})
	lines.flush()
	if err != nil {
		return err
	}
	if d.Result.Status != facts.OK {
		return &exitcode.Exit{
			Code: exitcode.Failed, Text: "the demo's script did not succeed: " + runner.Sentence(d.Result.Facts),
			Hint: "waldo doctor says what is missing on this machine",
		}
	}
	d.account()
	if err := d.explain(ctx, h); err != nil {
		return err
	}
	if err := h.Close(); err != nil { // the log's head is written at close
		return err
	}
	return d.tellVerified(ctx)
}

// enrol creates the demo's own approver. A real one is enrolled at a terminal.
func (d *Story) enrol(ctx context.Context, h *app.App) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	h.Approvals.Root = "" // the operator's first approver has no part in the demo
	d.service, d.signer = h.Approvals, approval.NewSigner("demo", private)
	_, err = h.Approvals.EnrollKey(ctx, "demo", []string{"manager"}, public, d.signer)
	return err
}

// Name and Notify make the demo the carrier of approval questions. It approves the write and rejects the deletion, as
// a person with a key would.
func (d *Story) Name() string { return "demo" }

func (d *Story) Notify(ctx context.Context, q approval.Question) {
	yes := q.Capability == "helpdesk.create_ticket"
	word, reason := d.p.Good("yes"), ""
	if !yes {
		word, reason = d.p.Bad("no"), "customers are not deleted by scripts"
	}
	var args []string
	for _, f := range q.Fields() {
		args = append(args, f.Path+"="+f.Value)
	}
	d.say("    %s %s(%s), danger %d: %s", d.p.Warn("asked │"), q.Capability, strings.Join(args, ", "),
		q.Danger, d.p.Dim(q.ID))
	d.say("    %s %s, signed for exactly these arguments %s", d.p.Warn("human │"), word, d.p.Dim(q.ArgsDigest[:19]+"…"))
	d.mu.Lock()
	d.asked = append(d.asked, q)
	d.mu.Unlock()
	if err := d.service.Answer(ctx, d.signer, q, yes, reason); err != nil {
		d.say("    the answer was not taken: %v", err)
	}
}

// account prints the facts of the run.
func (d *Story) account() {
	f := d.Result.Facts
	d.say("\n%s", d.p.Head("Facts of the run, measured from outside:"))
	d.say("%s", display.Text(indent(strings.TrimSpace(runner.Report(f)))))
	d.say("    Sandbox: %s %s, network %s, side effect %s", f.Sandbox.Driver, d.p.Dim(f.Sandbox.ID),
		f.Network.Policy, f.SideEffect)
	if len(f.Files.Artifacts) > 0 {
		d.say("    Kept in the workspace: %s", strings.Join(f.Files.Artifacts, ", "))
	}
}

// explain prints why the write was allowed, from the log.
func (d *Story) explain(ctx context.Context, h *app.App) error {
	for _, q := range d.asked {
		if q.Capability != "helpdesk.create_ticket" {
			continue
		}
		found, err := audit.Find(ctx, audit.Dir(h.State), q.DecisionID)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := records.Story(&b, d.p, found, records.Undos{}, nil); err != nil {
			return err
		}
		d.say("\n%s\n%s", d.p.Head("waldo explain "+q.DecisionID),
			display.Text(indent(strings.TrimSpace(b.String()))))
		return nil
	}
	return errors.New("the demo's script asked for no ticket")
}

// tellVerified prints the verdict on the log.
func (d *Story) tellVerified(ctx context.Context) error {
	r, err := d.verify(ctx)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	records.Verified(&b, r)
	d.say("\n%s\n%s", d.p.Head("waldo log verify"), display.Text(indent(strings.TrimSpace(b.String()))))
	if !r.OK {
		return &exitcode.Exit{Code: exitcode.Problems, Text: "the demo's log is not sound"}
	}
	return nil
}

// prefixed writes whole lines, each behind a prefix.
type prefixed struct {
	d      *Story
	prefix display.Text
	rest   []byte
}

func (w *prefixed) Write(b []byte) (int, error) {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	w.rest = append(w.rest, b...)
	for {
		line, rest, ok := bytes.Cut(w.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		display.Fprintf(w.d.out, "%s%s\n", w.prefix, display.Line(string(line)))
		w.rest = rest
	}
}

func (w *prefixed) flush() {
	if len(w.rest) > 0 {
		_, _ = w.Write([]byte("\n"))
	}
}

func indent(s string) string { return "    " + strings.ReplaceAll(s, "\n", "\n    ") }

// quoteYAML quotes a string as YAML and JSON both read it.
func quoteYAML(s string) string {
	b, _ := json.Marshal(s) // a string always encodes
	return string(b)
}
