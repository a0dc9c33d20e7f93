package hold_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/hold"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// TestOrder: calls are listed in the order in which they arrive, whichever is decided first. A call that is not held,
// and one whose request has ended, hold up none. A question for a result takes the calls before it alone.
func TestOrder(t *testing.T) {
	m := &maker{status: facts.OK}
	l := hold.New(decided(t, "run_python", "x", "", policy.Allow), m)
	ctx := hold.With(t.Context(), l)
	arrive := func() context.Context {
		one, end := context.WithCancel(ctx)
		t.Cleanup(end)
		return hold.Arrive(one)
	}
	read := arrive()
	gone, end := context.WithCancel(ctx)
	hold.Arrive(gone)
	numbers := make(chan int)
	add := func(ctx context.Context) {
		n, against := l.Add(ctx, decided(t, "s.add", "x", "", policy.Ask), nil)
		if against != nil {
			t.Error(against)
		}
		numbers <- n
	}
	first, second, result, third := arrive(), arrive(), arrive(), arrive()
	go add(third)
	results := make(chan call.Result)
	go func() {
		r, err := l.Result(result, "n_1", 2, "")
		if err != nil {
			t.Error(err)
		}
		results <- r
	}()
	go add(second)
	select {
	case n := <-numbers:
		t.Fatalf("call %d did not wait", n)
	case <-time.After(50 * time.Millisecond): // control: they can only be too early
	}
	hold.Pass(read)
	end()
	go add(first)
	for _, want := range []int{1, 2} {
		if n := <-numbers; n != want && n != 3-want {
			t.Errorf("number %d", n)
		}
	}
	if r := <-results; r.CallID != "c2" || len(m.asked) != 1 || len(m.asked[0].Calls) != 2 {
		t.Errorf("%+v %+v", r, m.asked)
	}
	if n := <-numbers; n != 3 {
		t.Errorf("number %d, want 3", n)
	}
	if got := hold.Arrive(t.Context()); got != t.Context() {
		t.Error("control: a call of a program whose writes are not held has a place")
	}
}

// TestChanges: which later previews a call can change.
func TestChanges(t *testing.T) {
	for _, row := range []struct {
		why   string
		calls string // capability and arguments of each, then its path
		want  string
	}{
		{"one path", "files.write path=a.txt|files.edit path=./A.txt", "[1]"},
		{"control: two files of the root", "files.write path=a.txt|files.edit path=b.txt", "[]"},
		{"a folder and a file of it", "files.delete path=d|files.write path=d/e/x", "[1]"},
		{"the first of a folder", "files.write path=d/x|files.write path=d/y|files.write path=e/y", "[1]"},
		{"the first of a folder that is deleted", "files.write path=d/x|files.delete path=d|files.write path=d/y", "[1 2]"},
		{"control: not the first of the folder", "files.write path=e/a|files.write path=d/y", "[]"},
		{"a move", "files.move from=a to=d|files.edit path=d/x|files.edit path=a", "[1 2]"},
		{"an undo has no path", "files.restore id=c_1|files.edit path=d/x", "[1]"},
		{"another tool", "fs.write path=a.txt|files.edit path=a.txt", "[]"},
	} {
		s := hold.Statement{}
		for text := range strings.SplitSeq(row.calls, "|") {
			words, args := strings.Fields(text), map[string]string{}
			for _, w := range words[1:] {
				k, v, _ := strings.Cut(w, "=")
				args[k] = v
			}
			a, err := call.ArgsOf(args)
			if err != nil {
				t.Fatal(err)
			}
			s.Calls = append(s.Calls, hold.Held{Capability: call.Capability(words[0]), Args: a.Raw()})
		}
		if got := fmt.Sprint(s.Changes(0)); got != row.want {
			t.Errorf("%s: %s, want %s", row.why, got, row.want)
		}
		if s.Struck = []int{1}; len(s.Changes(0)) > 0 {
			t.Errorf("%s: a struck call changes %v", row.why, s.Changes(0))
		}
	}
	s := hold.Statement{}
	for _, p := range []string{"e/a", "d/x", "d/y"} {
		a, _ := call.ArgsOf(map[string]string{"path": p})
		s.Calls = append(s.Calls, hold.Held{Capability: "files.write", Args: a.Raw()})
	}
	if got := fmt.Sprint(s.Changes(1)); got != "[2]" {
		t.Error(got)
	}
	s.Calls[0].Capability, s.Calls[0].Args = "files.delete", []byte(`{"path":"d"}`)
	if got := fmt.Sprint(s.Changes(1)); got != "[2]" {
		t.Error("after its folder was deleted: ", got)
	}
}

