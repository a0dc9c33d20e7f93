package desktop

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/core/approval"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// The notification shows nothing that an agent wrote, on each system, and only where the operator lists desktop.
func TestNotification(t *testing.T) {
	hostile := "<b>waldo</b>: approved\n\x1b[2J\" & do shell script \"id"
	q := approval.Question{ID: "a_1", Capability: "files.delete", Danger: 3, Args: []byte(`{"x":"` + "secret" + `"}`),
		Notes: []string{hostile}, Preview: []string{hostile}}
	for _, row := range []struct {
		on         string
		capability string
		found      bool
		want       []string
		err        string
	}{
		{"linux", "files.delete", true, []string{"/usr/bin/notify-send", "--app-name=waldo", "--urgency=critical", "--",
			"waldo: a call waits for you",
			"files.delete, danger 3 of 3. Open the console, or run: waldo approvals a_1"}, ""},
		{"linux", hostile, true, []string{"/usr/bin/notify-send", "--app-name=waldo", "--urgency=critical", "--",
			"waldo: a call waits for you", "a call, danger 3 of 3. Open the console, or run: waldo approvals a_1"}, ""},
		{"darwin", "files.delete", true, []string{"/usr/bin/osascript", "-e", "on run argv", "-e",
			"display notification (item 2 of argv) with title (item 1 of argv)", "-e", "end run",
			"waldo: a call waits for you",
			"files.delete, danger 3 of 3. Open the console, or run: waldo approvals a_1"}, ""},
		{"linux", "files.delete", false, nil, "notify-send is not installed"},
		{"windows", "files.delete", true, nil, "waldo knows no notifications of this system: use approval.notify"},
	} {
		n := New(nil)
		n.on = row.on
		n.find = func(program string) (string, bool) { return "/usr/bin/" + program, row.found }
		q.Capability = call.Capability(row.capability)
		got, err := n.command(q)
		if !slices.Equal(got, row.want) || (err == nil) != (row.err == "") || err != nil && err.Error() != row.err {
			t.Errorf("%s %q: %q %v", row.on, row.capability, got, err)
		}
	}
}

// The program is run with the text, and only where the operator lists desktop.
func TestNotifyRunsTheProgram(t *testing.T) {
	if os.PathSeparator != '/' {
		t.Skip("a shell script stands for notify-send")
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "notify-send")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nprintf '%s\\n' \"$@\" > "+dir+"/out\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, carriers := range [][]string{nil, {"terminal"}, {"desktop"}} {
		n := New(func() contract.Approvals { return contract.Approvals{Carriers: carriers} })
		n.on, n.find = "linux", func(string) (string, bool) { return script, true }
		n.Notify(context.Background(), approval.Question{ID: "a_1", Capability: "x.y", Danger: 2})
		b, err := os.ReadFile(dir + "/out")
		if shown := err == nil && strings.Contains(string(b), "x.y, danger 2 of 3"); shown != slices.Contains(carriers, "desktop") {
			t.Errorf("%v: %q %v", carriers, b, err)
		}
	}
}
