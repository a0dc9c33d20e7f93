package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"waldo/internal/model/facts"
)

// pageCalls lists the calls, newest first.
func (s *Server) pageCalls(q *request) error {
	p, err := q.page()
	if err != nil {
		return err
	}
	f := callFilter(q.URL.Query())
	l, err := s.o.Backend.Calls(q.Context(), f, p)
	if err != nil {
		return err
	}
	more := ""
	if l.Next != "" {
		v := url.Values{"cursor": {l.Next}}
		for name, value := range map[string]string{
			"capability": f.Capability, "principal": f.Principal, "effect": f.Effect, "status": f.Status, "session": f.Session,
		} {
			if value != "" {
				v.Set(name, value)
			}
		}
		more = "/calls?" + v.Encode()
	}
	return s.show(q, http.StatusOK, "calls", "Calls", struct {
		List[Call]
		Effects []string
		Filter  CallFilter
		More    string
	}{l, []string{"", "allow", "ask", "deny"}, f, more})
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

// ran is the part of a call's facts that the page shows in words.
type ran struct {
	facts.Facts
	Stdout Sized `json:"stdout"` // in place of the text, which the log does not hold
	Stderr Sized `json:"stderr"`
}

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

// Used is one measure of a run with its limit.
type Used struct{ Name, Used, Limit string }

// Uses returns what the run used of its limits.
func (r ran) Uses() []Used {
	limit := func(n int64, say func(int64) string) string {
		if n <= 0 {
			return ""
		}
		return say(n)
	}
	span := func(ms int64) string { return millis(float64(ms)) }
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	u, l := r.Usage, r.Limits
	return []Used{
		{"Time", millis(u.WallMS), limit(l.WallMS, span)}, {"Processor", millis(u.CPUMS), limit(l.CPUMS, span)},
		{"Memory", size(u.MemoryPeak), limit(l.MemoryBytes, size)}, {"Processes", count(u.PidsPeak), limit(l.Pids, count)},
		{"Output", size(u.OutputBytes), ""}, {"Disk", size(u.DiskBytes), ""},
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