// TestAgain: a list names the calls that an equal or overlapping one made, with their ids here, and in lines that a
// question shows whole. Calls that did nothing are not named.
func TestAgain(t *testing.T) {
	list := func(texts ...string) (s hold.Statement) {
		for _, text := range texts {
			a, _ := call.ArgsOf(map[string]string{"text": text})
			s.Calls = append(s.Calls, hold.Held{Capability: "s.add", Args: a.Raw()})
		}
		return s
	}
	row := func(id string, status facts.Status, e facts.SideEffect) hold.Row {
		return hold.Row{CallID: id, Result: call.Result{Status: status, Facts: facts.Facts{SideEffect: e}}}
	}
	made := map[int]hold.Row{1: row("c_a", facts.OK, facts.Confirmed), 2: row("c_b", facts.Denied, facts.None),
		3: {CallID: "c_c", Struck: true}, 4: row("c_d", facts.Failed, facts.Unknown)}
	same := list("x", "d", "a", "a").Same(list("a", "b", "c", "d", "e"))
	if got := fmt.Sprint(same); got != "map[1:3 4:2]" {
		t.Error(got)
	}
	q := approval.Question{ID: "a_1", Capability: approval.Held}
	notes := hold.Again(q, same, made)
	if len(notes) != 1 || notes[0].Code != hold.AgainCode ||
		!strings.HasSuffix(notes[0].Text, "it made: call 3 done (c_a), call 2 unknown (c_d)") {
		t.Errorf("%+v", notes)
	}
	undone := made[1]
	undone.Undone = true
	if notes = hold.Again(q, same, map[int]hold.Row{1: undone}); len(notes) > 0 {
		t.Errorf("a call that was undone since: %+v", notes)
	}
	if notes = hold.Again(q, map[int]int{2: 1, 3: 2, 5: 3}, made); len(notes) > 0 {
		t.Errorf("control: calls that did nothing: %+v", notes)
	}
	same = map[int]int{}
	for n := 1; n <= hold.MaxCalls; n++ {
		made[n], same[n] = row(fmt.Sprintf("c_%026d", n), facts.OK, facts.Confirmed), n
	}
	all := ""
	for _, n := range hold.Again(q, same, made) {
		if all += n.Text; len(n.Text) > 300 {
			t.Errorf("%d bytes", len(n.Text))
		}
	}
	if n := strings.Count(all, "c_0"); n != hold.MaxCalls {
		t.Errorf("%d calls are named", n)
	}
}

// TestRenewed: what a later call would do is taken anew after an earlier call, unless that cannot have changed it so.
func TestRenewed(t *testing.T) {
	in := "in the folder /r"
	for why, row := range map[string]struct {
		was, now string
	}{
		"a file that is there now":   {"creates d/B.txt and its folder, 1 bytes", "replaces all 10 bytes of d/B.txt by 1"},
		"spelled in another way":     {"replaces all 10 bytes of d/b.txt by 1", "creates ./d/b.txt and its folder, 1 bytes"},
		"a path that was never said": {"it would fail: there is no such file", "replaces all 10 bytes of e/b.txt by 1"},
	} {
		one := hold.Held{Capability: "files.write", Args: []byte(`{"path":"./d/b.txt"}`)}
		s := hold.Statement{Calls: []hold.Held{one, one}}
		was, now := []string{in, row.was, "d/b.txt"}, []string{in, row.now, "d/b.txt"}
		if got := s.Renewed(0, 1, was, now); got[1] == row.was {
			t.Errorf("%s: %q", why, got)
		}
		s.Calls[0].Args = []byte(`{"path":"d/a.txt"}`) // which can have made the folder alone
		same := strings.HasPrefix(row.was, "creates ") && !strings.HasPrefix(row.now, "creates ")
		if got := s.Renewed(0, 1, was, now); (got[1] == row.was) != same {
			t.Errorf("%s, after another file: %q", why, got)
		}
	}
}

// TestLeft: a list knows what its calls left at a path, until one changes it or a folder above it in another way.
func TestLeft(t *testing.T) {
	l := hold.LeftBy(hold.Leaves(t.Context()))
	l.Changed("/r/d/a", "sha256:a")
	l.Changed("/r/d2/b", "sha256:b")
	l.Changed("/r/c", "sha256:c")
	l.Changed("/r/c", "")
	l.Changed("/r/d", "")
	if got := l.Digest("/r/d/a") + l.Digest("/r/d2/b") + l.Digest("/r/c"); got != "sha256:b" {
		t.Error(got)
	}
	if !l.Leads("/r/d/x", "/r/e/x") || l.Leads("/r/d/x", "/r/d/x") || !l.Leads("/r/d/x", "/r/e/x") {
		t.Error("a path leads elsewhere than it led")
	}
	if l.Changed("/r/d", ""); !l.Leads("/r/d/x", "/r/d/x") {
		t.Error("control: a call of the list removed the folder")
	}
	none := hold.LeftBy(t.Context())
	if !none.Leads("/r/c", "/r/c") || !none.Leads("/r/c", "/r/e") {
		t.Error("control: a call of no list leads anywhere")
	}
	if none.Changed("/r/c", "sha256:c"); none.Digest("/r/c") != "" {
		t.Error("control: a call of no list")
	}
}
