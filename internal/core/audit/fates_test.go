package audit

import (
	"fmt"
	"strings"
	"testing"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// The records of one call, as waldo writes them.
func decidedAs(effect string) string {
	return `decision {"decision_id":"d","call_id":"c","effect":"` + effect + `","capability":"x.y","args_digest":"a"}`
}

func saysYes(more string) string {
	return `answer {"decision_id":"d","call_id":"c","approval_id":"q","capability":"x.y","args_digest":"a",` +
		`"yes":true` + more + `}`
}

func endedAs(effect string) string {
	return `outcome {"decision_id":"d","call_id":"c","row":"r0",` +
		`"facts":{"limits":{"side_effect":"none"},"side_effect":"` + effect + `"}}`
}

func settledAs(word, row string) string {
	return `settled {"call_id":"c","decision_id":"d","settled":"` + word + `","row":"` + row + `"}`
}

// TestEndings: an outcome or a settlement of a call that the log did not allow is found, and so is each that
// contradicts what the log has of its call. The controls are logs that waldo writes.
func TestEndings(t *testing.T) {
	allow, ask, deny := decidedAs("allow"), decidedAs("ask"), decidedAs("deny")
	yes, did, didNot, unknown := saysYes(""), endedAs("confirmed"), endedAs("none"), endedAs("unknown")
	killed := strings.Replace(unknown, `"row"`, `"why":[{"code":"effects.killed"}],"row"`, 1)
	happened, not, still := settledAs("happened", "r1"), settledAs("not_happened", "r2"), settledAs("still_unknown", "")
	dry := strings.Replace(allow, `"capability"`, `"dry_run":true,"capability"`, 1)
	other := strings.Replace(did, `"c"`, `"c2"`, 1)
	for _, row := range []struct {
		why, want string // the codes; those of problems with a "!"
		start     uint64
		records   []string
	}{
		{"control: allowed", "", 1, []string{allow, did}},
		{"control: a yes", "", 1, []string{ask, yes, did}},
		{"control: refused", "", 1, []string{deny, didNot}},
		{"control: nobody answered", "", 1, []string{ask, didNot}},
		{"control: a dry run", "", 1, []string{dry, didNot}},
		{"control: settled later", "", 1, []string{allow, unknown, still, still, not}},
		{"control: settled before its outcome", "", 1, []string{allow, happened, did}},
		{"control: tried again", "", 1, []string{allow, not, not, happened, did}},
		{"control: tried again, and unknown", "", 1, []string{allow, not, unknown, happened}},
		{"control: killed once it was settled", "", 1, []string{allow, happened, killed}},
		{"control: settled by two at one moment", "", 1, []string{allow, unknown, happened, happened}},
		{"control: settled while it was recorded", "", 1, []string{allow, happened, did, happened}},
		{"control: its decision was removed", "", 7, []string{did, happened}},
		{"control: about no call", "", 1, []string{`outcome {"ok":true}`}},

		{"a denied call acted", "outcome.denied!", 1, []string{deny, did}},
		{"a denied call is unknown", "outcome.denied!", 1, []string{deny, killed}},
		{"a dry run acted", "outcome.denied!", 1, []string{dry, did}},
		{"acted without an answer", "outcome.denied!", 1, []string{ask, unknown}},
		{"acted before the yes", "outcome.denied!", 1, []string{ask, did, yes}},
		{"waldo refused", "outcome.denied!", 1, []string{ask, saysYes(`,"refusal":"approval.used"`), did}},
		{"an effect that is no word", "outcome.denied!", 1, []string{deny, endedAs("None")}},
		{"killed while a human was asked, by an earlier waldo", "outcome.denied", 1, []string{ask, killed}},
		{"no decision", "outcome.decision!", 1, []string{did}},
		{"the decision of another call", "outcome.decision!", 1, []string{allow, other}},
		{"a settlement of the decision of another call", "outcome.decision!", 1,
			[]string{allow, unknown, strings.Replace(happened, `"c"`, `"c2"`, 1)}},
		{"a settlement of another host's call", "settled.elsewhere", 1, []string{happened}},
		{"two outcomes", "outcome.twice!", 1, []string{allow, did, did}},
		{"another outcome", "outcome.twice!", 1, []string{allow, unknown, did}},
		{"killed after its outcome", "outcome.twice!", 1, []string{allow, did, killed}},
		{"killed, recorded by two at one moment", "outcome.twice", 1, []string{allow, killed, killed}},
		{"a denied call happened", "settled.denied!", 1, []string{deny, happened}},
		{"a denied call is still unknown", "settled.denied!", 1, []string{deny, still}},
		{"happened without an answer", "settled.denied!", 1, []string{ask, happened}},
		{"control: a call without an answer did not happen", "", 1, []string{ask, not}},
		{"happened, and did not", "settled.contrary!", 1, []string{allow, unknown, happened, not}},
		{"did not happen, and did", "settled.contrary!", 1, []string{allow, unknown, not, happened}},
		{"happened, and had no effect", "settled.contrary!", 1, []string{allow, happened, didNot}},
		{"had an effect, and did not happen", "settled.contrary!", 1, []string{allow, did, not}},
		{"killed once it was settled, and did not happen", "settled.contrary!", 1, []string{allow, happened, killed, not}},
		{"settled although it was known", "settled.known!", 1, []string{allow, did, happened}},
		{"settled again, with another row", "settled.known!", 1,
			[]string{allow, unknown, happened, settledAs("happened", "evil")}},
		{"the same decision, which allows now", "decision.twice! outcome.denied!", 1, []string{deny, allow, did}},
		{"a denial again in between", "decision.twice!", 1, []string{allow, deny, did}},
	} {
		v := &verifier{start: row.start, decided: map[uint64]fate{}, shown: map[uint64]uint64{}}
		for _, text := range row.records {
			kind, body, _ := strings.Cut(text, " ")
			r := Record{Kind: kind, Body: []byte(body)}
			v.answers(r)
			v.endings(r)
		}
		var got []string
		for _, f := range v.Findings {
			got = append(got, f.Code+map[bool]string{true: "!"}[f.Problem])
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%s: %q, want %q", row.why, got, row.want)
		}
	}
	v := &verifier{start: 1, aside: &setAsideBody{}, decided: map[uint64]fate{}}
	v.endings(Record{Kind: KindOutcome, Body: []byte(strings.TrimPrefix(did, "outcome "))})
	if len(v.Findings) != 0 {
		t.Errorf("control: the decision is in the log that was set aside: %+v", v.Findings)
	}
}

// TestVerifyEndings: log verify finds them in a log, among calls as the recorder writes them.
func TestVerifyEndings(t *testing.T) {
	for _, row := range []struct {
		effect policy.Effect
		side   facts.SideEffect
		answer bool
		want   string
	}{
		{policy.Allow, facts.Confirmed, false, ""}, {policy.Ask, facts.Unknown, true, ""},
		{policy.Deny, facts.None, false, ""},
		{policy.Deny, facts.Confirmed, false, "outcome.denied"}, {policy.Ask, facts.Unknown, false, "outcome.denied"},
	} {
		dir, m := t.TempDir(), &memory{}
		l := openLog(t, dir, Options{Heads: m})
		r, d := &Recorder{Log: l}, decision(t, `{}`)
		d.Effect = row.effect
		err := r.Decision(ctx, d)
		if row.answer && err == nil {
			err = r.Answer(ctx, d, approval.Answer{ApprovalID: "q", DecisionID: d.ID, Capability: d.Call.Capability,
				ArgsDigest: d.Call.Args.Digest(), Yes: true, By: "session:n"})
		}
		if err != nil {
			t.Fatal(err)
		}
		f := facts.New()
		f.Status, f.SideEffect = facts.Failed, row.side
		if _, err := r.Outcome(ctx, d, call.Result{Status: f.Status, Facts: f}); err != nil {
			t.Fatal(err)
		}
		closeLog(t, l)
		if rep := verify(t, dir, m); rep.OK != (row.want == "") || codes(rep) != row.want {
			t.Errorf("%v %v: %s", row.effect, row.side, fmt.Sprint(rep.Findings))
		}
	}
}
