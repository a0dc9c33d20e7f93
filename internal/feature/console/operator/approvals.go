package operator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/approval/passkey"
	"waldo/internal/core/audit"
	"waldo/internal/feature/console/site"
)

// Approvals satisfies site.Backend: the questions that wait, oldest first.
func (p *Operator) Approvals(ctx context.Context, page site.Page) (site.List[site.Approval], error) {
	out := site.List[site.Approval]{Items: []site.Approval{}}
	open, next, err := p.o.Approvals.PendingPage(ctx, page.Cursor, page.Limit)
	if err != nil {
		return out, problem(err)
	}
	if err := p.index.use(ctx); err != nil {
		return out, err
	}
	for _, q := range open {
		a := shown(q, approval.Pending)
		a.Asker = p.askerOf(q.ID)
		a.Fields = a.Fields[:min(len(a.Fields), 20)]
		if q.Need > 1 {
			if a.Given, _, err = p.o.Approvals.Given(ctx, q.ID); err != nil {
				return out, problem(err)
			}
		}
		out.Items = append(out.Items, a)
	}
	if page.Cursor == "" {
		there, err := p.o.Approvals.AllElsewhere(ctx)
		if err != nil {
			return out, problem(err)
		}
		for _, e := range there {
			out.Items = append(out.Items, elsewhere(e))
		}
	}
	out.Next, out.Total = next, len(out.Items)
	if next != "" || page.Cursor != "" {
		out.Total, err = p.o.Approvals.CountPending(ctx)
	}
	return out, err
}

// Answered satisfies site.Backend: by the time of the call that asked, the newest first. The cursor is its number.
func (p *Operator) Answered(ctx context.Context, page site.Page) (site.List[site.Answered], error) {
	out := site.List[site.Answered]{Items: []site.Answered{}}
	before, fate, err := p.page(ctx, page)
	if err != nil {
		return out, err
	}
	seen := map[string]bool{}
	p.index.newest(func(e entry) bool {
		if e.Approval == "" || fate.open[e.Approval] || seen[e.Approval] {
			return true
		}
		seen[e.Approval] = true
		if before > 0 && e.Seq >= before {
			return true
		}
		if len(out.Items) == page.Limit {
			out.Next = strconv.FormatUint(out.Items[page.Limit-1].Seq, 10)
			return false
		}
		out.Items = append(out.Items, site.Answered{Call: fate.of(e),
			Answers: append([]site.Answer{}, fate.said[e.Approval]...)})
		return true
	})
	for i := range out.Items {
		one := &out.Items[i]
		if q, _, err := p.o.Approvals.Question(ctx, one.Call.Approval); err == nil && !q.Created.IsZero() {
			one.At = q.Created.UTC().Format(audit.TimeLayout) // a later call can have used the answer
		}
		if n := len(one.Answers); n > 0 && one.Answers[n-1].Refusal == "" {
			asked, err1 := time.Parse(time.RFC3339, one.At)
			said, err2 := time.Parse(time.RFC3339, one.Answers[n-1].At)
			if err1 == nil && err2 == nil {
				one.WaitMS = max(0, float64(said.Sub(asked).Milliseconds()))
			}
		}
	}
	return out, nil
}

// askerOf returns the newest call that asked a question; nil: not known.
func (p *Operator) askerOf(approvalID string) *site.Call {
	p.index.mu.Lock()
	defer p.index.mu.Unlock()
	e := p.index.asked[approvalID]
	if e == nil {
		return nil
	}
	c := e.Call
	return &c
}

// elsewhere returns a question of another waldo as pages get it. Its answer is on its way until that waldo has it.
func elsewhere(e approval.Elsewhere) site.Approval {
	a := shown(e.Question, approval.Pending)
	a.Preview, a.Rows, a.Peer, a.Root, a.Refused = e.Question.Preview, rowsOf(e.Question), e.Peer, e.Root, e.Refused
	if a.Rows != nil {
		a.Fields = nil
	}
	if e.Answer != nil {
		a.State = "answered, and on its way to the waldo that asks"
	}
	return a
}

