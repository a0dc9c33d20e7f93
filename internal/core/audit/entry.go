package audit

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// KindEgress is the kind of records about network access of a server's sandbox.
const KindEgress = "egress"

// Selection says which records Select returns. Empty fields select all. Later records of a call have the principal,
// agent, channel and category of its decision.
type Selection struct {
	Since, Until          time.Time // of Since or later, before Until
	Before                uint64    // records with a lower number
	Kind, Without         string    // Without: of other kinds
	Principal, Capability string    // * stands for any characters; also the person who answered
	Agent                 string    // the name that an agent host gave itself; with *
	Channel, Effect       string
	Category              string                // of the call's command
	Host                  string                // that was tried, allowed or not; with *
	Denied                bool                  // that something was denied
	About                 []string              // ids: of a call, decision, approval, parent or record
	Last                  int                   // at most this many, the newest; 0: all
	Progress              func(done, all int64) // is called as the index is made, with bytes of the log; can be nil
	// Match looks at each record that fits the rest; nil: it fits. Matched counts the records before that.
	Match func(Record) bool
}

// entry is what a selection asks of a record.
type entry struct {
	texts [texts32]string
	ids   [5]string // of itself, its call, decision, approval and parent
}

func entryOf(r Record) (e entry) {
	var b struct {
		CallID     string          `json:"call_id"`
		DecisionID string          `json:"decision_id"`
		ApprovalID string          `json:"approval_id"`
		Parent     string          `json:"parent"`
		Capability string          `json:"capability"`
		Category   string          `json:"category"`
		Effect     string          `json:"effect"`
		Status     string          `json:"status"`
		Yes        *bool           `json:"yes"`
		By         string          `json:"by"`
		Channel    string          `json:"channel"`
		Principal  string          `json:"principal"`
		Agent      string          `json:"agent"`
		Attempts   []facts.Attempt `json:"attempts"`
		Facts      struct {
			Network facts.Network `json:"network"`
		} `json:"facts"`
	}
	_ = json.Unmarshal(r.Body, &b) // other kinds lack these members
	e.ids = [5]string{r.ID, b.CallID, b.DecisionID, b.ApprovalID, b.Parent}
	denied, attempts := false, b.Facts.Network.Tried()
	switch r.Kind {
	case KindDecision:
		denied = b.Effect == "deny"
	case KindVerdict, KindAnswer:
		denied = b.Yes == nil || !*b.Yes
	case KindOutcome:
		denied = b.Status == "denied" || len(b.Facts.Network.Denied) > 0
	case KindEgress:
		attempts = b.Attempts
		for _, a := range attempts {
			denied = denied || !a.Allowed
		}
	}
	hosts := make([]string, 0, len(attempts))
	for _, a := range attempts {
		hosts = append(hosts, a.Host)
	}
	e.texts = [texts32]string{textKind: r.Kind, textEffect: b.Effect, textPrincipal: b.Principal, textBy: b.By,
		textCapability: b.Capability, textCategory: b.Category, textAgent: b.Agent, textChannel: b.Channel,
		textHosts: strings.Join(hosts, "\n")}
	if denied {
		e.texts[textDenied] = "yes"
	}
	return e
}

// test is one condition of a selection on a text.
type test struct {
	text   int
	caller bool // of the decision of the call
	or     int  // another text, of the record itself; 0: none
	fits   func(string) bool
}

// tests returns the conditions of a selection on texts.
func (s Selection) tests() (all []test) {
	is := func(want string) func(string) bool { return func(have string) bool { return have == want } }
	add := func(want string, t test) {
		if want != "" {
			all = append(all, t)
		}
	}
	add(s.Kind, test{text: textKind, fits: is(s.Kind)})
	add(s.Without, test{text: textKind, fits: func(have string) bool { return have != s.Without }})
	add(s.Effect, test{text: textEffect, fits: is(s.Effect)})
	add(s.Channel, test{text: textChannel, caller: true, fits: is(s.Channel)})
	add(s.Category, test{text: textCategory, caller: true, fits: is(s.Category)})
	who := contract.Pattern(s.Principal)
	add(s.Principal, test{text: textPrincipal, caller: true, or: textBy, fits: func(have string) bool {
		return who.Match(have) || who.Match(strings.TrimPrefix(have, "approver:")) // a person, by name alone
	}})
	add(s.Agent, test{text: textAgent, caller: true, fits: contract.Pattern(s.Agent).Match})
	add(s.Capability, test{text: textCapability, fits: contract.Pattern(s.Capability).Match})
	add(s.Host, test{text: textHosts, fits: func(have string) bool {
		for host := range strings.SplitSeq(have, "\n") {
			if have != "" && contract.Pattern(s.Host).Match(host) {
				return true
			}
		}
		return false
	}})
	if s.Denied {
		all = append(all, test{text: textDenied, fits: is("yes")})
	}
	return all
}

// span returns the times of a selection in milliseconds: from the first to before the last.
func (s Selection) span() (first, last int64) {
	first, last = -1<<62, 1<<62
	if !s.Since.IsZero() {
		if first = s.Since.UnixMilli(); time.UnixMilli(first).Before(s.Since) {
			first++
		}
	}
	if !s.Until.IsZero() {
		last = s.Until.UnixMilli()
	}
	return first, last
}

// holds reports whether a record fits, with the decision of its call.
func (s Selection) holds(tests []test, r Record, own, caller entry) bool {
	first, last := s.span()
	at, _ := when(r.At)
	if ms := at.UnixMilli(); ms < first || ms >= last || s.Before > 0 && r.Seq >= s.Before {
		return false
	}
	for _, t := range tests {
		from := own
		if t.caller {
			from = caller
		}
		if !t.fits(from.texts[t.text]) && (t.or == 0 || !t.fits(own.texts[t.or])) {
			return false
		}
	}
	return s.About == nil || slices.ContainsFunc(own.ids[:], func(one string) bool {
		return one != "" && slices.Contains(s.About, one)
	})
}

// Matcher returns a filter for records as they come, oldest first. It looks for earlier decisions in the log.
func (s Selection) Matcher(ctx context.Context, dir string) func(Record) bool {
	tests, callers := s.tests(), map[string]entry{"": {}}
	return func(r Record) bool {
		own := entryOf(r)
		caller, call := own, own.ids[idCall]
		of, known := callers[call]
		if !known && slices.ContainsFunc(tests, func(t test) bool { return t.caller }) {
			decided := Selection{Kind: KindDecision, About: []string{call}, Before: r.Seq, Last: 1,
				Match: func(r Record) bool { return entryOf(r).ids[idCall] == call }}
			_, err := Select(ctx, dir, decided, func(r Record) error {
				of = entryOf(r)
				return nil
			})
			known = err == nil && of.ids[idCall] == call
		}
		switch {
		case call == "":
		case r.Kind == KindDecision:
			callers[call] = own
		case known:
			caller, callers[call] = of, of
		}
		return s.holds(tests, r, own, caller)
	}
}
