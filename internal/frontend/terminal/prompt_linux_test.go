package terminal

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"waldo/internal/testing/terminaltest"
)

// The prompt appears once echo is off; the terminal is as it was when the line, Ctrl-C or a signal has
// ended it.
func TestReadPassword(t *testing.T) {
	for _, row := range []struct{ why, typed, line string }{
		{"a line", "correct horse\n", "correct horse"},
		{"a line of a terminal that sends returns", "correct horse\r", "correct horse"},
		{"erased letters", "correctt\x7f hörr\x7fse\n", "correct hörse"},
		{"an erased letter of two bytes", "hö\x7forse\n", "horse"},
		{"an erased line", "wrong\x15right\n", "right"},
		{"more erased than was typed", "\x7f\x7fright\n", "right"},
		{"keys that are none", "ri\x1aght\n", "right"},
	} {
		person, program := terminaltest.Pair(t)
		if !terminaltest.Echoes(t, program) {
			t.Fatal("control: a new terminal echoes")
		}
		if _, err := person.WriteString("typed\nbefore\npart"); err != nil {
			t.Fatal(err)
		}
		prompted := false
		line, err := ReadPassword(t.Context(), program, func() {
			prompted = true
			if terminaltest.Echoes(t, program) {
				t.Errorf("%s: the terminal echoes while it is prompted", row.why)
			}
			if _, err := person.WriteString(row.typed + "next\n"); err != nil {
				t.Error(err)
			}
		})
		if string(line) != row.line || err != nil || !prompted || !terminaltest.Echoes(t, program) {
			t.Errorf("%s: %q %v, prompted %v, echo after it %v", row.why, line, err, prompted, terminaltest.Echoes(t, program))
		}
	}
	for why, end := range map[string]func(person *os.File, cancel func()){
		"Ctrl-C":   func(person *os.File, _ func()) { _, _ = person.WriteString("corr\x03") },
		"Ctrl-\\":  func(person *os.File, _ func()) { _, _ = person.WriteString("\x1c") },
		"a signal": func(_ *os.File, cancel func()) { cancel() },
	} {
		person, program := terminaltest.Pair(t)
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		_, err := ReadPassword(ctx, program, func() { end(person, cancel) })
		if took := time.Since(start); !errors.Is(err, ErrInterrupted) || took > 200*time.Millisecond ||
			!terminaltest.Echoes(t, program) {
			t.Errorf("%s: %v after %v, echo after it %v", why, err, took, terminaltest.Echoes(t, program))
		}
		cancel()
	}
}
