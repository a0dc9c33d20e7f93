package a2a

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"waldo/internal/model/facts"
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

// TestSDKAgent: an agent of @a2a-js/sdk is a peer. A task that asks its caller comes back, and goes on by its id.
func TestSDKAgent(t *testing.T) {
	c := script(t, "agent.mjs")
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
	a := callerOf(t, "http://127.0.0.1:"+lines.Text(), "", "a-token-of-the-test", "b.say")
	if r := a.call("say", map[string]any{"message": "hello"}); r.Status != facts.OK || text(r) != "you said hello" {
		t.Errorf("%+v", r)
	}
	asked := a.call("say", map[string]any{"message": "paint"})
	task, _ := asked.Structured.Member("task_id").Text()
	if asked.Status != facts.OK || task == "" || !strings.Contains(text(asked), "which colour?") {
		t.Fatalf("%+v", asked)
	}
	if r := a.call("say", map[string]any{"task_id": task, "message": "red"}); r.Status != facts.OK || text(r) != "you said red" {
		t.Errorf("%+v", r)
	}
}
