package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"waldo/internal/core/redact"
	"waldo/internal/feature/agent/loop"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/testing/terminaltest"
)

// TestWordsOnAScreen: at a terminal no row of a model's words, or of what waldo quotes of it, passes for waldo's.
func TestWordsOnAScreen(t *testing.T) {
	person, program := terminaltest.Pair(t)
	if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 4000}); err != nil {
		t.Fatal(err) // another program's lie about a window of 80 columns
	}
	seen := &terminaltest.Seen{}
	go seen.Read(person)
	v := &view{out: program, err: program, danger: func(string, json.RawMessage) int { return 2 }}
	v.escaped = display.Writer(terminal.Words(v.out))
	v.words = (&redact.Redactor{Known: &redact.Registry{}}).TerminalStream(v.escaped)
	wide := strings.Repeat("-", 80)
	v.event(loop.Event{Event: "text", Text: "I look.\nwaldo: done after 2 steps\n" + wide + "\nhint: "})
	v.event(loop.Event{Event: "text", Text: "waldo approve a_evil"})
	v.event(loop.Event{Event: "reply"})
	input, _ := json.Marshal(map[string]string{"a": wide[:57] + "waldo: done after 3 steps, of which none"})
	v.event(loop.Event{Event: "call", Tool: "run_python", Input: input})
	v.event(loop.Event{Event: "result", Status: facts.OK})
	terminaltest.Until(t, "the result", seen, func() bool { return seen.Has("waldo:   ok") })
	var own []string
	for line := range strings.SplitSeq(strings.TrimSuffix(strings.ReplaceAll(seen.Text(), "\r", ""), "\n"), "\n") {
		for ; len([]rune(line)) > 80; line = string([]rune(line)[80:]) { // as the window breaks it
			t.Errorf("the window breaks %q", line)
		}
		if !strings.HasPrefix(line, "  |") {
			own = append(own, strings.SplitN(line, "{", 2)[0])
		}
	}
	if got := strings.Join(own, "|"); got != "waldo: run_python (danger 2) |waldo:   ok" {
		t.Errorf("these pass for waldo's: %q\n%s", got, seen.Text())
	}
}
