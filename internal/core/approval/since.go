package approval

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"waldo/internal/model/call"
)

// Before is the last call of a capability that a human allowed.
type Before struct {
	ID    string
	At    string // when it was approved
	By    []string
	shown Question
}

// Kind is how a value differs from the last approved call.
type Kind string

// The kinds.
const (
	Added   Kind = "added"
	Differs Kind = "changed"
	Removed Kind = "removed"
)

// Change is one value that differs from the last approved call.
type Change struct {
	Kind   Kind
	Path   string
	Value  string // empty: removed
	Before string // empty: added
}

// Changes returns what differs from the last approved call: the arguments and sandbox options in the order of Fields,
// then what it had besides, then what waldo found (such as the values of tokens) and what the call would do.
func (q Question) Changes(b Before) []Change {
	old, before := map[string]string{}, b.shown.Fields()
	for _, f := range before {
		old[f.Path] = f.Value
	}
	var out []Change
	for _, f := range q.Fields() {
		value, had := old[f.Path]
		delete(old, f.Path)
		switch {
		case !had:
			out = append(out, Change{Added, f.Path, f.Value, ""})
		case value != f.Value:
			out = append(out, Change{Differs, f.Path, f.Value, value})
		}
	}
	for _, f := range before {
		if _, gone := old[f.Path]; gone {
			out = append(out, Change{Removed, f.Path, "", f.Value})
		}
	}
	return out
}

// Others names what differs from the last approved call beside the values of its arguments; none: all that is shown is
// the same.
func (q Question) Others(b Before) (out []string) {
	was := b.shown
	for _, one := range []struct {
		what string
		same bool
	}{
		{"what waldo found (such as the values of tokens)", slices.Equal(q.Notes, was.Notes)},
		{"what it would do", slices.Equal(q.Preview, was.Preview)},
		{"the sandbox options", q.RunDigest == was.RunDigest && string(q.Run) == string(was.Run)},
		{"the definition of the tool", q.ToolDigest == was.ToolDigest},
		{"the class or the danger", q.Mode == was.Mode && q.Danger == was.Danger},
	} {
		if !one.same {
			out = append(out, one.what)
		}
	}
	return out
}

// maxChanges limits the changes that a text shows.
const maxChanges = 100

// showChanges writes what changed since the last approved call. Lines with words of the agent start with a bar.
func (q Question) showChanges(b *strings.Builder) {
	if q.since == nil {
		return
	}
	changes := q.Changes(*q.since)
	by := strings.Join(q.since.By, ", ")
	fmt.Fprintf(b, "The last approved call of this capability is %s (%s, by %s). ", q.since.ID, name(q.since.At), name(by))
	others := q.Others(*q.since)
	if len(changes) == 0 && len(others) == 0 {
		b.WriteString("It had the same arguments, and all else that is shown was the same.\n")
		return
	}
	b.WriteString("Since then CHANGED:\n")
	for _, what := range others {
		fmt.Fprintf(b, "    %s\n", what)
	}
	for i, c := range changes {
		if i == maxChanges {
			fmt.Fprintf(b, "  |   %d more changes are NOT shown here\n", len(changes)-i)
			return
		}
		switch c.Kind {
		case Added:
			fmt.Fprintf(b, "  | + %s = %s\n", c.Path, c.Value)
		case Removed:
			fmt.Fprintf(b, "  | - %s, which was %s\n", c.Path, c.Before)
		default:
			fmt.Fprintf(b, "  | ~ %s = %s, which was %s\n", c.Path, c.Value, c.Before)
		}
	}
}

// comparable reports whether two questions ask for the same tool: by name, file of contracts and principal.
func (q Question) comparable(other Question) bool {
	return q.Capability == other.Capability && q.File == other.File && q.Principal == other.Principal
}

// Since returns the question with the last approved call of its capability, which Show then compares it with. Nothing
// of that is signed. Without such a call, or where the log cannot be read, it returns the question as it is.
func (k *Service) Since(ctx context.Context, q Question) Question {
	if b, err := k.LastApproved(ctx, q); err == nil {
		q.since = b
	}
	return q
}

// agreed names the calls of one capability by one session.
type agreed struct {
	session    call.Session
	capability call.Capability
}

// sinceForHost is Since for the host of a session. It compares with the last call of that session to which the host
// said yes: its agent must not learn of calls of other sessions.
func (k *Service) sinceForHost(q Question) Question {
	k.mu.Lock()
	defer k.mu.Unlock()
	if b, ok := k.agreed[agreed{q.Session, q.Capability}]; ok {
		q.since = &b
	}
	return q
}
