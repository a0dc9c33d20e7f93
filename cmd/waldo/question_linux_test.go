package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"waldo/internal/cli"
	"waldo/internal/core/approval"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/testing/terminaltest"
)

// fakeRows are rows of a harmless question, each as wide as a terminal that breaks the line above them.
func fakeRows(width int) string {
	var b strings.Builder
	for _, row := range []string{"rm -rf . #", "End of the arguments. This call was withdrawn.", "",
		"waldo asks whether this call may run.", "  capability  run_shell", "  class       read, danger 1 of 3",
		"The agent wrote these arguments (16 bytes); their content is its claim:", "  | command = 'ls"} {
		b.WriteString(row)
		if end := (len(`  | command = "`) + b.Len()) % width; end > 0 {
			b.WriteString(strings.Repeat(" ", width-end))
		}
	}
	return b.String()
}

// brokenByTerminal returns the rows on a terminal that breaks lines itself. Each character of the test is one cell.
func brokenByTerminal(text string, width int) []string {
	var rows []string
	for _, line := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		for ; len([]rune(line)) > width; line = string([]rune(line)[width:]) {
			rows = append(rows, string([]rune(line)[:width]))
		}
		rows = append(rows, line)
	}
	return rows
}

// passesForWaldo counts the rows that a person takes for waldo's first line.
func passesForWaldo(rows []string) (n int) {
	for _, row := range rows {
		if strings.HasPrefix(row, "waldo asks whether") || strings.HasPrefix(row, "  class       read, danger 1") ||
			strings.HasPrefix(row, "End of the arguments. This") {
			n++
		}
	}
	return n
}

// TestQuestionOnNarrowTerminal prints a question whose arguments paint another one, if the terminal breaks the line. On
// a real terminal no row of the arguments begins without a bar, and the last row repeats what the call is.
func TestQuestionOnNarrowTerminal(t *testing.T) {
	for _, row := range []struct{ said, width int }{{40, 40}, {80, 80}, {200, 200}, {4000, 80}} { // the last one is a lie
		width := row.width
		a, err := call.ParseArgs(fmt.Appendf(nil, `{"command":%q}`, fakeRows(width)))
		if err != nil {
			t.Fatal(err)
		}
		q := approval.Question{ID: "a_x", Capability: "run_shell", Args: a.Value().Canonical(), ArgsDigest: a.Digest(),
			Preview: []string{"it has 1 line:", "   1  " + strings.Repeat("p ", 250)},
			Mode:    "high_risk", Danger: 3, Expires: time.Now(), Principal: call.Principal(strings.Repeat("u", 250))}
		for name, print := range map[string]func(io.Writer){
			"approve":   func(w io.Writer) { cli.Teller{W: w}.Notify(context.Background(), q) },
			"approvals": func(w io.Writer) { tellApprovals(w, []approval.Question{q}) },
			"watch": func(w io.Writer) {
				c := &cobra.Command{}
				c.SetOut(w)
				tellWatched(c, approvalEvent{"asked", q.ID, approval.Pending, &q}, false, false)
				tellWatched(c, approvalEvent{"asked", q.ID, approval.Pending, &q}, true, false)
			},
			"control: unbroken": func(w io.Writer) { display.Fprintf(w, "%s\n", display.Text(q.Show())) },
		} {
			person, program := terminaltest.Pair(t)
			if row.said != width && (name == "approvals" || name == "watch") {
				continue // a list takes the window's word
			}
			size := &unix.Winsize{Row: 24, Col: uint16(row.said)}
			if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, size); err != nil {
				t.Fatal(err)
			}
			seen := &terminaltest.Seen{}
			go seen.Read(person)
			print(program)
			display.Fprintf(program, "the prompt")
			terminaltest.Until(t, name, seen, func() bool { return seen.Has("the prompt") })
			rows := brokenByTerminal(seen.Text(), width)
			want, n := map[string]int{"approve": 1, "watch": 1}[name], passesForWaldo(rows)
			if control := strings.HasPrefix(name, "control"); control != (n >= 4) || !control && n != want {
				t.Errorf("%s at %d columns: %d rows pass for waldo's, wanted %d:\n%s", name, width, n, want, strings.Join(rows, "\n"))
			}
			for _, row := range rows {
				if strings.HasPrefix(name, "control") {
					break
				}
				bare := strings.HasPrefix(row, "ppp") || strings.HasPrefix(row, "uuu") || strings.HasPrefix(row, " p") ||
					strings.HasPrefix(row, "p ")
				if bare || len([]rune(row)) >= width {
					t.Errorf("%s at %d columns: %q", name, width, row)
				}
			}
			last := strings.NewReplacer("\r\n  |… ", "").Replace(seen.Text())
			if name == "approve" && (!strings.Contains(last, "In short: danger 3 of 3, high_risk, 1 value, "+
				"capability \"run_shell\"") || !strings.Contains(last, "than this screen")) {
				t.Errorf("at %d columns it ends with %.400q", width, last[max(0, len(last)-400):])
			}
		}
	}
}

