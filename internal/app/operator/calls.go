package operator

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"

	"waldo/internal/core/approval/passkey"
	"waldo/internal/core/audit"
	"waldo/internal/frontend/console"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
)

// Calls satisfies console.Backend: the newest first. The cursor is the number of the last call's decision.
func (p *Operator) Calls(
	ctx context.Context, f console.CallFilter, page console.Page,
) (console.List[console.Call], error) {
	out := console.List[console.Call]{Items: []console.Call{}}
	before, err := number(page.Cursor)
	if err == nil {
		err = p.index.use(ctx)
	}
	if err != nil {
		return out, err
	}
	p.index.newest(func(c console.Call) bool {
		if before > 0 && c.Seq >= before || !fits(f, c) {
			return true
		}
		if len(out.Items) == page.Limit {
			out.Next = strconv.FormatUint(out.Items[page.Limit-1].Seq, 10)
			return false
		}
		out.Items = append(out.Items, c)
		return true
	})
	return out, nil
}

func number(cursor string) (uint64, error) {
	if cursor == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(cursor, 10, 63)
	if err != nil || n == 0 {
		return 0, console.Problemf(http.StatusBadRequest, "cursor", "the cursor is not one of this list")
	}
	return n, nil
}

func fits(f console.CallFilter, c console.Call) bool {
	for want, have := range map[*string]string{
		&f.Capability: c.Capability, &f.Principal: c.Principal, &f.Effect: c.Effect, &f.Status: c.Status,
		&f.Session: c.Session,
	} {
		if *want != "" && *want != have && (want != &f.Capability || !strings.Contains(have, *want)) {
			return false
		}
	}
	return true
}

// Call satisfies console.Backend.
func (p *Operator) Call(ctx context.Context, callID string) (console.CallLife, error) {
	var l console.CallLife
	if !id.Is(id.Call, callID) && !id.Is(id.Decision, callID) {
		return l, console.Problemf(http.StatusNotFound, "call.unknown", "no such call")
	}
	if err := p.index.use(ctx); err != nil {
		return l, err
	}
	all, err := audit.Find(ctx, audit.Dir(p.o.Store.Dir()), callID)
	if err != nil {
		return l, err
	}
	l.Answers, l.Children, l.Records, l.Secrets = []console.Answer{}, []console.Call{}, []console.Record{}, []string{}
	l.Lines, l.Why = []string{}, []call.Reason{}
	for _, r := range all {
		var b body
		_ = json.Unmarshal(r.Body, &b)
		if b.CallID != callID && b.DecisionID != callID {
			if r.Kind == audit.KindDecision && b.Parent == callID {
				l.Children = append(l.Children, console.Call{
					ID: b.CallID, Seq: r.Seq, At: r.At, Capability: b.Capability, Effect: b.Effect, Decision: b.DecisionID,
					Status: p.status(b.DecisionID),
				})
			}
			continue
		}
		l.Records = append(l.Records, record(r))
		switch r.Kind {
		case audit.KindDecision:
			p.decided(&l, r, b)
		case audit.KindAnswer:
			answered(&l, r)
		case audit.KindOutcome:
			var e struct {
				Facts  json.RawMessage `json:"facts"`
				Why    []call.Reason   `json:"why"`
				Result *console.Sized  `json:"result"`
			}
			_ = json.Unmarshal(r.Body, &e)
			l.Status, l.WallMS, l.CPUMS, l.Facts = b.Status, b.Facts.Usage.Wall, b.Facts.Usage.CPU, e.Facts
			l.Result, l.SideEffect = e.Result, b.Facts.SideEffect
			l.Why = slices.DeleteFunc(append([]call.Reason{}, e.Why...), func(r call.Reason) bool {
				return slices.Contains(l.Reasons, r)
			})
			if b.ApprovalID != "" {
				l.Approval = b.ApprovalID
			}
		}
	}
	if l.ID == "" {
		return l, console.Problemf(http.StatusNotFound, "call.unknown", "the log has no such call")
	}
	return l, nil
}

// status returns how a call ended, where the index has it.
func (p *Operator) status(decisionID string) string {
	p.index.mu.Lock()
	defer p.index.mu.Unlock()
	if c := p.index.calls[decisionID]; c != nil {
		return c.Status
	}
	return ""
}

func record(r audit.Record) console.Record {
	return console.Record{Seq: r.Seq, ID: r.ID, At: r.At, Kind: r.Kind, Body: r.Body, Hash: r.Hash}
}

// Records satisfies console.Backend: the newest first. Text is looked for in the whole record.
func (p *Operator) Records(
	ctx context.Context, f console.RecordFilter, page console.Page,
) (console.List[console.Record], error) {
	out := console.List[console.Record]{Items: []console.Record{}}
	before, err := number(page.Cursor)
	if err != nil {
		return out, err
	}
	_, err = audit.Select(ctx, audit.Dir(p.o.Store.Dir()),
		audit.Selection{Last: page.Limit + 1, Match: func(r audit.Record) bool {
			return (before == 0 || r.Seq < before) && (f.Kind == "" || r.Kind == f.Kind) &&
				(f.ID == "" || r.ID == f.ID || strings.Contains(string(r.Body), `"`+f.ID+`"`)) &&
				(f.Text == "" || strings.Contains(strings.ToLower(string(r.Body)), strings.ToLower(f.Text)))
		}}, func(r audit.Record) error {
			out.Items = append(out.Items, record(r))
			return nil
		})
	slices.Reverse(out.Items)
	if len(out.Items) > page.Limit {
		out.Items = out.Items[:page.Limit]
		out.Next = strconv.FormatUint(out.Items[page.Limit-1].Seq, 10)
	}
	return out, err
}

