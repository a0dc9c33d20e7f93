package budget

import (
	"strings"
	"testing"
	"testing/synctest"
)

// service returns the order in which turns begin, for a line of principals named by letters. hold of the first turns
// are taken by the first letter's principal before the line forms.
func service(t *testing.T, turns, hold int, line string) (order string) {
	synctest.Test(t, func(t *testing.T) {
		s := NewTurns(turns)
		var leaves []func()
		for range hold {
			leaves = append(leaves, s.Enter(line[:1]))
		}
		began := make(chan string)
		step := make(chan struct{})
		for _, c := range line {
			go func() {
				leave := s.Enter(string(c))
				began <- string(c)
				<-step
				leave()
			}()
			synctest.Wait() // it is in the line, or waits to say that it began
		}
		for range hold {
			leaves[0]()
			leaves = leaves[1:]
		}
		var got strings.Builder
		for range line {
			got.WriteString(<-began)
			step <- struct{}{}
			synctest.Wait()
		}
		if s.busy != 0 || len(s.of)+len(s.served)+len(s.line) != 0 {
			t.Errorf("left over: %d busy, %v, %v", s.busy, s.of, s.served)
		}
		order = got.String()
	})
	return order
}

// TestTurnsRotate: the order of service is by principal, not by arrival: a principal that asks ten times before another
// asks once is not served ten times before it.
func TestTurnsRotate(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"aaaa", "aaaa"}, // control: alone, a principal is served whenever a turn is free
		{"aaaab", "baaaa"},
		{"aaaabbc", "bcabaaa"},
	} {
		if got := service(t, 1, 1, c.line); got != c.want {
			t.Errorf("%s is served as %s, not %s", c.line, got, c.want)
		}
	}
}

// TestOneTurnIsForOthers: a principal has all turns but one, so that another's begins at once.
func TestOneTurnIsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewTurns(3)
		began := make(chan string, 9)
		enter := func(who string) (leave func()) {
			left := make(chan struct{})
			go func() { leave := s.Enter(who); began <- who; <-left; leave() }()
			synctest.Wait()
			return func() { close(left); synctest.Wait() }
		}
		leaves := []func(){enter("hog"), enter("hog"), enter("hog"), enter("hog")}
		if len(began) != 2 {
			t.Fatalf("control: %d turns of one principal are under way, not 2 of 3", len(began))
		}
		<-began
		<-began
		leave := enter("other")
		if len(began) != 1 || <-began != "other" {
			t.Fatal("the other principal waits behind the first")
		}
		leaves[0]() // the other still works, so this turn is the first's third again
		if len(began) != 1 || <-began != "hog" {
			t.Fatal("a free turn is not taken")
		}
		leave()
		for _, leave := range leaves[1:] {
			leave()
		}
	})
}

// TestLittleTakesNoTurn: small work and waldo's own begin while all turns are taken; large work does not.
func TestLittleTakesNoTurn(t *testing.T) {
	was := processors
	defer func() { processors = was }()
	synctest.Test(t, func(t *testing.T) {
		processors = NewTurns(1)
		leave := processors.Enter("hog")
		Turn("hog", Heavy-1)()
		Turn("", Heavy)()
		(*Lease)(nil).Turn(Heavy)()
		began := false
		go func() { defer New(Limits{}).Lease("hog").Turn(Heavy)(); began = true }()
		if synctest.Wait(); began {
			t.Error("control: large work takes no turn")
		}
		leave()
		if synctest.Wait(); !began {
			t.Error("large work does not begin when the turn is free")
		}
	})
}