// TestApproveOnNarrowTerminal has the command itself print a question that paints another one.
func TestApproveOnNarrowTerminal(t *testing.T) {
	state, config := t.TempDir(), filepath.Join(t.TempDir(), "waldo.yaml")
	if err := os.WriteFile(config, []byte("version: 1\ncapabilities:\n"+
		"  run_shell: {transport: sandboxed_exec, mode: high_risk, approval: always}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := []string{"--state", state, "--config", config}
	var said bytes.Buffer
	run(append(base, "call", "run_shell", "command="+fakeRows(80)), strings.NewReader(""), &said, &said)
	id := regexp.MustCompile("a_[a-z2-7]+").FindString(said.String())
	if id == "" {
		t.Fatal(said.String())
	}
	for _, command := range [][]string{{"approve", id}, {"deny", id}, {"approvals", id}, {"approvals", "-v"}} {
		person, program := terminaltest.Pair(t)
		if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
			t.Fatal(err)
		}
		waldo := exec.Command("waldo", append(base, command...)...) // testscript puts it on PATH
		waldo.Stdin, waldo.Stderr, waldo.Stdout = program, program, program
		seen := &terminaltest.Seen{}
		go seen.Read(person)
		_ = waldo.Run() // an answer ends with an error: no approver is enrolled
		terminaltest.Until(t, "the end", seen, func() bool { return seen.Has(`, capability "run_shell"`) })
		if rows := brokenByTerminal(seen.Text(), 80); passesForWaldo(rows) != 1 {
			t.Errorf("%v: %s", command, strings.Join(rows, "\n"))
		}
	}
}

// TestApproveTyped: a yes to danger 3 needs the last word of the capability besides the passphrase, and an answer does
// not count in a window that got another size.
func TestApproveTyped(t *testing.T) {
	state, config := t.TempDir(), filepath.Join(t.TempDir(), "waldo.yaml")
	if err := os.WriteFile(config, []byte("version: 1\ncapabilities:\n"+
		"  files.*: {transport: direct, root: ., mode: high_risk, approval: always}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := []string{"--state", state, "--config", config}
	const pass = "correct horse battery"
	type answered struct {
		code int
		text string
	}
	// at runs a command at a terminal: what is typed once each prompt is there. A line "size" changes the window instead.
	at := func(args []string, typed ...[2]string) answered {
		t.Helper()
		person, program, seen, cmd := onTTY(t, append(append([]string{}, base...), args...)...)
		from := 0
		for _, one := range typed {
			terminaltest.Until(t, one[0], seen, func() bool { return strings.Contains(seen.Text()[from:], one[0]) })
			from = len(seen.Text())
			if one[1] == "size" {
				if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 4000}); err != nil {
					t.Fatal(err)
				}
				continue
			}
			time.Sleep(50 * time.Millisecond)
			_, _ = person.WriteString(one[1] + "\r")
		}
		_ = cmd.Wait()
		time.Sleep(100 * time.Millisecond)
		return answered{cmd.ProcessState.ExitCode(), seen.Text()}
	}
	var trusted bytes.Buffer // the first enrolment signs what is trusted then
	if code := run(append(base, "trust", config), strings.NewReader(""), &trusted, &trusted); code != 0 {
		t.Fatal(trusted.String())
	}
	if got := at([]string{"approve", "--enroll", "alice"}, [2]string{"or more): ", pass}, [2]string{"same again: ", pass}); got.code != 0 {
		t.Fatal(got)
	}
	call := func() (string, int) {
		var said bytes.Buffer
		code := run(append(base, "call", "files.delete", "path=waldo.yaml"), strings.NewReader(""), &said, &said)
		return said.String(), code
	}
	said, _ := call()
	id := regexp.MustCompile("a_[a-z2-7]+").FindString(said)
	if id == "" {
		t.Fatal(said)
	}
	word, phrase := "of the capability: ", "passphrase of alice: "
	if got := at([]string{"approve", id}, [2]string{word, "read"}); got.code != 3 || !strings.Contains(got.text, "approval.word") ||
		strings.Contains(got.text, phrase) {
		t.Errorf("the word of another call: %+v", got)
	}
	if said, code := call(); code != 4 {
		t.Fatalf("after a wrong word: %d %s", code, said)
	}
	got := at([]string{"approve", id}, [2]string{word, "size"}, [2]string{"", "delete"}, [2]string{phrase, pass},
		[2]string{"does not count", ""})
	if n := strings.Count(got.text, "waldo asks whether"); n != 2 || got.code != 3 {
		t.Errorf("a window that got another size: the question %d times: %+v", n, got)
	}
	if said, code := call(); code != 4 {
		t.Fatalf("after an answer in another window: %d %s", code, said)
	}
	if got := at([]string{"approve", id}, [2]string{word, "delete"}, [2]string{phrase, pass}); got.code != 0 ||
		os.Getuid() == 0 != strings.Contains(got.text, "can write to this terminal") {
		t.Errorf("control: %+v", got)
	}
	_, _ = call() // it uses the yes
	said, _ = call()
	if id = regexp.MustCompile("a_[a-z2-7]+").FindString(said); id == "" {
		t.Fatal(said)
	}
	if got := at([]string{"deny", id}, [2]string{phrase, pass}); got.code != 0 || strings.Contains(got.text, word) {
		t.Errorf("a no needs no word: %+v", got)
	}
}
