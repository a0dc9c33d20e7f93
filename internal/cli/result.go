package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/cli/exitcode"
	"waldo/internal/core/redact"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
)

// shownResult is a result as --json prints it.
type shownResult struct {
	Status     facts.Status  `json:"status"`
	CallID     string        `json:"call_id"`
	DecisionID string        `json:"decision_id"`
	ApprovalID string        `json:"approval_id,omitempty"`
	Why        []call.Reason `json:"reasons"`
	IsError    bool          `json:"is_error"`
	Trust      call.Trust    `json:"trust"`
	Content    []any         `json:"content"`
	Structured any           `json:"structured,omitempty"`
	Replayed   bool          `json:"replayed,omitempty"`
	ReplayOf   string        `json:"replay_of,omitempty"`
	Settled    call.Settled  `json:"settled,omitempty"`
	Undo       *call.Undo    `json:"undo,omitempty"`
	Facts      facts.Facts   `json:"facts"`
}

// ResultJSON returns a result as --json prints it, and as REST answers with it.
func ResultJSON(r call.Result) any {
	s := shownResult{
		Status: r.Status, CallID: r.CallID, DecisionID: r.DecisionID, ApprovalID: r.ApprovalID, Why: r.Why,
		IsError: r.IsError, Trust: r.Trust, Content: blocks(r), Facts: r.Facts,
		Replayed: r.Replayed != "", ReplayOf: r.Replayed, Settled: r.Settled, Undo: r.Undo,
	}
	if !r.Structured.IsZero() {
		s.Structured = r.Structured
	}
	return s
}

// blocks returns the content of a result as --json prints it.
func blocks(r call.Result) []any {
	all := []any{}
	for _, k := range r.Content {
		if k.Type == "text" {
			all = append(all, map[string]string{"type": "text", "text": k.Text})
		} else {
			all = append(all, k.Raw)
		}
	}
	return all
}

// HeldJSON returns the facts of a program whose writes were held as --json prints them, with the report of its calls.
func HeldJSON(r call.Result) any {
	return struct {
		facts.Facts
		ApprovalID string `json:"approval_id,omitempty"`
		Content    []any  `json:"content"`
	}{r.Facts, r.ApprovalID, blocks(r)}
}

// TellResult prints a result, and returns the exit code of its call.
func TellResult(c *cobra.Command, asJSON bool, r call.Result) error {
	if asJSON {
		if err := terminal.JSON(c.OutOrStdout(), ResultJSON(r)); err != nil {
			return err
		}
	} else {
		content, warnings := Once(r)
		for _, k := range content {
			if text, ok := readable(k); ok {
				// Whole lines: all of the text is the tool's.
				display.Fprintf(c.OutOrStdout(), "%s\n", display.Text(lines(redact.Clean(strings.TrimRight(text, "\n")))))
			} else {
				display.Fprintf(c.OutOrStdout(), "[%s, %d bytes: see --json]\n", k.Type, len(k.Raw.Raw()))
			}
		}
		if len(r.Content) == 0 && !r.Structured.IsZero() {
			display.Fprintf(c.OutOrStdout(), "%s\n", display.Text(display.JSON(r.Structured.Raw())))
		}
		if n := r.Facts.Masked; n > 0 {
			display.Fprintf(c.ErrOrStderr(), "waldo: values masked: %d\n", n)
		}
		if r.Replayed != "" && r.Settled == "" { // else its text has it
			display.Fprintf(c.ErrOrStderr(), "waldo: this is the recorded result of %s\n", r.Replayed)
		}
		if text := r.Settled.Text(); text != "" && r.Replayed == "" {
			display.Fprintf(c.ErrOrStderr(), "%s\n", text)
		}
		if r.Undo != nil {
			display.Fprintf(c.ErrOrStderr(), "waldo: waldo undo %s would undo it, with %s\n", r.Acted(), r.Undo.By)
		}
		for _, w := range warnings {
			display.Fprintf(c.ErrOrStderr(), "waldo: warning: %s\n", w)
		}
	}
	if r.Status == facts.Failed && r.Facts.ExitCode == nil && r.Facts.Signal == nil && r.IsError && len(r.Content) > 0 {
		return &exitcode.Exit{Code: exitcode.Problems} // the tool said that it failed, and its words are above
	}
	err := exitcode.OfResult(r)
	ended := r.Status == facts.Timeout || r.Status == facts.OOM
	if e := (*exitcode.Exit)(nil); ended && !asJSON && errors.As(err, &e) && slices.ContainsFunc(r.Content, func(k call.Content) bool {
		return strings.Contains(strings.ToLower(k.Text), strings.ToLower(e.Text))
	}) {
		e.Text = "" // it is among the words above
	}
	return err
}

// warned is the file of the state directory that is as old as the last warning about the machine.
const warned = "warned"

// Daily returns a result as a person reads it, with the warning about the machine once a day. A call that did not
// succeed, the log and --json always have the warning.
func (c *Context) Daily(r call.Result) call.Result {
	if c.JSON || r.Status != facts.OK || !slices.Contains(r.Facts.Warnings, facts.NoMemoryCgroup) {
		return r
	}
	state, err := c.StateDir()
	if err != nil {
		return r
	}
	file := filepath.Join(state, warned)
	if info, err := os.Lstat(file); err == nil && time.Since(info.ModTime()).Abs() < 24*time.Hour {
		r.Facts.Warnings = slices.DeleteFunc(slices.Clone(r.Facts.Warnings),
			func(w string) bool { return w == facts.NoMemoryCgroup })
		return r
	}
	_ = os.Remove(file)
	if f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
		_ = f.Close()
	}
	return r
}

// Once returns the content and the warnings of a result without those that repeat its cause. An error line prints the
// cause of a denial.
func Once(r call.Result) (content []call.Content, warnings []string) {
	content, warnings = slices.Clone(r.Content), slices.Clone(r.Facts.Warnings)
	for _, why := range r.Cause() {
		repeats := func(text string) bool { return text == why.Text || text == why.Code+": "+why.Text }
		warnings = slices.DeleteFunc(warnings, repeats)
		if r.Status == facts.Denied {
			content = slices.DeleteFunc(content, func(k call.Content) bool { return k.Type == "text" && repeats(k.Text) })
		}
	}
	return content, warnings
}

// readable returns the text of a piece of content, or of a text resource.
func readable(k call.Content) (string, bool) {
	if k.Type == "text" {
		return k.Text, true
	}
	m, _ := k.Raw.Members()
	inside, _ := m["resource"].Members()
	return inside["text"].Text()
}

// lines ends every line of a text with a newline alone: a carriage return takes a terminal back to the line's beginning.
func lines(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
}
