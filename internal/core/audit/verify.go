package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/delegation"
	"waldo/internal/storage/database"
	"waldo/internal/storage/safefile"
)

// Anchor is a head to check the log against, and where it is stored.
type Anchor struct {
	Name string // waldo.db
	Head *database.Head
}

// Expect is what a deployment promises of its log, besides the heads.
type Expect struct {
	Pins      []string    // fingerprints that the first approver must have; empty ones say nothing
	Judges    []string    // as Pins, of the first approver who signs configurations; none comes from one
	Keeps     []Retention // of the configurations in force; empty: not known
	Unchecked []Finding   // what the caller could not find out
}

// Retention is the log.keep of a configuration; 0: it keeps every record.
type Retention struct {
	File, Accepted string // what the first approver signs of it
	Keep           time.Duration
}

// Unchecked returns a finding that something could not be checked.
func Unchecked(code, format string, args ...any) Finding {
	return Finding{Unchecked: true, Code: code, Text: fmt.Sprintf(format, args...)}
}

// Finding is one thing that Verify found. A problem means that the log is not sound; a notice is
// something that an honest log may show.
type Finding struct {
	Problem   bool   `json:"problem"`
	Unchecked bool   `json:"unchecked,omitempty"` // it names what was not checked
	Code      string `json:"code"`                // chain.broken
	Segment   string `json:"segment,omitempty"`
	Line      int    `json:"line,omitempty"` // from 1, in the segment
	Seq       uint64 `json:"seq,omitempty"`
	Text      string `json:"text"`
}

// Report holds the findings of Verify, and the conclusion.
type Report struct {
	OK       bool      `json:"ok"`
	Complete bool      `json:"complete"` // everything that the deployment promises was checked
	Records  uint64    `json:"records"`
	Pruned   uint64    `json:"pruned,omitempty"` // records before the first, removed under a retention
	Segments int       `json:"segments"`
	Bytes    int64     `json:"bytes"`
	LastSeq  uint64    `json:"last_seq"`
	LastHash string    `json:"last_hash"`
	Findings []Finding `json:"findings"`
	Claim    string    `json:"claim"`
}

// maxFindings limits the findings listed; the rest is only counted.
const maxFindings = 100

// A head is moved at most a second after its record; headSlack allows for a slow disk.
const headSlack = 10 * time.Second

// verifier walks a log once.
type verifier struct {
	Report
	anchors []Anchor
	now     time.Time
	next    uint64 // the sequence number that should come
	prev    string // the hash that should come before; "": unknown, after damage
	segment string
	line    int
	lastAt  time.Time
	past    []time.Time // for each anchor: when the first record after it was written
	dir     string
	expect  Expect
	ledger  approval.Ledger

	decided     map[uint64]fate   // by hashes of the ids of decisions
	shown       map[uint64]uint64 // what verdicts were about, by their approvals
	delegations delegation.Ledger
	bad         bool          // a problem was found, listed or not
	skipped     int           // findings that are not listed
	start       uint64        // the first record that is there
	before      string        // the hash that it names: of the record before
	pruned      *Pruned       // the segments that the log records as removed
	aside       *setAsideBody // of the log that was set aside before
}

// secondHead names the copy of the head elsewhere.
const secondHead = "second"

// Anchors reads the heads of a log. A head that was never set is an Anchor without Head.
func Anchors(ctx context.Context, o Options) ([]Anchor, error) {
	var out []Anchor
	for i, h := range []Heads{o.Heads, o.Second} {
		if h == nil {
			continue
		}
		at, err := h.Head(ctx, Name)
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		out = append(out, Anchor{[]string{"waldo.db", secondHead}[i], at})
	}
	return out, nil
}

