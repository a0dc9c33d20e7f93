package site

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"

	"waldo/internal/model/call"
)

// verified is the part of the report of Verify that the page shows.
type verified struct {
	OK       bool
	Records  uint64
	Segments int
	Claim    string
	Findings []struct {
		Problem             bool
		Code, Segment, Text string
		Line                int
		Seq                 uint64
	}
}

// pageLog lists the records of the log, newest first.
func (s *Server) pageLog(q *request) error { return s.showLog(q, nil) }

// postVerify verifies the log and shows the result above the newest records.
func (s *Server) postVerify(q *request) error {
	var v verified
	err := s.act(q, "audit.verify", "", func() error {
		report, err := s.o.Backend.Verify(q.Context())
		if err != nil {
			return err
		}
		return json.Unmarshal(report, &v)
	})
	if err != nil {
		return err
	}
	return s.showLog(q, &v)
}

func (s *Server) showLog(q *request, v *verified) error {
	if v := q.URL.Query(); v.Get("kind") == "" && v.Get("id") == "" { // each request of a page would add its own
		v.Set("without", "console")
		q.URL.RawQuery = v.Encode()
	}
	l, f, err := s.records(q)
	if err != nil {
		return err
	}
	return s.show(q, http.StatusOK, "log", "Log", struct {
		List[Record]
		Filter   RecordFilter
		Verified *verified
		Kinds    []choice
		More     string
	}{l, f, v, logKinds, more("/log", q.URL.Query(), l.Next)})
}

// logKinds are the kinds of records that the page offers.
var logKinds = []choice{{"", "all but the console's own"}, {"decision", "decisions"}, {"outcome", "outcomes"},
	{"verdict", "answers of people"}, {"egress", "egress of servers"}, {"change", "changes of the set-up"},
	{"reload", "reloads"}, {"stop", "stops"}, {"approver", "approvers"}, {"webhook", "webhooks"}, {"console", "the console's own"}}

// story is a record in words.
type story struct{ Class, Icon, What, Who, Detail, Call string }

// kindWords are what records of some kinds say; others are named by their kind.
var kindWords = map[string]string{"change": "Set-up changed", "reload": "Configuration read", "stop": "Agent stopped",
	"approver": "Approvers changed", "trust": "Configuration signed", "egress": "Egress of a server", "pruned": "Log pruned",
	"settled": "Outcome found", "webhook": "Webhook", "console": "Console"}

// storyOf returns what happened, to what, by whom and why.
func storyOf(r Record) story {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(r.Body, &fields)
	text := func(names ...string) string {
		for _, name := range names {
			t := ""
			if json.Unmarshal(fields[name], &t) == nil && t != "" {
				return line(t)
			}
		}
		return ""
	}
	var yes bool
	_ = json.Unmarshal(fields["yes"], &yes)
	t := story{"", "file", cmp.Or(kindWords[r.Kind], line(r.Kind)), text("agent", "by", "principal"), "", text("call_id")}
	if text("release") == "" && string(fields["release"]) == "true" {
		t.What = "Agent let in again"
	}
	word := ""
	switch r.Kind {
	case "decision":
		word, t.What = text("effect"), map[string]string{"ask": "Question", "deny": "Denied", "allow": "Allowed"}[text("effect")]
	case "outcome":
		word = text("status")
		t.What = map[string]string{"ok": "Done", "waiting": "Waits"}[word]
		t.What = cmp.Or(t.What, strings.ToUpper(word[:min(1, len(word))])+word[min(1, len(word)):])
	case "verdict", "answer":
		word = map[bool]string{true: "yes", false: "no"}[yes]
		t.What = "Answer: " + word
	case "reload":
		if string(fields["taken"]) == "false" {
			word, t.What = "deny", "Configuration refused, the one before stays"
		}
	case "stop":
		if text("session") != "" {
			t.What = "Session ended"
		}
	}
	if p := pillOf(word); word != "" {
		t.Class, t.Icon = p.Class, p.Icon
	}
	why := text("reason", "why", "result")
	for _, name := range []string{"why", "reasons"} {
		var all []call.Reason
		if json.Unmarshal(fields[name], &all) == nil && len(all) > 0 {
			why = line(Because(all))
		}
	}
	about := text("capability", "object", "name", "target", "hook", "server", "approver", "file")
	if act := text("action", "event"); act != "" {
		about = strings.TrimSpace(act + " " + about)
	}
	t.Detail = strings.TrimSuffix(about+": "+why, ": ")
	return t
}