// Approval satisfies site.Backend.
func (p *Operator) Approval(ctx context.Context, id string) (site.Approval, error) {
	if e, err := p.o.Approvals.Elsewhere(ctx, id); err == nil {
		return elsewhere(e), nil
	}
	q, state, err := p.o.Approvals.Question(ctx, id)
	if err != nil {
		return site.Approval{}, problem(err)
	}
	a := shown(q, state)
	names, struck, err := p.o.Approvals.Given(ctx, q.ID)
	if err != nil {
		return a, problem(err)
	}
	a.Given = append(a.Given, names...)
	if state != approval.Void {
		a.Preview, a.Rows = q.Preview, rowsOf(q.Striking(struck))
	}
	if a.Rows != nil {
		a.Fields = nil
	}
	fate, err := p.fates(ctx)
	if err != nil {
		return a, err
	}
	if a.Asker = p.askerOf(q.ID); a.Asker != nil {
		*a.Asker = fate.of(p.entry(*a.Asker))
	}
	a.Answers = fate.said[q.ID]
	if state == approval.Used {
		p.made(fate, q.ID, a.Rows)
	}
	before, err := p.o.Approvals.LastApproved(ctx, q)
	if err != nil {
		return a, problem(err)
	}
	if before != nil {
		a.Compared = &site.Compared{ID: before.ID, At: before.At, By: before.By}
		a.Fields = compare(q, *before, a.Fields)
	}
	return a, nil
}

// shown returns a question as pages and clients get it.
func shown(q approval.Question, state approval.State) site.Approval {
	a := site.Approval{
		ID: q.ID, State: string(state), Capability: string(q.Capability), Principal: string(q.Principal),
		Session: string(q.Session), Channel: q.Channel, Mode: q.Mode, Danger: q.Danger, Role: q.Role, Need: max(q.Need, 1),
		Given: []string{}, Reasons: q.Reasons, Notes: q.Notes, ArgsDigest: q.ArgsDigest, ArgsBytes: len(q.Args),
		Digest: q.Digest(), Contract: q.Contract, Policy: q.Policy, Decision: q.DecisionID, Created: q.Created,
		Expires: q.Expires,
	}
	if state == approval.Void { // nothing of a row that was changed from outside is shown as waldo's words
		return site.Approval{ID: q.ID, State: string(state), Given: []string{}}
	}
	a.Fields = fieldsOf(q.Fields())
	return a
}

func fieldsOf(fields []approval.Field) (out []site.Field) {
	for _, f := range fields {
		out = append(out, site.Field{Path: f.Path, Value: f.Value, Note: f.Note})
	}
	return out
}

func rowsOf(q approval.Question) (out []site.Row) {
	for _, r := range q.Rows() {
		out = append(out, site.Row{Number: r.Number, Title: r.Title, Preview: r.Preview, Fields: fieldsOf(r.Fields),
			Struck: r.Struck})
	}
	return out
}

// made adds to the held calls of a used yes what became of each.
func (p *Operator) made(fate fates, approvalID string, rows []site.Row) {
	p.index.mu.Lock()
	defer p.index.mu.Unlock()
	for i := range rows {
		r := &rows[i]
		e := p.index.rows[heldRow{approvalID, r.Number}]
		switch {
		case r.Struck:
		case e == nil:
			r.Result = "not done"
		default:
			r.CallID, r.Result, r.UndoBy = e.ID, cmp.Or(e.end, fate.of(*e).Result), e.undoBy
		}
	}
}

// compare marks what differs from the last approved call, and adds what it had besides.
func compare(q approval.Question, before approval.Before, fields []site.Field) []site.Field {
	at := map[string]int{}
	for i, f := range fields {
		at[f.Path] = i
	}
	for _, c := range q.Changes(before) {
		if c.Kind == approval.Removed {
			fields = append(fields, site.Field{Path: c.Path, Value: c.Before, Changed: site.Removed})
			continue
		}
		f := &fields[at[c.Path]]
		f.Changed, f.Before = string(c.Kind), c.Before
	}
	return fields
}

// requestOptions are PublicKeyCredentialRequestOptions (WebAuthn), with binary members in base64url.
func requestOptions(message []byte, c passkey.Credential) (json.RawMessage, error) {
	rp, err := passkey.RelyingParty(c.Origin)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"challenge": passkey.Challenge(message), "rpId": rp, "userVerification": "required",
		"timeout":          draftLife.Milliseconds(),
		"allowCredentials": []map[string]any{{"type": "public-key", "id": c.ID64()}},
	})
}

