package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
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
	l, f, err := s.records(q)
	if err != nil {
		return err
	}
	more := ""
	if l.Next != "" {
		next := url.Values{"cursor": {l.Next}}
		for name, value := range map[string]string{"kind": f.Kind, "text": f.Text, "id": f.ID} {
			if value != "" {
				next.Set(name, value)
			}
		}
		more = "/log?" + next.Encode()
	}
	return s.show(q, http.StatusOK, "log", "Log", struct {
		List[Record]
		Filter   RecordFilter
		Verified *verified
		More     string
	}{l, f, v, more})
}

// gist sums up a record: the event, its subject and the person.
func gist(body json.RawMessage) string {
	var fields map[string]any
	if json.Unmarshal(body, &fields) != nil {
		return ""
	}
	var words []string
	if yes, isAnswer := fields["yes"].(bool); isAnswer {
		words = append(words, map[bool]string{true: "yes", false: "no"}[yes])
	}
	for _, names := range [][]string{
		{"effect", "status", "event", "action"}, {"capability", "server", "hook", "name"}, {"principal", "by"},
	} {
		for _, name := range names {
			if s, _ := fields[name].(string); s != "" {
				words = append(words, s)
				break
			}
		}
	}
	return strings.Join(words, ", ")
}