// Verify reads a whole log. It checks every line against its hash, its place in the chain and the anchors. It checks
// every answer against its signature, the logged keys and the pins, and a removal against the retention. It
// changes nothing. The anchors must be read first; later records are ignored. An error means that the log is
// unreadable.
func Verify(ctx context.Context, dir string, anchors []Anchor, now time.Time, e Expect) (Report, error) {
	v := &verifier{
		anchors: anchors, now: now, dir: dir, expect: e, next: 1, prev: genesis, past: make([]time.Time, len(anchors)),
		decided: map[uint64]fate{}, shown: map[uint64]uint64{},
	}
	v.Findings = append([]Finding{}, e.Unchecked...)
	names, sizes, err := extent(dir)
	if err != nil {
		return Report{}, fmt.Errorf("audit: %w", err)
	}
	if len(names) > 0 {
		if v.start, _ = firstOf(names[0]); v.start > 1 {
			v.next, v.prev = v.start, "" // conclude needs the record that replaces the earlier ones
			p, err := checkpoint(ctx, dir)
			if err != nil {
				return Report{}, err
			}
			if v.pruned = p; p != nil {
				v.ledger.Restore(p.Checkpoint)
			}
		}
	}
	for i, name := range names {
		v.enter(name)
		if err := v.read(ctx, dir, name, sizes[i]); err != nil {
			return Report{}, fmt.Errorf("audit: %s: %w", name, err)
		}
	}
	v.conclude()
	return v.Report, nil
}

// extent returns the segments and their lengths between writes.
func extent(dir string) (names []string, sizes []int64, err error) {
	f, err := safefile.Open(filepath.Join(dir, "lock"), os.O_RDWR)
	if err == nil { // without a lock, as on a copy of a log, no process writes
		defer func() { _ = f.Close() }()
		if err := lock(f, true, 5*time.Second); err != nil {
			return nil, nil, err
		}
		defer func() { _ = safefile.Unlock(f) }()
	}
	names, err = segments(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			return nil, nil, err
		}
		sizes = append(sizes, info.Size())
	}
	return names, sizes, nil
}

func (v *verifier) enter(name string) {
	v.segment, v.line = name, 0
	v.Segments++
	if first, _ := firstOf(name); first != v.next {
		v.problem("segment.order", "the segment should start with record %d", v.next)
	}
}

