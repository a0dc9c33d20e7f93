package main

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
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/config"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/executor/runner"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
)

//go:embed demo/waldo.yaml
var demoConfig string

//go:embed demo/agent.py
var demoScript string

func newDemo(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "demo", Short: "The main job, end to end, with everything built in", Args: cobra.NoArgs,
		Long: "Starts an example help desk with 5,000 customers as an MCP server in a sandbox of its own, runs an agent's script in\n" +
			"another sandbox, answers its two questions through the approval path, once yes and once no, and shows what each guard did.\n" +
			"It works in a temporary state directory and leaves nothing behind.",
		Example: "  waldo demo\n  waldo demo --json",
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := os.MkdirTemp("", "waldo-demo-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			out := c.OutOrStdout()
			if g.json {
				out = io.Discard
			}
			d := &demo{g: &global{state: filepath.Join(dir, "state"), json: g.json}, out: out, p: terminal.Painter(out)}
			err = d.run(c.Context())
			if g.json && d.result.CallID != "" {
				err = errors.Join(err, printJSON(c.OutOrStdout(), d.result.Facts))
			}
			return err
		},
	}
}

// demoPatience is how long the demo waits for its own answers.
const demoPatience = 30 * time.Second

// demo runs the demonstration. It has no policy of its own.
type demo struct {
	g      *global
	out    io.Writer
	p      terminal.Paint
	mu     sync.Mutex // the script and the approvals speak at the same time
	desk   *approval.Service
	signer approval.Signer
	asked  []approval.Question
	result call.Result
}

func (d *demo) say(format string, a ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	display.Fprintf(d.out, format+"\n", a...)
}

func (d *demo) run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cfg, problems := config.Parse("demo.yaml", []byte(strings.Replace(demoConfig, "[WALDO,", "["+quoteYAML(self)+",", 1)))
	if len(problems) > 0 {
		return problems
	}
	h, err := openApplication(ctx, d.g, app.Options{Cfg: cfg, Patience: demoPatience, Carriers: []approval.Notifier{d}})
	if err != nil {
		return err
	}
	defer h.Close()
	if err := d.enrol(ctx, h); err != nil {
		return err
	}
	d.say("%s", d.p.Head("An agent's script, in a sandbox. It has tools, and nothing else:"))
	d.say("%s\n", display.Text(indent(strings.TrimSpace(demoScript), "    ")))
	d.say("%s", d.p.Head("It runs."))
	lines := &prefixed{d: d, prefix: "    " + d.p.Dim("script│") + " "}
	d.result, err = h.Once(ctx, "run_python", map[string]any{"code": demoScript}, &runner.Options{Run: call.Run{Name: "agent.py"}, Streams: runner.Streams{Stdout: lines, Stderr: lines}})
	lines.flush()
	if err != nil {
		return err
	}
	if d.result.Status != facts.OK {
		return &exit{code: exitFailed, text: "the demo's script did not succeed: " + runner.Sentence(d.result.Facts), hint: "waldo doctor says what is missing on this machine"}
	}
	d.account()
	if err := d.explain(ctx, h); err != nil {
		return err
	}
	if err := h.Close(); err != nil { // the log's head is written at close
		return err
	}
	return d.verify(ctx)
}

// enrol creates the demo's own approver. A real one is enrolled at a terminal.
func (d *demo) enrol(ctx context.Context, h *app.App) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	h.Approvals.Root = "" // the operator's first approver has no part in the demo
	d.desk, d.signer = h.Approvals, approval.NewSigner("demo", private)
	_, err = h.Approvals.EnrollKey(ctx, "demo", []string{"manager"}, public, d.signer)
	return err
}

// Name and Notify make the demo the carrier of approval questions. It approves the write and rejects the deletion, as
// a person with a key would.
func (d *demo) Name() string { return "demo" }

func (d *demo) Notify(ctx context.Context, q approval.Question) {
	yes := q.Capability == "helpdesk.create_ticket"
	word, reason := d.p.Good("yes"), ""
	if !yes {
		word, reason = d.p.Bad("no"), "customers are not deleted by scripts"
	}
	var args []string
	for _, f := range q.Fields() {
		args = append(args, f.Path+"="+f.Value)
	}
	d.say("    %s %s(%s), danger %d: %s", d.p.Warn("asked │"), q.Capability, strings.Join(args, ", "), q.Danger, d.p.Dim(q.ID))
	d.say("    %s %s, signed for exactly these arguments %s", d.p.Warn("human │"), word, d.p.Dim(q.ArgsDigest[:19]+"…"))
	d.mu.Lock()
	d.asked = append(d.asked, q)
	d.mu.Unlock()
	if err := d.desk.Answer(ctx, d.signer, q, yes, reason); err != nil {
		d.say("    the answer was not taken: %v", err)
	}
}

// account prints the facts of the run.
func (d *demo) account() {
	f := d.result.Facts
	d.say("\n%s", d.p.Head("What is known of the run, measured from outside:"))
	d.say("%s", display.Text(indent(strings.TrimSpace(runner.Report(f)), "    ")))
	d.say("    Sandbox: %s %s, network %s, side effect %s", f.Sandbox.Driver, d.p.Dim(f.Sandbox.ID), f.Network.Policy, f.SideEffect)
	if len(f.Files.Artifacts) > 0 {
		d.say("    Kept in the workspace: %s", strings.Join(f.Files.Artifacts, ", "))
	}
}

// explain prints why the write was allowed, from the log.
func (d *demo) explain(ctx context.Context, h *app.App) error {
	for _, q := range d.asked {
		if q.Capability != "helpdesk.create_ticket" {
			continue
		}
		records, err := audit.Find(ctx, audit.Dir(h.State), q.DecisionID)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := tellStory(&b, d.p, records); err != nil {
			return err
		}
		d.say("\n%s\n%s", d.p.Head("waldo explain "+q.DecisionID), display.Text(indent(strings.TrimSpace(b.String()), "    ")))
		return nil
	}
	return errors.New("the demo's script asked for no ticket")
}

func (d *demo) verify(ctx context.Context) error {
	r, err := verify(ctx, d.g)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	tellVerified(&b, r)
	d.say("\n%s\n%s", d.p.Head("waldo log verify"), display.Text(indent(strings.TrimSpace(b.String()), "    ")))
	if !r.OK {
		return &exit{code: exitProblems, text: "the demo's log is not sound"}
	}
	return nil
}

// prefixed writes whole lines, each behind a prefix.
type prefixed struct {
	d      *demo
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

func indent(s, by string) string { return by + strings.ReplaceAll(s, "\n", "\n"+by) }

// quoteYAML quotes a string as YAML and JSON both read it.
func quoteYAML(s string) string {
	b, _ := json.Marshal(s) // a string always encodes
	return string(b)
}
