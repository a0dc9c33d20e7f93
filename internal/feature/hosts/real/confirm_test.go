//go:build hosts

package real

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A contract that reads does not switch off what a host asks its person: a tool that its server calls destructive is
// confirmed through waldo where it is confirmed without. waldo install allows nothing in the host.
func TestConfirmation(t *testing.T) {
	for _, way := range []string{"direct", "stdio"} {
		t.Run("codex "+way, func(t *testing.T) {
			m := &model{said: said, steps: []step{{"probe_look", map[string]any{}}, {"probe_erase", map[string]any{}}}}
			_, work, env := ready(t, hosts[1], way, m)
			asked := appServer(t, work, env)
			m.mu.Lock()
			defer m.mu.Unlock()
			if len(m.got) != 2 || !strings.Contains(m.got[0], looked) {
				t.Fatalf("control: the tool that reads: %.3000s", m.got)
			}
			if !strings.Contains(asked, "probe_erase") || strings.Contains(asked, "waldo asks you") ||
				strings.Contains(m.got[1], erased) {
				t.Errorf("the person was asked: %.3000s\nthe tool answered: %.1000s", asked, m.got[1])
			}
			if strings.Contains(asked, "probe_look") {
				t.Logf("the person was asked about the tool that reads, too")
			}
		})
		t.Run("claude "+way, func(t *testing.T) {
			for _, allowed := range []bool{false, true} { // true: the control
				m := &model{said: said, steps: []step{{"probe_erase", map[string]any{}}}}
				h := hosts[0]
				argv := located(h.argv)[:3]
				if allowed {
					argv = located(h.argv)
				}
				_, work, env := ready(t, h, way, m)
				out, err := run(t, work, env, argv...)
				m.mu.Lock()
				// waldo asks for an answer of its own, since the server says that the tool destroys.
				if err != nil || len(m.got) != 1 ||
					(strings.Contains(m.got[0], erased) || strings.Contains(m.got[0], "a human has to agree first")) != allowed {
					t.Errorf("allowed %v: %v %.3000s\n%.2000s", allowed, err, m.got, out)
				}
				m.mu.Unlock()
			}
		})
	}
}

// appServer has Codex run one turn as a program that shows its questions to a person does, who declines all of them,
// and returns the questions.
func appServer(t *testing.T, work string, env []string) (asked string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	argv := append(located(hosts[1].argv)[:2], "app-server")
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = work, env, 5*time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); cancel(); _ = cmd.Wait() }()
	say := func(v map[string]any) {
		b, _ := json.Marshal(v)
		fmt.Fprintf(in, "%s\n", b)
	}
	say(map[string]any{
		"id": 1, "method": "initialize",
		"params": map[string]any{"clientInfo": map[string]any{"name": "test", "title": "test", "version": "1"}},
	})
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	var all strings.Builder
	for lines.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
			Result struct{ Thread struct{ ID string } }
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			continue
		}
		fmt.Fprintf(&all, "%.1500s\n", lines.Text())
		switch {
		case m.Method == "" && string(m.ID) == "1":
			say(map[string]any{"method": "initialized"})
			say(map[string]any{
				"id": 2, "method": "thread/start", "params": map[string]any{
					"cwd": work, "approvalPolicy": "on-request", "sandbox": "read-only",
				},
			})
		case m.Method == "" && string(m.ID) == "2":
			say(map[string]any{
				"id": 3, "method": "turn/start", "params": map[string]any{
					"threadId": m.Result.Thread.ID, "input": []any{map[string]any{"type": "text", "text": "Run the tools."}},
				},
			})
		case m.Method != "" && m.ID != nil:
			asked += string(m.Params) + "\n"
			say(map[string]any{"id": m.ID, "result": map[string]any{"action": "decline", "decision": "decline"}})
		case m.Method == "turn/completed":
			return asked
		}
	}
	t.Fatalf("the turn did not end:\n%.8000s", all.String())
	return ""
}
