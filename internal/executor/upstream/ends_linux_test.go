package upstream

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// A process that waits for a server outside gets the program's own exit: its signal or its status, as without a
// keeper.
func TestHowAServerOutsideEnds(t *testing.T) {
	for script, want := range map[string]string{
		"exit 0":        "<nil>",
		"exit 7":        "exit status 7",
		"exit 139":      "exit status 139", // an exit status above 128 is not a signal
		"kill -SEGV $$": "signal: segmentation fault",
		"kill -ABRT $$": "signal: aborted",
		"kill -KILL $$": "signal: killed",
		"kill -TERM $$": "signal: terminated",
		"kill -PIPE $$": "signal: broken pipe",
	} {
		bare := "<nil>"
		if err := exec.Command("/bin/sh", "-c", script).Run(); err != nil {
			bare = strings.TrimSuffix(err.Error(), " (core dumped)")
		}
		if bare != want {
			t.Errorf("control: %s: %s", script, bare)
		}
		p, err := Exec(context.Background(), []string{"/bin/sh", "-c", script}, nil, "/")
		if err != nil {
			t.Fatal(err)
		}
		got := "<nil>"
		if err = p.Wait(); err != nil {
			got = strings.TrimPrefix(err.Error(), "its program ended: ")
		}
		if got != want {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
		var e *exec.ExitError
		if errors.As(err, &e) && e.Sys().(syscall.WaitStatus).CoreDump() {
			t.Errorf("%s: its keeper has left a core", script)
		}
	}
}

// sh starts shell scripts in place of servers.
type sh string

func (s sh) Launch(ctx context.Context, _ contract.Server, _ call.Session) (Process, error) {
	return Exec(ctx, []string{"/bin/sh", "-c", string(s)}, []string{"PATH=/bin:/usr/bin"}, "/")
}

// The operator sees how a server's program ended and its stderr, at its start and during a call.
func TestHowAServerEndedIsSaid(t *testing.T) {
	if testing.Short() {
		t.Skip("waldo waits a moment for the end of a program, which comes later under the race detector")
	}
	const serves = `read m; echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"?"}}'
read m; echo '{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}'
read m; read m; echo '{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}}'
read m; `
	for _, row := range []struct{ script, want string }{
		{"echo ouch >&2; exit 0", `the connection is closed; its program ended: exit status 0; it wrote \"ouch\"`},
		{"echo ouch >&2; exit 3", `the connection is closed; its program ended: exit status 3; it wrote \"ouch\"`},
		{"echo ouch >&2; kill -SEGV $$",
			`the connection is closed; its program ended: signal: segmentation fault; it wrote \"ouch\"`},
	} {
		for when, script := range map[string]string{
			"server did not start": row.script, "call was not answered": serves + row.script,
		} {
			var log bytes.Buffer
			m := New(map[string]contract.Server{"s": {Placement: "outside"}},
				Options{Launcher: sh(script), Cleaner: asIs{}, Log: slog.New(slog.NewTextHandler(&log, nil))})
			o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{}))
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			if !o.IsError || !strings.Contains(log.String(), when) || !strings.Contains(log.String(), row.want) ||
				strings.Contains(text(o), "ouch") {
				t.Errorf("%s: %s\nlog: %s", row.script, text(o), log.String())
			}
		}
	}
}

// A server that fills its stderr before it ends must not fill the operator's log.
func TestEndingIsShort(t *testing.T) {
	text := strings.Repeat("an error, again and again\n", 400) + "the last word"
	got := ending(text, 600)
	if len(got) > 610 || !strings.HasSuffix(got, "\nthe last word") || !strings.HasPrefix(got, "… an error") {
		t.Fatalf("%d bytes: %q", len(got), got)
	}
	stack := "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'x'\n" +
		strings.Repeat("    at load (file.js:1:2)\n", 100) + "Node.js v20"
	if got := ending(stack, 200); !strings.HasPrefix(got,
		"Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'x' …     at") || !strings.HasSuffix(got, "\nNode.js v20") {
		t.Fatalf("%q", got)
	}
	if got := ending("short", 600); got != "short" {
		t.Fatal(got)
	}
	if got := ending(strings.Repeat("é", 1000), 601); len(got) > 610 {
		t.Fatal(len(got))
	}
}
