package agent

import (
	"bytes"
	"encoding/json"
	"testing"

	"waldo/internal/core/redact"
	"waldo/internal/feature/agent/loop"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/model/secret"
)

// The words of a step are out before its call, also where a secret is known, which is hidden across their parts.
func TestWordsAreOutBeforeTheCall(t *testing.T) {
	known := &redact.Registry{}
	if err := known.Add("anthropic", secret.NewValue("sk-ant-hunter2-hunter2")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	v := &view{out: &b, err: &b, danger: func(string, json.RawMessage) int { return 2 }}
	v.escaped = display.Writer(v.out)
	v.words = (&redact.Redactor{Known: known}).TerminalStream(v.escaped)
	step := func(words ...string) {
		for _, w := range words {
			v.event(loop.Event{Event: "text", Text: w})
		}
		v.event(loop.Event{Event: "reply"})
	}
	step("Let me ", "compute with sk-ant-hun", "ter2-hunter2.")
	v.event(loop.Event{Event: "call", Tool: "run_python", Input: json.RawMessage(`{}`)})
	v.event(loop.Event{Event: "result", Status: facts.OK})
	step("It is 42.\n")
	const want = "Let me compute with [SECRET].\nwaldo: run_python (danger 2) {}\nwaldo:   ok\nIt is 42.\n"
	if b.String() != want {
		t.Errorf("got %q\nwant %q", b.String(), want)
	}
}