// Draft satisfies site.Backend.
func (p *Operator) Draft(
	ctx context.Context, who site.Who, id string, a site.Answering,
) (site.Ceremony, error) {
	there, noErr := p.o.Approvals.Elsewhere(ctx, id)
	q, passes := there.Question, noErr == nil
	if !passes {
		var err error
		if q, _, err = p.o.Approvals.Question(ctx, id); err != nil {
			return site.Ceremony{}, problem(err)
		}
	}
	if q.Digest() != a.Digest || a.Digest == "" {
		return site.Ceremony{}, site.Problemf(http.StatusConflict, "approval.changed",
			"approval %s is not the question that was shown; load it again", id)
	}
	if a.Yes && q.Danger >= approval.Typed && a.Word != q.Capability.Word() {
		return site.Ceremony{}, site.Problemf(http.StatusForbidden, "approval.word",
			"the word that was typed is not the last one of the capability's name")
	}
	all, err := p.o.Approvals.Approvers(ctx)
	if err != nil {
		return site.Ceremony{}, problem(err)
	}
	i := slices.IndexFunc(all, func(x approval.Approver) bool { return x.Name == a.As })
	if i < 0 {
		return site.Ceremony{}, site.Problemf(http.StatusForbidden, "approval.not_enrolled", "%s is not enrolled",
			approval.Escape(a.As))
	}
	key, err := passkey.Parse(all[i].Key)
	if err != nil {
		return site.Ceremony{}, site.Problemf(http.StatusForbidden, "approval.no_passkey",
			"%s answers at a terminal, with a passphrase: waldo approve %s", a.As, q.ID)
	}
	if key.Origin != who.Origin {
		return site.Ceremony{}, site.Problemf(http.StatusForbidden, "approval.origin",
			"the passkey of %s was enrolled at %s, and this page is at %s", a.As, key.Origin, who.Origin)
	}
	var d approval.Draft
	switch {
	case passes && len(a.Struck) > 0:
		err = site.Problemf(http.StatusConflict, "approval.struck", "strike out rows at the waldo that asks, or answer no")
	case passes:
		d, err = p.o.Approvals.DraftElsewhere(ctx, a.As, there, a.Yes, a.Reason)
	default:
		d, err = p.o.Approvals.Draft(ctx, a.As, q, a.Yes, a.Reason, a.Struck...)
	}
	if err != nil {
		return site.Ceremony{}, problem(err)
	}
	options, err := requestOptions(d.Message(), key)
	if err != nil {
		return site.Ceremony{}, err
	}
	kind := "deny"
	if a.Yes {
		kind = "approve"
	}
	return site.Ceremony{
		Draft: p.drafts.keep(draft{kind: kind, session: who.Session, origin: who.Origin, target: id, answer: d,
			passes: passes}),
		Name: a.As, Options: options,
	}, nil
}

// Settle satisfies site.Backend.
func (p *Operator) Settle(
	ctx context.Context, who site.Who, id, verdict, name string, assertion json.RawMessage,
) error {
	d, err := p.drafts.take(name, verdict, who, id)
	if err != nil {
		return err
	}
	small, err := passkey.Compact(bytes.Clone(assertion))
	if err != nil {
		return site.Problemf(http.StatusBadRequest, "assertion", "%v", err)
	}
	if d.passes {
		return problem(p.o.Approvals.SettleElsewhere(ctx, d.answer, small))
	}
	return problem(p.o.Approvals.Settle(ctx, d.answer, small))
}

// Approvers satisfies site.Backend.
func (p *Operator) Approvers(ctx context.Context) (site.List[site.Approver], error) {
	out := site.List[site.Approver]{Items: []site.Approver{}}
	all, err := p.o.Approvals.Approvers(ctx)
	for _, a := range all {
		one := site.Approver{
			Name: a.Name, Fingerprint: a.Fingerprint(), Roles: a.Roles, Root: a.By == a.Name, Passkey: passkey.Is(a.Key),
		}
		if c, err := passkey.Parse(a.Key); err == nil {
			one.Origin = c.Origin
		}
		out.Items = append(out.Items, one)
	}
	return out, problem(err)
}
