package site

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"waldo/internal/core/audit"
	"waldo/internal/model/facts"
)

// pageCalls lists the calls, newest first.
func (s *Server) pageCalls(q *request) error {
	l, f, err := s.calls(q)
	if err != nil {
		return err
	}
	open, err := s.o.Backend.Unsettled(q.Context())
	if err != nil {
		return err
	}
	v := q.URL.Query()
	return s.show(q, http.StatusOK, "calls", "Calls", struct {
		List[Call]
		Results  []string
		Periods  []choice
		Filter   CallFilter
		Since    string
		Filtered bool
		More     string
		Open     []Unsettled
	}{l, Results, callPeriods, f, v.Get("since"), len(v) > 0, more("/calls", v, l.Next), open.Items})
}

// choice is one option of a filter.
type choice struct{ Value, Name string }

var callPeriods = []choice{{"", "any time"}, {"1h", "last hour"}, {"24h", "last 24 hours"}, {"168h", "last 7 days"}}

// more is the address of the next part of a list with the filters of this one; empty: there is none.
func more(path string, v url.Values, next string) string {
	if next == "" {
		return ""
	}
	v.Set("cursor", next)
	for name := range v {
		if v.Get(name) == "" {
			v.Del(name)
		}
	}
	return path + "?" + v.Encode()
}

// pageCall shows one call's whole life.
func (s *Server) pageCall(q *request) error {
	c, err := s.o.Backend.Call(q.Context(), q.PathValue("id"))
	if err != nil {
		return err
	}
	v := callView{CallLife: c}
	if len(c.Facts) > 0 {
		var f ran
		if json.Unmarshal(c.Facts, &f) == nil {
			v.Ran = &f
		}
	}
	return s.show(q, http.StatusOK, "call", "Call "+c.ID, v)
}

// callView is the data of the page of one call.
type callView struct {
	CallLife
	Ran *ran // nil: it has not ended
}

// field is one argument that is a text of several lines.
type field struct{ Name, Text string }

// Texts returns the arguments that are texts of several lines, as code is.
func (v callView) Texts() (out []field) {
	members, _ := v.members()
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if text, ok := members[name].(string); ok && strings.Contains(text, "\n") {
			out = append(out, field{name, text})
		}
	}
	return out
}

// Plain returns the arguments without those of Texts.
func (v callView) Plain() json.RawMessage {
	members, ok := v.members()
	texts := v.Texts()
	if !ok || len(texts) == 0 {
		return v.Args
	}
	for _, f := range texts {
		members[f.Name] = "(below)"
	}
	b, _ := json.Marshal(members)
	return b
}

func (v callView) members() (out map[string]any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(v.Args))
	d.UseNumber()
	err := d.Decode(&out)
	return out, err == nil
}

// ran is the part of a call's facts that the page shows in words.
type ran struct {
	facts.Facts
	Stdout audit.Sized `json:"stdout"` // in place of the text, which the log does not hold
	Stderr audit.Sized `json:"stderr"`
}

// Acted reports whether anything ran: a denied or waiting call has used, reached and written nothing.
func (r ran) Acted() bool { return r.Status != facts.Denied && r.Status != facts.Waiting }

// Ended says what ended the run beside its own exit: a signal, a limit.
func (r ran) Ended() string {
	words := ""
	if r.Signal != nil {
		words = *r.Signal
	}
	if r.Limit != nil {
		words += " limit " + string(*r.Limit)
	}
	return strings.TrimSpace(words)
}

// Used is one measure of a run with its limit, and the percentage of it.
type Used struct {
	Name, Used, Limit string
	Share             int
}

// Level is the class of a bar.
func (u Used) Level() string {
	switch {
	case u.Share >= 99:
		return "full"
	case u.Share >= 80:
		return "hot"
	}
	return ""
}

// Uses returns what the run used of its limits.
func (r ran) Uses() []Used {
	span := func(ms int64) string { return millis(float64(ms)) }
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	u, l := r.Usage, r.Limits
	of := func(name string, used, limit int64, say func(int64) string) Used {
		if limit <= 0 {
			return Used{Name: name, Used: say(used)}
		}
		return Used{name, say(used), say(limit), int(min(100, 100*used/limit))}
	}
	return []Used{
		of("Time", int64(u.WallMS), l.WallMS, span), of("Processor", int64(u.CPUMS), l.CPUMS, span),
		of("Memory", u.MemoryPeak, l.MemoryBytes, size), of("Processes", u.PidsPeak, l.Pids, count),
		of("Output", u.OutputBytes, 0, size), of("Disk", u.DiskBytes, 0, size),
	}
}

// size says a number of bytes in words.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return strconv.FormatInt(n, 10) + " B"
	case n < 1<<20:
		return strconv.FormatFloat(float64(n)/(1<<10), 'f', 1, 64) + " KiB"
	case n < 1<<30:
		return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB"
	}
	return strconv.FormatFloat(float64(n)/(1<<30), 'f', 1, 64) + " GiB"
}
