package audit

import (
	"strings"
	"testing"
)

// TestSpelling: a record that two readers take for different things is found. The control is the same text in one
// spelling.
func TestSpelling(t *testing.T) {
	const body = `{"by":"approver:ann","args_digest":"a","signed":{"by":"ann","note":"a \"By\":1, {\"x\""},"also":[{"key":"k"}]}`
	if err := spelled(Record{Kind: KindVerdict, Body: []byte(body)}); err != nil {
		t.Fatal("control:", err)
	}
	for _, row := range []struct{ kind, old, with string }{
		{KindVerdict, `"args_digest":`, `"args_digest":"b","args_digest":`},
		{KindVerdict, `"args_digest":`, `"args_digest":"b","Args_Digest":`},
		{KindVerdict, `"args_digest":`, `"args_digest":"b","args\u005fdigest":`},
		{KindVerdict, `"args_digest":`, `"args_digest":"b", "args_digest":`},
		{KindVerdict, `"key":`, `"\u212aey":"b","key":`},
		{KindVerdict, `"by":"ann"`, `"by":"bob","By":"ann"`},
		{KindVerdict, `"by":"ann"`, `"by":"bob","by":"ann"`},
		{"note", `"args_digest":`, `"args_digest":"b","args_digest":`},
		{"note", `"args_digest":`, `"Args_digest":`},
	} {
		if !strings.Contains(body, row.old) {
			t.Fatal(row.old)
		}
		if err := spelled(Record{Kind: row.kind, Body: []byte(strings.Replace(body, row.old, row.with, 1))}); err == nil {
			t.Errorf("%s with %s was not found", row.kind, row.with)
		}
	}
	if err := spelled(Record{Kind: KindDecision, Body: []byte(`{"args":{"By":1,"by":2}}`)}); err != nil {
		t.Error("an agent's own names of arguments:", err)
	}
}

// TestAnswersOfOtherCalls: an approver's answer under a decision that it was not about is found, in a record of its own
// and in one that was changed.
func TestAnswersOfOtherCalls(t *testing.T) {
	decision := func(id, capability, args string) Record {
		return Record{Kind: KindDecision, Body: []byte(`{"decision_id":"` + id + `","call_id":"c_` + id +
			`","capability":"` + capability +
			`","args_digest":"` + args + `"}`)}
	}
	said := func(kind, id, call, capability, args, more string) Record {
		return Record{Kind: kind, Body: []byte(`{"decision_id":"` + id + `","call_id":"` + call +
			`","approval_id":"q","capability":"` +
			capability + `","args_digest":"` + args + `"` + more + `}`)}
	}
	first, second := decision("d1", "files.delete", "a"), decision("d2", "payments.send", "a")
	verdict := said(KindVerdict, "d1", "", "files.delete", "a", "")
	for _, row := range []struct {
		name  string
		start uint64
		found int
		all   []Record
	}{
		{"control: the answer of its call", 1, 0, []Record{first, verdict,
			said(KindAnswer, "d1", "c_d1", "files.delete", "a", "")}},
		{"control: an equal call later", 1, 0, []Record{first, verdict, decision("d3", "files.delete", "a"),
			said(KindAnswer, "d3", "c_d3", "files.delete", "a", "")}},
		{"control: waldo's own refusal", 1, 0, []Record{said(KindAnswer, "d9", "c", "x", "a", `,"refusal":"r"`)}},
		{"control: the decision was removed", 7, 0, []Record{verdict}},
		{"the verdict names another capability", 1, 1, []Record{first,
			said(KindVerdict, "d1", "", "payments.send", "a", "")}},
		{"the verdict names another decision", 1, 1, []Record{first, second,
			said(KindVerdict, "d2", "", "files.delete", "a", "")}},
		{"the answer is under another call", 1, 1, []Record{first, verdict, second,
			said(KindAnswer, "d2", "c_d2", "payments.send", "a", "")}},
		{"the answer has another call's id", 1, 1, []Record{first, verdict,
			said(KindAnswer, "d1", "c_d2", "files.delete", "a", "")}},
		{"another decision has the id", 1, 1, []Record{first, decision("d1", "payments.send", "a")}},
		{"control: the same decision again", 1, 0, []Record{first, first}},
		{"the answer has other arguments", 1, 2, []Record{first, verdict,
			said(KindAnswer, "d1", "c_d1", "files.delete", "b", "")}},
	} {
		v := &verifier{start: row.start, decided: map[uint64]fate{}, shown: map[uint64]uint64{}}
		for _, r := range row.all {
			v.answers(r)
		}
		if len(v.Findings) != row.found {
			t.Errorf("%s: %+v, want %d", row.name, v.Findings, row.found)
		}
	}
}

// TestDoubts: an answer under a call that it was not about is doubted by its number. The control is under its own.
func TestDoubts(t *testing.T) {
	decision := Record{Seq: 1, Kind: KindDecision, Body: []byte(`{"decision_id":"d","call_id":"c","capability":"x.y","args_digest":"a"}`)}
	said := func(seq uint64, args string) Record {
		return Record{Seq: seq, Kind: KindVerdict, Body: []byte(`{"decision_id":"d","call_id":"","approval_id":"q","capability":"x.y",` +
			`"args_digest":"` + args + `","yes":false,"by":"session:n"}`)}
	}
	got := Doubts([]Record{decision, said(2, "a"), said(3, "b")})
	if len(got) != 1 || !strings.Contains(got[3], "record 3 is not about what") {
		t.Errorf("%v", got)
	}
	forged := said(4, "a")
	forged.Body = []byte(strings.Replace(string(forged.Body), `"yes":false,"by":"session:n"`, `"yes":true,"by":"approver:ann"`, 1))
	if got := Doubts([]Record{decision, forged}); !strings.Contains(got[4], "record 4") {
		t.Errorf("without a signature: %v", got)
	}
}