func (v *verifier) read(ctx context.Context, dir, name string, size int64) error {
	f, err := openSegment(dir, name, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	v.Bytes += size
	count, _ := ctx.Value(counter{}).(io.Writer)
	if count == nil {
		count = io.Discard
	}
	return lines(f, 0, size, func(ln line) error {
		v.line++
		v.check(ln)
		_, _ = count.Write(ln.text)
		if v.line%1024 == 0 {
			return ctx.Err()
		}
		return nil
	})
}

// counter is the key of the writer that gets a copy of every line.
type counter struct{}

// Counting returns a context with which Verify writes each line that it has checked to w, for a progress bar.
func Counting(ctx context.Context, w io.Writer) context.Context {
	return context.WithValue(ctx, counter{}, w)
}

// check holds one line against the chain.
func (v *verifier) check(ln line) {
	if !ln.whole {
		code, text := "line.torn",
			"the line has no end: something was added or cut, or a crash, after which the next waldo sets it aside"
		if ln.size >= MaxLine {
			code, text = "line.long", "no record is this long"
		}
		v.problem(code, "%s (%d bytes)", text, ln.size)
		v.prev = ""
		return
	}
	r, err := viewRecord(ln.text)
	if err != nil {
		code := "line.layout"
		if errors.Is(err, errHash) {
			code = "record.hash"
		} else if errors.Is(err, errVersion) {
			code = "record.version"
		}
		v.problem(code, "the line is %v", err)
		if !errors.Is(err, errHash) || r.Seq != v.next {
			v.prev = ""
			return
		}
	}
	if r.Seq != v.next {
		v.problem("record.order", "record %d stands where record %d should", r.Seq, v.next)
	} else if v.prev != "" && r.Prev != v.prev {
		v.problem("chain.broken", "record %d was not written after the record before it", r.Seq)
	}
	v.next, v.prev = r.Seq+1, r.Hash
	v.Records++
	v.ends(r)
	v.LastSeq, v.LastHash = r.Seq, r.Hash
	v.times(r)
	v.hold(r)
	if err == nil {
		if err := spelled(r); err != nil {
			v.problem("record.spelling", "record %d can be read in two ways: %v", r.Seq, err)
		}
		v.approvals(r)
		v.answers(r)
		v.endings(r)
		err := delegated(&v.delegations, r)
		if pruned := v.start > 1 && errors.Is(err, delegation.ErrAbsent); err != nil && !pruned {
			v.problem("delegation.record", "record %d: %v", r.Seq, err)
		}
	}
}

// approvals checks an answer against its signature and the keys of the log. An honest race of two processes for one
// approval, or a withdrawal during its use, is a notice only.
func (v *verifier) approvals(r Record) {
	before := v.ledger.Firsts()
	err := tell(&v.ledger, r)
	var no *approval.Refused
	switch {
	case errors.As(err, &no) && no.Reason.Code == "approval.withdrawn":
		v.notice(no.Reason.Code, "record %d: %s; it was not carried out", r.Seq, no.Reason.Text)
	case errors.As(err, &no):
		v.problem(no.Reason.Code, "record %d: %s", r.Seq, no.Reason.Text)
	case err != nil:
		v.problem("record.body", "record %d: %v", r.Seq, err)
	}
	_, rerr := v.ledger.Root(v.expect.Pins)
	if now := v.ledger.Firsts(); len(before) > 0 && len(now) > len(before) &&
		!slices.Contains(v.expect.Pins, now[len(now)-1].Fingerprint()) {
		v.problem("approver.second", "record %d enrols another first approver; approval.root says which one counts", r.Seq)
	}
	if r.Kind == KindTrust && err == nil {
		var c Configured
		if json.Unmarshal(r.Body, &c) != nil || rerr != nil || !v.ledger.Rooted(c.Key, v.expect.Pins) {
			v.problem("configuration.root", "record %d: the configuration is not signed by the first approver that counts", r.Seq)
		}
	}
	if (r.Kind == KindVerdict || r.Kind == KindAnswer) && err == nil {
		var a Answered
		if json.Unmarshal(r.Body, &a) == nil && a.Key != "" && (rerr != nil || !v.ledger.Rooted(a.Key, v.expect.Pins)) {
			v.problem("answer.root", "record %d: the answer's key was not enrolled by the first approver", r.Seq)
		}
	}
}

// answers holds what an answer says that it is about against the decision that it names. No approver signs that.
func (v *verifier) answers(r Record) {
	if r.Kind != KindDecision && r.Kind != KindVerdict && r.Kind != KindAnswer {
		return
	}
	var of struct{ decision, capability, args, call, refusal, approval, effect, dry, yes []byte }
	members(r.Body, func(name, value []byte) {
		switch string(name) {
		case `"decision_id"`:
			of.decision = value
		case `"capability"`:
			of.capability = value
		case `"args_digest"`:
			of.args = value
		case `"call_id"`:
			of.call = value
		case `"refusal"`:
			of.refusal = value
		case `"approval_id"`:
			of.approval = value
		case `"effect"`:
			of.effect = value
		case `"dry_run"`:
			of.dry = value
		case `"yes"`:
			of.yes = value
		}
	})
	id, about := hashID(string(of.decision)), hashID(string(of.capability)+"\n"+string(of.args))
	if r.Kind == KindDecision {
		now := fate{about: about, call: hashID(string(of.call)), decided: permitOf(of.effect, of.dry)}
		was, known := v.decided[id]
		if known && (was.about != now.about || was.call != now.call || was.decided != now.decided) {
			v.problem("decision.twice", "record %d is another decision under the id %s", r.Seq, of.decision)
		}
		if !known {
			v.decided[id] = now
		}
		return
	}
	switch was, known := v.decided[id]; {
	case of.refusal != nil || !known: // waldo's own; or the decision was removed
	case was.about != about, r.Kind == KindAnswer && was.call != hashID(string(of.call)),
		was.decided == denied && string(of.yes) == "true":
		v.problem("answer.decision", "record %d is not about what decision %s was about", r.Seq, of.decision)
	case r.Kind == KindAnswer && string(of.yes) == "true":
		was.yes = true
		v.decided[id] = was
	}
	asked := hashID(string(of.approval))
	if was, known := v.shown[asked]; known && was != about && of.refusal == nil {
		v.problem("answer.decision", "record %d is not about what a human was asked in approval %s", r.Seq, of.approval)
	}
	if r.Kind == KindVerdict && of.refusal == nil {
		v.shown[asked] = about
	}
}

// Doubts returns what speaks against the answers among some records, by their numbers: a signature that does not hold
// by the enrolments among them, or another call. Answers through an agent's host have no signature.
func Doubts(all []Record) map[uint64]string {
	doubts := map[uint64]string{}
	for _, f := range Signatures(all) {
		if f.Code != "answer.host" {
			doubts[f.Seq] = f.Text
		}
	}
	return doubts
}

// ends looks at the records that begin a log or replace its beginning.
func (v *verifier) ends(r Record) {
	if r.Seq == v.start {
		v.before = r.Prev
	}
	switch {
	case r.Seq == 1 && r.Kind != kindGenesis:
		v.problem("genesis.absent", "the first record is of kind %s; a log begins with one of kind genesis", r.Kind)
	case r.Seq == 1:
		v.aside = asideOf(r)
	case r.Kind == kindGenesis:
		v.problem("genesis.second", "record %d is a first record in the middle of the log; it counts for nothing", r.Seq)
	case r.Kind == "recovered":
		var b Recovery
		if json.Unmarshal(r.Body, &b) == nil && b.Past > 0 {
			v.notice("head.recovered", "record %d: no head vouched for the %d records before it when waldo started", r.Seq,
				b.Past)
		}
		if b.Beginning > 0 {
			v.notice("head.format", "when record %d was written, no head named the first record: a cut before record %d "+
				"could not be seen", r.Seq, b.Beginning)
		}
	}
	p, ok := prunedRecord(r)
	if ok && v.ledger.Named() && (!p.Signed() || !v.ledger.Stands(p.Key)) &&
		(v.pruned == nil || p.Through > v.pruned.Through || !v.pruned.Signed()) {
		v.problem("prune.unsigned", "record %d says that records were pruned, and no first approver signed that", r.Seq)
	}
}

// asked holds a removal that no first approver signed against the configuration in force.
func (v *verifier) asked(p *Pruned) {
	if p.Signed() && v.ledger.Whole(v.expect.Pins) == nil {
		return
	}
	said, _ := when(p.said)
	newest, known := when(p.Newest)
	switch keep, unsigned := v.keep(); {
	case unsigned:
		v.problem("prune.unasked", "records up to %d were removed, and no configuration that the first approver signed asks "+
			"for that", p.Through)
	case len(v.expect.Keeps) == 0:
		v.unchecked("prune.unchecked", "no configuration was read, so its log.keep was not compared with the removal of "+
			"records up to %d", p.Through)
	case keep == 0:
		v.problem("prune.unasked", "records up to %d were removed, and the configuration in force keeps every record",
			p.Through)
	case !known || said.Sub(newest) < keep:
		v.problem("prune.early", "record %d was removed %v after it was written; the configuration in force keeps records "+
			"for %v", p.Through, said.Sub(newest), keep)
	}
}

// keep returns the shortest retention; 0: none removes. Where the log or a pin names an approver, those alone count
// that the first one signed; unsigned: none of them is.
func (v *verifier) keep() (shortest time.Duration, unsigned bool) {
	root, needed, err := v.ledger.Judge(v.expect.Judges)
	needed = needed || v.pinned()
	unsigned = needed
	for _, r := range v.expect.Keeps {
		if needed && (err != nil || r.Accepted == "" || v.ledger.NewestOf(root, r.File).Accepted != r.Accepted) {
			continue
		}
		unsigned = false
		if r.Keep > 0 && (shortest == 0 || r.Keep < shortest) {
			shortest = r.Keep
		}
	}
	return shortest, unsigned
}

// first holds the first record that is there against the anchors.
func (v *verifier) first() {
	bound := false
	for _, a := range v.anchors {
		if a.Head == nil {
			continue
		}
		bound = bound || a.Head.First > 0
		if first := a.Head.First; v.start > first && first > 0 {
			v.problem("head.beginning", "the log begins with record %d, and the head in %s says with record %d: the beginning "+
				"was cut off", v.start, a.Name, first)
		}
		if b := a.Head.Before; b != nil && v.start == 1 && !v.aside.before(b) {
			v.problem("head.before", "the head in %s names a log that was set aside at record %d; the first record does not",
				a.Name, b.Seq)
		}
	}
	if !bound && v.start > 1 {
		v.unchecked("head.format", "no head names the first record, so it was not checked whether the beginning was cut; "+
			"the next start of waldo stores it")
	}
}

// replaced finds which log this one replaced, and whether that is still there.
func (v *verifier) replaced() {
	b := v.aside
	if b == nil {
		if v.pruned != nil && !v.pruned.Began.IsZero() {
			v.notice("aside", "the log began at %s after another was set aside", v.pruned.Began.Format(time.RFC3339))
		}
		return
	}
	v.notice("aside", "the log began after another of %d records was set aside by %s: %s; that is in %s",
		b.Report.LastSeq, b.By, b.Reason, b.Folder)
	if code, text := b.changed(v.dir); code != "" {
		v.problem(code, "the log that was set aside: %s", text)
	}
	if len(b.Checkpoint.Void) > 0 && !b.signed() {
		v.problem("aside.unsigned", "the log that was set aside named approvers, and the first one did not sign")
	}
}

func (v *verifier) pinned() bool {
	return slices.ContainsFunc(v.expect.Pins, func(p string) bool { return p != "" })
}

// beginning holds the first record that is there against what the log says was removed.
func (v *verifier) beginning() {
	v.segment, v.line, v.next = segmentName(v.start), 1, v.start
	v.first()
	v.replaced()
	if v.start <= 1 {
		return
	}
	gone, p := v.start-1, v.pruned
	switch {
	case p == nil || p.Through < gone:
		v.problem("segment.order", "records up to %d are missing, and no record says that they were pruned", gone)
	case p.Through == gone && p.Hash != v.before:
		v.problem("prune.mismatch", "record %d does not follow the one that was pruned before it", v.start)
	default:
		v.Pruned = gone
		v.notice("pruned", "records up to %d were pruned at %s by %s, who keeps them for %s", gone, p.said, p.By, p.Keep)
		v.asked(p)
	}
	if err := v.ledger.Whole(v.expect.Pins); err != nil && (v.ledger.Named() || v.pinned()) {
		v.problem("prune.unsigned", "%s", strings.TrimSuffix(err.Error(), " (prune.unsigned)"))
	}
}

// times reports clock jumps; an honest log has them after the clock was set.
func (v *verifier) times(r Record) {
	at, ok := when(r.At)
	if !ok {
		return
	}
	if at.Before(v.lastAt.Add(-time.Second)) {
		v.notice("clock.back", "record %d is %v older than the record before it", r.Seq, v.lastAt.Sub(at))
	}
	if at.After(v.now.Add(time.Minute)) {
		v.notice("clock.ahead", "record %d is from the future: %s", r.Seq, r.At)
	}
	v.lastAt = at
}

// hold holds a record against the anchors.
func (v *verifier) hold(r Record) {
	for i, a := range v.anchors {
		if a.Head == nil {
			continue
		}
		if a.Head.Seq == r.Seq && a.Head.Hash != r.Hash || a.Head.First == r.Seq && a.Head.FirstHash != r.Hash {
			v.problem("head.mismatch", "record %d is not the one that the head in %s names: the log, or that head, was replaced",
				r.Seq, a.Name)
		}
		if a.Head.Seq+1 == r.Seq {
			v.past[i] = v.lastAt
		}
	}
}

// conclude holds the end of the log against the anchors and says what is known now.
func (v *verifier) conclude() {
	v.beginning()
	v.segment, v.line, v.next = "", 0, v.LastSeq+1
	anchored := ""
	for i, a := range v.anchors {
		switch {
		case a.Head == nil && v.LastSeq <= 1 && !v.bad:
		case a.Head == nil:
			v.problem("head.absent", "there are records and no head in %s: the head was removed", a.Name)
		case a.Head.Seq > v.LastSeq:
			v.problem("head.past_end", "the log ends with record %d and the head in %s names record %d: the end was cut off",
				v.LastSeq, a.Name, a.Head.Seq)
		case a.Head.Seq < v.LastSeq && v.lastAt.Sub(v.past[i]) > headSlack:
			v.problem("head.old", "the head in %s is %d records behind, over %v: it was put back", a.Name, v.LastSeq-a.Head.Seq,
				v.lastAt.Sub(v.past[i]))
		case a.Head.Seq < v.LastSeq && v.now.Sub(v.past[i]).Abs() > headSlack: // no living waldo left them so
			v.unchecked("head.behind", "no head in %s vouches for the last %d records: waldo was killed or backed up after them, "+
				"or another program wrote them; its next start counts them", a.Name, v.LastSeq-a.Head.Seq)
		case a.Head.Seq < v.LastSeq:
			v.notice("head.behind", "the last %d records are not vouched for by the head in %s yet",
				v.LastSeq-a.Head.Seq, a.Name)
		}
		if a.Head != nil {
			anchored = a.Name
		}
	}
	if v.skipped > 0 {
		v.Findings = append(v.Findings, Finding{
			Code: "more", Text: fmt.Sprintf("%d more findings are not listed", v.skipped),
		})
	}
	v.OK = !v.bad
	v.Complete = !slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Unchecked })
	v.Claim = claim(v.OK, anchored)
}

