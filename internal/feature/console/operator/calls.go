package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"waldo/internal/app/control"
	"waldo/internal/core/approval"
	"waldo/internal/core/approval/passkey"
	"waldo/internal/core/audit"
	"waldo/internal/core/session"
	"waldo/internal/feature/console/site"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
	"waldo/internal/storage/presence"
)

// Calls satisfies site.Backend: the newest first. The cursor is the number of the last call's decision.
func (p *Operator) Calls(
	ctx context.Context, f site.CallFilter, page site.Page,
) (site.List[site.Call], error) {
	out := site.List[site.Call]{Items: []site.Call{}}
	before, fate, err := p.page(ctx, page)
	if err != nil {
		return out, err
	}
	p.index.newest(func(e entry) bool {
		if before > 0 && e.Seq >= before {
			return true
		}
		c := fate.of(e)
		if !fits(f, c) {
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

// page returns where a page of calls begins, and how they stand.
func (p *Operator) page(ctx context.Context, page site.Page) (before uint64, fate fates, err error) {
	if before, err = number(page.Cursor); err == nil {
		fate, err = p.fates(ctx)
	}
	return before, fate, err
}

// fates knows how calls stand. It is of one request.
type fates struct {
	open  map[string]bool // approvals that wait
	said  map[string][]site.Answer
	ended map[string]bool // by process
	stops map[string]bool // stopped sessions
	gone  func(process string) bool
}

func (p *Operator) fates(ctx context.Context) (f fates, err error) {
	if err := p.index.use(ctx); err != nil {
		return f, err
	}
	f = fates{open: map[string]bool{}, ended: map[string]bool{}, gone: presence.Gone(p.o.Store)}
	open, err := p.o.Approvals.Pending(ctx)
	for _, q := range open {
		f.open[q.ID] = true
	}
	p.index.mu.Lock()
	defer p.index.mu.Unlock()
	f.said, f.stops = maps.Clone(p.index.said), maps.Clone(p.index.stops)
	return f, problem(err)
}

// over reports whether the process of a session has ended.
func (f fates) over(process string) bool {
	if process == "" {
		return false
	}
	is, known := f.ended[process]
	if !known {
		is = f.gone(process)
		f.ended[process] = is
	}
	return is
}

// results are the last words about calls that ended, by status.
var results = map[string]string{"ok": site.Done, "failed": site.Failed, "denied": site.DeniedBy, "timeout": site.Timeout,
	"oom": site.OOM, "cancelled": site.Cancelled}

// of returns a call with its result.
func (f fates) of(e entry) site.Call {
	c := e.Call
	said := f.said[c.Approval]
	switch {
	case c.Status == "" && c.Effect == "deny":
		c.Result = site.DeniedBy
	case c.Status == "" && f.over(e.asker):
		c.Result, c.Because = site.Lost, "the process ended before the call did"
	case c.Status == "":
		c.Result, c.Because = site.Running, ""
	case c.Status != "waiting":
		c.Result = cmp.Or(results[c.Status], c.Status)
	case f.open[c.Approval]:
		c.Result = site.WaitsFor
	case len(said) == 0 || said[0].Refusal != "":
		c.Result, c.Because = site.NoAnswer, "the question ended without an answer"
		if f.over(e.asker) {
			c.Because = "the agent ended"
		}
	case said[len(said)-1].Yes:
		c.Result, c.Because = site.Approved, "the agent has not called again"
	default:
		c.Result, c.Because = site.DeniedBy, "no, by "+said[len(said)-1].By
	}
	return c
}

func number(cursor string) (uint64, error) {
	if cursor == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(cursor, 10, 63)
	if err != nil || n == 0 {
		return 0, site.Problemf(http.StatusBadRequest, "cursor", "the cursor is not one of this list")
	}
	return n, nil
}

func fits(f site.CallFilter, c site.Call) bool {
	for want, have := range map[*string]string{
		&f.Principal: c.Principal, &f.Effect: c.Effect, &f.Status: c.Status, &f.Session: c.Session, &f.Result: c.Result,
	} {
		if *want != "" && *want != have {
			return false
		}
	}
	at := ""
	if !f.Since.IsZero() {
		at = f.Since.UTC().Format(audit.TimeLayout)
	}
	until := ""
	if !f.Until.IsZero() {
		until = f.Until.UTC().Format(audit.TimeLayout)
	}
	return c.At >= at && (until == "" || c.At < until) && strings.Contains(c.Capability, f.Capability) &&
		holds(f.Agent, c.Agent, c.Folder, c.Principal) &&
		holds(f.Text, c.Capability, c.Gist, c.Because, c.ID, c.Decision, c.Approval, c.Session, c.Agent, c.Folder, c.Principal)
}

// holds reports whether one of some texts has a part, in any case of its letters.
func holds(part string, texts ...string) bool {
	part = strings.ToLower(part)
	return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(strings.ToLower(t), part) })
}

// Call satisfies site.Backend.
func (p *Operator) Call(ctx context.Context, callID string) (site.CallLife, error) {
	var l site.CallLife
	if !id.Is(id.Call, callID) && !id.Is(id.Decision, callID) {
		return l, site.Problemf(http.StatusNotFound, "call.unknown", "no such call")
	}
	if err := p.index.use(ctx); err != nil {
		return l, err
	}
	var all []audit.Record
	_, err := audit.Select(ctx, audit.Dir(p.o.Store.Dir()), audit.Selection{About: []string{callID}}, func(r audit.Record) error {
		all = append(all, r)
		return nil
	})
	if err != nil {
		return l, err
	}
	l.Answers, l.Children, l.Records, l.Secrets = []site.Answer{}, []site.Call{}, []site.Record{}, []string{}
	l.Lines, l.Why = []string{}, []call.Reason{}
	asker := ""
	for _, r := range all {
		var b body
		_ = json.Unmarshal(r.Body, &b)
		if b.CallID != callID && b.DecisionID != callID {
			if r.Kind == audit.KindDecision && b.Parent == callID {
				l.Children = append(l.Children, shortly(r, b))
			}
			continue
		}
		l.Records = append(l.Records, record(r))
		switch r.Kind {
		case audit.KindDecision:
			p.decided(&l, r, b)
			asker = b.Asker
		case audit.KindAnswer:
			if a, ok := answer(r); ok {
				l.Answers = append(l.Answers, a)
				l.Approval = b.ApprovalID
			}
		case audit.KindOutcome:
			var e struct {
				Facts  json.RawMessage `json:"facts"`
				Why    []call.Reason   `json:"why"`
				Result *audit.Sized    `json:"result"`
			}
			_ = json.Unmarshal(r.Body, &e)
			l.Status, l.WallMS, l.CPUMS, l.Facts = b.Status, b.Facts.Usage.Wall, b.Facts.Usage.CPU, e.Facts
			l.Because = because(b, l.Because)
			l.Shown, l.SideEffect = e.Result, b.Facts.SideEffect
			l.Why = slices.DeleteFunc(append([]call.Reason{}, e.Why...), func(r call.Reason) bool {
				return slices.Contains(l.Reasons, r)
			})
			if b.ApprovalID != "" {
				l.Approval = b.ApprovalID
			}
		}
	}
	if l.ID == "" {
		return l, site.Problemf(http.StatusNotFound, "call.unknown", "the log has no such call")
	}
	fate, err := p.fates(ctx)
	l.Call = fate.of(entry{Call: l.Call, asker: asker})
	for i, c := range l.Children {
		l.Children[i] = fate.of(p.entry(c))
	}
	return l, err
}

// entry returns what the index has of a decided call.
func (p *Operator) entry(c site.Call) entry {
	p.index.mu.Lock()
	defer p.index.mu.Unlock()
	if e := p.index.calls[c.Decision]; e != nil {
		return *e
	}
	return entry{Call: c}
}

func record(r audit.Record) site.Record {
	return site.Record{Seq: r.Seq, ID: r.ID, At: r.At, Kind: r.Kind, Body: r.Body, Hash: r.Hash}
}

// Records satisfies site.Backend: the newest first. Text is looked for in the whole record.
func (p *Operator) Records(
	ctx context.Context, f site.RecordFilter, page site.Page,
) (site.List[site.Record], error) {
	out := site.List[site.Record]{Items: []site.Record{}}
	before, err := number(page.Cursor)
	if err != nil {
		return out, err
	}
	var about []string
	if id.Is(id.Call, f.ID) || id.Is(id.Decision, f.ID) || id.Is(id.Approval, f.ID) || id.Is(id.Record, f.ID) {
		about = []string{f.ID} // others, as of sessions, are looked for in every record
	}
	_, err = audit.Select(ctx, audit.Dir(p.o.Store.Dir()),
		audit.Selection{Last: page.Limit + 1, Before: before, Kind: f.Kind, Without: f.Without, About: about,
			Match: func(r audit.Record) bool {
				return holds(f.Text, string(r.Body)) && (f.ID == "" || r.ID == f.ID || strings.Contains(string(r.Body), `"`+f.ID+`"`))
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

// Live satisfies site.Backend.
func (p *Operator) Live(ctx context.Context, after uint64) (<-chan site.LiveEvent, bool, error) {
	if err := p.index.use(ctx); err != nil {
		return nil, false, err
	}
	events, reset := p.index.live(ctx, after)
	return events, reset, nil
}

// Agents satisfies site.Backend: the sessions of the newest calls, the last used first. The cursor is the number of
// the last session's newest call.
func (p *Operator) Agents(ctx context.Context, page site.Page) (site.List[site.Agent], error) {
	out := site.List[site.Agent]{Items: []site.Agent{}}
	before, err := number(page.Cursor)
	if err != nil {
		return out, err
	}
	newest := []uint64{}
	err = p.agents(ctx, func(c site.Call) bool {
		out.Total++
		switch {
		case before > 0 && c.Seq >= before: // on a page before
		case len(out.Items) == page.Limit:
			out.Next = strconv.FormatUint(newest[page.Limit-1], 10)
		default:
			newest = append(newest, c.Seq)
			return true
		}
		return false
	}, &out.Items)
	return out, err
}

// Agent satisfies site.Backend.
func (p *Operator) Agent(ctx context.Context, session string) (site.Agent, error) {
	one := []site.Agent{}
	err := p.agents(ctx, func(c site.Call) bool { return c.Session == session }, &one)
	if err == nil && len(one) == 0 {
		err = site.Problemf(http.StatusNotFound, "session.unknown", "none of the newest calls is of this session")
	}
	if err != nil {
		return site.Agent{}, err
	}
	return one[0], nil
}

// activeTime is how long after its last call a session counts as running, where its process is not known.
const activeTime = 10 * time.Minute

// agents adds up the sessions whose newest call is wanted.
func (p *Operator) agents(ctx context.Context, wanted func(newest site.Call) bool, out *[]site.Agent) error {
	stopped, err := control.Stopped(ctx, p.o.Store)
	if err != nil {
		return err
	}
	fate, err := p.fates(ctx)
	if err != nil {
		return err
	}
	at := map[string]int{}
	p.index.newest(func(e entry) bool {
		c := fate.of(e)
		i, known := at[c.Session]
		if !known {
			i = -1
			if wanted(c) {
				i = len(*out)
				*out = append(*out, site.Agent{Session: c.Session, Principal: c.Principal, Channel: c.Channel, Last: c.At,
					State: p.state(fate, e, stopped)})
			}
			at[c.Session] = i
		}
		if i < 0 {
			return true
		}
		a := &(*out)[i]
		a.Agent, a.Folder, a.First = cmp.Or(a.Agent, c.Agent), cmp.Or(a.Folder, c.Folder), c.At
		a.Calls++
		switch c.Result {
		case site.DeniedBy:
			a.Denied++
		case site.WaitsFor:
			a.Waiting++
		case site.Failed, site.Timeout, site.OOM:
			a.Failed++
		}
		return true
	})
	return nil
}

// state returns how a session stands by its newest call.
func (p *Operator) state(fate fates, e entry, stopped func(session.Info) bool) string {
	last, err := time.Parse(time.RFC3339, e.At)
	switch {
	case stopped(session.Info{ID: call.Session(e.Session), Principal: call.Principal(e.Principal)}):
		return "stopped"
	case fate.stops[e.Session], fate.over(e.asker):
		return "ended"
	case e.asker == "" && (err != nil || time.Since(last) > activeTime):
		return "idle"
	}
	return site.Running
}

// maxUsage is how many capabilities Usage names. An agent can call any name.
const maxUsage = 200

// Usage satisfies site.Backend: the most called first.
func (p *Operator) Usage(ctx context.Context, hours int, byAgent bool) (site.List[site.Usage], error) {
	out := site.List[site.Usage]{Items: []site.Usage{}}
	if err := p.index.use(ctx); err != nil {
		return out, err
	}
	out.Items = p.usage(hours, func(c entry) site.Usage {
		if byAgent {
			return site.Usage{Agent: cmp.Or(c.Agent, c.Principal)}
		}
		return site.Usage{Capability: c.Capability}
	})
	if len(out.Items) > maxUsage {
		out.Total, out.Items = len(out.Items), out.Items[:maxUsage]
	}
	return out, nil
}

// usage counts the calls of the last hours by the row that each is of.
func (p *Operator) usage(hours int, of func(entry) site.Usage) []site.Usage {
	from := time.Now().UTC().Truncate(time.Hour).Add(-time.Duration(hours-1) * time.Hour).Format(audit.TimeLayout)
	at, times := map[site.Usage]*site.Usage{}, map[site.Usage]*spans{}
	p.index.newest(func(c entry) bool {
		if c.At < from {
			return false
		}
		key := of(c)
		u := at[key]
		if u == nil {
			u = &site.Usage{Capability: key.Capability, Agent: key.Agent}
			at[key], times[key] = u, &spans{}
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
		if ran(c.Status) {
			times[key].add(c.WallMS)
		}
		return true
	})
	all := []site.Usage{}
	for key, u := range at {
		u.P50MS, u.P95MS = times[key].quantile(0.5), times[key].quantile(0.95)
		all = append(all, *u)
	}
	slices.SortFunc(all, func(a, b site.Usage) int {
		return cmp.Or(b.Calls-a.Calls, strings.Compare(a.Capability, b.Capability), strings.Compare(a.Agent, b.Agent))
	})
	return all
}

// decided fills in a call's life from its decision.
func (p *Operator) decided(l *site.CallLife, r audit.Record, b body) {
	var d struct {
		Reasons    []call.Reason      `json:"reasons"`
		Contract   *audit.ContractRef `json:"contract"`
		Policy     string             `json:"policy"`
		Args       json.RawMessage    `json:"args"`
		ArgsDigest string             `json:"args_digest"`
		ArgsSize   *audit.Sized       `json:"args_size"`
		Run        json.RawMessage    `json:"run"`
		Secrets    []string           `json:"secrets"`
	}
	_ = json.Unmarshal(r.Body, &d) // Records has the unreadable parts
	l.Call = shortly(r, b)
	l.Reasons, l.Args, l.ArgsDigest, l.ArgsSize, l.Run = d.Reasons, d.Args, d.ArgsDigest, d.ArgsSize, d.Run
	if d.Policy == p.o.Waldo.Policy().Digest() { // else the line numbers are of another text
		l.Lines = quoted(d.Reasons, p.o.Waldo.Config())
	}
	l.Secrets = append(l.Secrets, d.Secrets...)
	if d.Contract != nil {
		l.Pattern, l.File, l.Line = d.Contract.Pattern, d.Contract.File, d.Contract.Line
	}
}

// answer reads an answer.
func answer(r audit.Record) (one site.Answer, ok bool) {
	var a audit.Answered
	if json.Unmarshal(r.Body, &a) != nil {
		return one, false
	}
	one = site.Answer{By: a.By, Yes: a.Yes, Refusal: a.Refusal, Reason: a.Reason, At: cmp.Or(a.At, r.At),
		Passkey: passkey.Signed(a.Signature), Struck: approval.StruckIn(a.Signed)}
	for _, more := range a.Also {
		one.Also = append(one.Also, more.By)
	}
	return one, true
}
