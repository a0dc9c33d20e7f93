package a2a

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/testing/repo"
)

// script starts a program of testdata beside the SDK; the test skips where that is not installed.
func script(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	node, modules := repo.Packages(t, "npm-a2a", "@a2a-js/sdk")
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(modules), "test-") // where node finds the SDK
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), node, append([]string{file}, args...)...)
	c.Stderr = os.Stderr
	return c
}

// TestSDKClient: @a2a-js/sdk, which shares no code with waldo, uses it as an agent, by both bindings.
func TestSDKClient(t *testing.T) {
	for _, binding := range []string{"JSONRPC", "REST"} {
		t.Run(binding, func(t *testing.T) {
			b := newBench(t, "")
			out, err := script(t, "client.mjs", b.url, b.token, binding).Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got := map[string]any{}
			for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
				var s struct {
					Step  string
					Value any
				}
				if err := json.Unmarshal([]byte(line), &s); err != nil {
					t.Fatalf("%v in %s", err, line)
				}
				got[s.Step] = s.Value
			}
			// A fast task can have ended when its stream begins.
			events, _ := got["stream"].([]any)
			if n := len(events); n == 0 || events[0] != "task" || n > 1 && events[n-1] != "statusUpdate" {
				t.Errorf("stream: %v", got["stream"])
			}
			for step, want := range map[string]any{
				"send": map[string]any{"state": 3.0, "text": "echo sdk"},
				"get":  true, "asked": 6.0, "cancel": 5.0, "absent": "TaskNotFoundError", "canceled": "TaskNotCancelableError",
			} {
				if !reflect.DeepEqual(got[step], want) {
					t.Errorf("%s: %v, want %v", step, got[step], want)
				}
			}
		})
	}
}

// agentOf starts an agent of testdata, and returns its address.
func agentOf(t *testing.T, name string) string {
	t.Helper()
	c := script(t, name)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("it does not listen")
	}
	return "http://127.0.0.1:" + lines.Text()
}

// human is the person at an agent host, who answers each question of a server.
type human struct {
	answer string
	asked  []string
}

func (h *human) Abilities() call.Abilities {
	can, _ := strictjson.Parse([]byte(`{"form":{}}`))
	return call.Abilities{Elicitation: can}
}

func (h *human) Ask(
	_ context.Context, _ string, asked map[string]call.Question,
) (map[string]strictjson.Value, error) {
	out := map[string]strictjson.Value{}
	for key, q := range asked {
		say, _ := q.Params.Member("message").Text()
		h.asked = append(h.asked, say)
		out[key], _ = strictjson.Parse([]byte(h.answer))
	}
	return out, nil
}

func (h *human) Log(string, string, strictjson.Value) {}

// TestSDKAgent: an agent of @a2a-js/sdk is a peer, of A2A 1.0 and of 0.3. A task that asks its caller comes back, and goes
// on by its id; or a person answers it. Its stream is progress, and its file is one of the workspace.
func TestSDKAgent(t *testing.T) {
	for _, name := range []string{"agent.mjs", "agent03.mjs"} {
		t.Run(name, func(t *testing.T) {
			a := callerOf(t, agentOf(t, name), "", "a-token-of-the-test", "b.say")
			if r := a.call("say", map[string]any{"message": "hello"}); r.Status != facts.OK || text(r) != "you said hello" {
				t.Errorf("%+v", r)
			}
			asked := a.call("say", map[string]any{"message": "paint"})
			task, _ := asked.Structured.Member("task_id").Text()
			if asked.Status != facts.OK || task == "" || !strings.Contains(text(asked), "which colour?") {
				t.Fatalf("%+v", asked)
			}
			if r := a.call("say", map[string]any{"task_id": task, "message": "red"}); r.Status != facts.OK ||
				text(r) != "you said red" {
				t.Errorf("%+v", r)
			}
			ada := &human{answer: `{"action":"accept","content":{"answer":"blue"}}`}
			a.ctx = call.WithHost(t.Context(), ada)
			r := a.call("say", map[string]any{"message": "paint"})
			if r.Status != facts.OK || text(r) != "you said blue" || len(ada.asked) != 1 ||
				ada.asked[0] != `The server "b" asks, not waldo: which colour?` {
				t.Errorf("%v %+v", ada.asked, r)
			}
			ada.answer = `{"action":"decline"}`
			if r = a.call("say", map[string]any{"message": "paint"}); !r.IsError || !strings.Contains(text(r), "declined") {
				t.Errorf("%+v", r)
			}
			var steps int
			a.ctx = call.WithProgress(t.Context(), func(float64, float64, string) { steps++ })
			if r = a.call("say", map[string]any{"message": "slow"}); r.Status != facts.OK ||
				text(r) != "you said slow" || steps < 4 {
				t.Errorf("%d steps, %+v", steps, r)
			}
			a.ctx = nil
			r = a.call("say", map[string]any{"message": "file"})
			at := regexp.MustCompile(`^\[the file "../no te.csv", text/csv, \d+ bytes. All of it is in spill/([a-z0-9_]+-[a-z0-9]+\.csv)\.`).
				FindStringSubmatch(text(r))
			if r.Status != facts.OK || at == nil {
				t.Fatalf("%+v", r)
			}
			stored, err := filepath.Glob(filepath.Join(a.State, "workspaces", "*", "spill", at[1]))
			if err != nil || len(stored) != 1 {
				t.Fatalf("%v %v", stored, err)
			}
			if b, err := os.ReadFile(stored[0]); err != nil || !strings.HasPrefix(string(b), "a file for [EMAIL]") {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
}