// Add adds findings of what else was signed of the log.
func (r *Report) Add(more ...Finding) {
	for _, f := range more {
		r.Findings = append(r.Findings, f)
		r.Complete = r.Complete && !f.Unchecked
		if f.Problem {
			r.OK, r.Claim = false, claim(false, "")
		}
	}
}

// claim says what a verification shows, and no more.
func claim(ok bool, anchored string) string {
	switch {
	case !ok:
		return "The log is not as it was written, or was damaged by a crash; the findings say where."
	case anchored == "":
		return "Every record fits the one before it. No head was at hand: a cut end, or a log rewritten as a whole, " +
			"would not show."
	}
	return "Every record fits the one before it, and the log reaches the head in " + anchored +
		". A rewrite of both the log and that head would not show: compare last_seq and last_hash with a " +
		"copy kept elsewhere."
}

func (v *verifier) problem(code, format string, args ...any) { v.find(true, code, format, args...) }

func (v *verifier) notice(code, format string, args ...any) { v.find(false, code, format, args...) }

// unchecked is listed always.
func (v *verifier) unchecked(code, format string, args ...any) {
	v.Findings = append(v.Findings, Unchecked(code, format, args...))
}

func (v *verifier) find(problem bool, code, format string, args ...any) {
	v.bad = v.bad || problem
	if len(v.Findings) >= maxFindings {
		v.skipped++
		return
	}
	v.Findings = append(v.Findings, Finding{
		Problem: problem, Code: code, Segment: v.segment, Line: v.line, Seq: v.next, Text: fmt.Sprintf(format, args...),
	})
}