// Live satisfies console.Backend.
func (p *Operator) Live(ctx context.Context, after uint64) (<-chan console.LiveEvent, bool, error) {
	if err := p.index.use(ctx); err != nil {
		return nil, false, err
	}
	events, reset := p.index.live(ctx, after)
	return events, reset, nil
}

// Agents satisfies console.Backend: the sessions of the newest calls, the last used first. The cursor is the number of
// the last session's newest call.
func (p *Operator) Agents(ctx context.Context, page console.Page) (console.List[console.Agent], error) {
	out := console.List[console.Agent]{Items: []console.Agent{}}
	before, err := number(page.Cursor)
	if err == nil {
		err = p.index.use(ctx)
	}
	if err != nil {
		return out, err
	}
	at, newest := map[string]int{}, []uint64{}
	p.index.newest(func(c console.Call) bool {
		i, known := at[c.Session]
		if !known {
			out.Total++
			i = -1
			switch {
			case before > 0 && c.Seq >= before: // on a page before
			case len(out.Items) == page.Limit:
				out.Next = strconv.FormatUint(newest[page.Limit-1], 10)
			default:
				i = len(out.Items)
				newest = append(newest, c.Seq)
				out.Items = append(out.Items, console.Agent{
					Session: c.Session, Principal: c.Principal, Channel: c.Channel, Last: c.At,
				})
			}
			at[c.Session] = i
		}
		if i < 0 {
			return true
		}
		a := &out.Items[i]
		a.First = c.At
		a.Calls++
		if c.Effect == "deny" {
			a.Denied++
		}
		if c.Status == "waiting" {
			a.Waiting++
		}
		return true
	})
	return out, nil
}

// maxUsage is how many capabilities Usage names. An agent can call any name.
const maxUsage = 200

// Usage satisfies console.Backend: the newest calls by capability, the most called first.
func (p *Operator) Usage(ctx context.Context) (console.List[console.Usage], error) {
	out := console.List[console.Usage]{Items: []console.Usage{}}
	if err := p.index.use(ctx); err != nil {
		return out, err
	}
	at, times := map[string]*console.Usage{}, map[string][]float64{}
	p.index.newest(func(c console.Call) bool {
		u := at[c.Capability]
		if u == nil {
			u = &console.Usage{Capability: c.Capability}
			at[c.Capability] = u
		}
		u.Calls++
		switch {
		case c.Effect == "deny":
			u.Denied++
		case c.Effect == "ask":
			u.Asked++
		}
		if c.Status == "failed" || c.Status == "timeout" || c.Status == "oom" {
			u.Failed++
		}
		u.WallMS += c.WallMS
		u.CPUMS += c.CPUMS
		if c.Status == "ok" {
			times[c.Capability] = append(times[c.Capability], c.WallMS)
		}
		return true
	})
	for name, u := range at {
		sort.Float64s(times[name])
		u.P50MS, u.P95MS = quantile(times[name], 0.5), quantile(times[name], 0.95)
		out.Items = append(out.Items, *u)
	}
	slices.SortFunc(out.Items, func(a, b console.Usage) int {
		if a.Calls != b.Calls {
			return b.Calls - a.Calls
		}
		return strings.Compare(a.Capability, b.Capability)
	})
	if len(out.Items) > maxUsage {
		out.Total, out.Items = len(out.Items), out.Items[:maxUsage]
	}
	return out, nil
}

func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

// decided fills in a call's life from its decision.
func (p *Operator) decided(l *console.CallLife, r audit.Record, b body) {
	var d struct {
		Reasons    []call.Reason      `json:"reasons"`
		Contract   *audit.ContractRef `json:"contract"`
		Policy     string             `json:"policy"`
		Args       json.RawMessage    `json:"args"`
		ArgsDigest string             `json:"args_digest"`
		ArgsSize   *console.Sized     `json:"args_size"`
		Run        json.RawMessage    `json:"run"`
		Secrets    []string           `json:"secrets"`
	}
	_ = json.Unmarshal(r.Body, &d) // Records has the unreadable parts
	l.Call = console.Call{
		ID: b.CallID, Seq: r.Seq, At: r.At, Capability: b.Capability, Principal: b.Principal, Session: b.Session,
		Channel: b.Channel, Parent: b.Parent, Mode: b.Mode, Danger: b.Danger, Effect: b.Effect, Decision: b.DecisionID,
	}
	l.Reasons, l.Args, l.ArgsDigest, l.ArgsSize, l.Run = d.Reasons, d.Args, d.ArgsDigest, d.ArgsSize, d.Run
	if d.Policy == p.o.Policy().Digest() { // else the line numbers are of another text
		l.Lines = quoted(d.Reasons, p.o.Config())
	}
	l.Secrets = append(l.Secrets, d.Secrets...)
	if d.Contract != nil {
		l.Pattern, l.File, l.Line = d.Contract.Pattern, d.Contract.File, d.Contract.Line
	}
}

// answered adds an answer to a call's life.
func answered(l *console.CallLife, r audit.Record) {
	var a audit.Answered
	if json.Unmarshal(r.Body, &a) != nil {
		return
	}
	one := console.Answer{
		By: a.By, Yes: a.Yes, Refusal: a.Refusal, Reason: a.Reason, At: a.At, Passkey: passkey.Signed(a.Signature),
	}
	for _, more := range a.Also {
		one.Also = append(one.Also, more.By)
	}
	l.Answers = append(l.Answers, one)
	l.Approval = a.ApprovalID
}
