package evidence

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/cli/records"
	"waldo/internal/core/audit"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
)

func newExport(g *cli.Context) *cobra.Command {
	var as string
	c := &cobra.Command{
		Use: "export [--as FORMAT]", Short: "Write the whole log to standard output", Args: cobra.NoArgs,
		Long: "jsonl has the lines as they stand; csv has one row for each record. ocsf has events of OCSF 1.8.0, and as the last\n" +
			"ones what waldo log verify finds. dsse has each record in an envelope that the key of the log's checkpoints signs.\n" +
			"Exit status 1: records in between are damaged or gone.",
		Example: "  waldo log export > log.jsonl\n  waldo log export --as csv > log.csv\n  waldo log export --as ocsf > events.jsonl\n" +
			"  waldo log export --as dsse > envelopes.jsonl",
		RunE: func(c *cobra.Command, _ []string) error {
			state, err := g.StateDir()
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			if !terminal.OnScreen(out) { // on a terminal the printed lines show progress
				bar := terminal.Progress(c.ErrOrStderr(), "exporting the log", -1)
				defer bar.Close()
				out = io.MultiWriter(out, bar)
			}
			w := bufio.NewWriter(out)
			x, err := newExporter(c.Context(), g, as, w)
			if err != nil {
				return err
			}
			n, err := audit.All(c.Context(), audit.Dir(state), x.record)
			if err == nil {
				err = x.end()
			}
			if err = errors.Join(err, w.Flush()); err != nil {
				return err
			}
			if n.Missing > 0 {
				return &exitcode.Exit{Code: exitcode.Problems, Hint: "waldo log verify says which",
					Text: strconv.FormatUint(n.Missing, 10) + " records in between are damaged or gone"}
			}
			return nil
		},
	}
	c.Flags().StringVar(&as, "as", "jsonl", "the `FORMAT`: jsonl, csv, ocsf or dsse")
	_ = c.RegisterFlagCompletionFunc("as", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return c
}

var formats = []string{"jsonl", "csv", "ocsf", "dsse"}

// exporter writes a log in one format.
type exporter interface {
	record(r audit.Record) error // the records in order
	end() error
}

func newExporter(ctx context.Context, g *cli.Context, as string, w io.Writer) (exporter, error) {
	switch as {
	case "jsonl":
		return lines{w}, nil
	case "csv":
		t := &table{w: csv.NewWriter(w), calls: calls{}}
		return t, t.w.Write(columns)
	case "ocsf":
		find := func() (audit.Report, error) { return g.Verify(ctx, nil, false) }
		return &ocsf{w: w, version: g.Version, calls: calls{}, find: find, now: time.Now}, nil
	case "dsse":
		if g.Redact {
			return nil, exitcode.Mistake("leave out --redact, or use --as jsonl", "a signed record cannot be redacted")
		}
		t, at, err := now(ctx, g)
		if err != nil {
			return nil, err
		}
		return newEnvelopes(w, t, at)
	}
	return nil, exitcode.Mistake("jsonl, csv, ocsf or dsse", "unknown format %q", as)
}

// lines writes records as they stand.
type lines struct{ w io.Writer }

func (l lines) record(r audit.Record) error { return line(l.w, r) }
func (lines) end() error                    { return nil }

// line writes a value as a line of JSON in which every character is visible.
func line(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(display.JSON(b), '\n'))
	return err
}

// fields are the members of bodies of records that have a place in an export.
type fields struct {
	records.Line
	Session  string          `json:"session"`
	Mode     string          `json:"mode"`
	Approver string          `json:"approver"`
	Key      string          `json:"key"`
	Failed   string          `json:"failed"`
	Action   string          `json:"action"`
	Object   string          `json:"object"`
	File     string          `json:"file"`
	Digest   string          `json:"digest"`
	Server   string          `json:"server"`
	Attempts []facts.Attempt `json:"attempts"` // of a server's sandbox; those of a call are facts
}

// calls holds who made each call that has not ended, because later records of a call do not say it.
type calls map[string]caller

type caller struct{ principal, session, agent, channel, mode string }

// read reads the body of a record. Records of calls get what their decision said.
func (c calls) read(r audit.Record) (f fields) {
	_ = json.Unmarshal(r.Body, &f) // a body without these has no names
	if r.Kind != audit.KindEgress {
		f.Attempts = f.Facts.Network.Attempts
	}
	if r.Kind == audit.KindDecision {
		c[f.CallID] = caller{f.Principal, f.Session, f.Agent, f.Channel, f.Mode}
	} else if of, known := c[f.CallID]; known {
		f.Principal, f.Session, f.Agent, f.Channel, f.Mode = of.principal, of.session, of.agent, of.channel, of.mode
	}
	if r.Kind == audit.KindOutcome {
		delete(c, f.CallID)
	}
	return f
}

// reasons returns why a call was decided, or ended, as it was.
func (f fields) reasons() []call.Reason { return slices.Concat(f.Reasons, f.Why) }

// columns are the names of the CSV's columns. New ones come last.
var columns = []string{"seq", "time", "kind", "id", "principal", "host", "capability", "effect", "status", "reasons",
	"side_effect", "hash", "call_id", "decision_id", "approval_id", "session", "agent"}

// table writes records as CSV (RFC 4180).
type table struct {
	w     *csv.Writer
	calls calls
}

func (t *table) record(r audit.Record) error {
	f := t.calls.read(r)
	var hosts, codes []string
	for _, a := range f.Attempts {
		if host := net.JoinHostPort(a.Host, strconv.Itoa(a.Port)); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	for _, one := range f.reasons() {
		codes = append(codes, one.Code)
	}
	if f.Refusal != "" {
		codes = append(codes, f.Refusal)
	}
	cells := []string{
		strconv.FormatUint(r.Seq, 10), r.At, r.Kind, r.ID, cmp.Or(f.Principal, f.By), strings.Join(hosts, " "), f.Capability, f.Effect, f.Status,
		strings.Join(codes, " "), f.Facts.SideEffect, r.Hash, f.CallID, f.DecisionID, f.ApprovalID, f.Session, f.Agent,
	}
	for i, s := range cells {
		cells[i] = string(display.Line(inert(s)))
	}
	return t.w.Write(cells)
}

func (t *table) end() error {
	t.w.Flush()
	return t.w.Error()
}

// inert prevents a spreadsheet from reading a cell as a formula.
func inert(s string) string {
	if s != "" && strings.IndexByte("=+-@\t\r", s[0]) >= 0 {
		return "'" + s
	}
	return s
}
