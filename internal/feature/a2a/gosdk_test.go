package a2a

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/testing/repo"
)

// goSDK is the program of a2a-go v2.4.0, which shares no code with waldo: a client and a server.
func goSDK(t *testing.T) string {
	t.Helper()
	program, found := repo.Cache(t, "judges", "a2a")
	if !found {
		t.Skip("the program of a2a-go is not built: run scripts/setup-judges.sh")
	}
	return program
}

// TestGoClient: a2a-go uses waldo as an agent, by both bindings, streamed and not.
func TestGoClient(t *testing.T) {
	program := goSDK(t)
	b := newBench(t, "")
	for _, binding := range []string{"jsonrpc", "rest"} {
		for _, form := range [][]string{nil, {"--stream"}} {
			m := fmt.Sprintf(`{"messageId":"go%d","role":"ROLE_USER","metadata":{"skill":"t.echo"},"parts":[{"text":"hi"}]}`, messages.Add(1))
			args := append([]string{"send", b.url + "/a2a", "--transport", binding, "--auth", "Bearer " + b.token, "-o",
				"json", "--json", m}, form...)
			out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "echo hi") || !strings.Contains(string(out), "COMPLETED") {
				t.Errorf("%s %v: %v\n%s", binding, form, err, out)
			}
		}
		out, err := exec.CommandContext(t.Context(), program, "get", "task", b.url+"/a2a", "t_x", "--transport",
			binding, "--auth", "Bearer "+b.token).
			CombinedOutput()
		if err == nil || !strings.Contains(string(out), "there is no such task of yours") {
			t.Errorf("%s: an unknown task: %v\n%s", binding, err, out)
		}
	}
}

// TestGoServer: an agent of a2a-go is a peer, by both bindings, streamed and not.
func TestGoServer(t *testing.T) {
	program := goSDK(t)
	for transport, binding := range map[string]string{"jsonrpc": "JSONRPC", "rest": "HTTP+JSON"} {
		t.Run(transport, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			at := l.Addr().String()
			_ = l.Close()
			card := filepath.Join(t.TempDir(), "card.json")
			say := fmt.Sprintf(`{"name":"go","description":"an agent of a2a-go","version":"1","capabilities":{"streaming":true},`+
				`"defaultInputModes":["text"],"defaultOutputModes":["text"],"supportedInterfaces":[{"url":"http://%s",`+
				`"protocolBinding":%q,"protocolVersion":"1.0"}],"skills":[{"id":"say","name":"Say","description":"Says it.","tags":["x"]}]}`,
				at, binding)
			if err := os.WriteFile(card, []byte(say), 0o600); err != nil {
				t.Fatal(err)
			}
			_, port, _ := net.SplitHostPort(at)
			ctx, cancel := context.WithCancel(t.Context())
			c := exec.CommandContext(ctx, program, "serve", "--echo", "--quiet", "--card", card, "--port", port,
				"--transport", transport)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { cancel(); _ = c.Wait() }()
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				if conn, err := net.Dial("tcp", at); err == nil {
					_ = conn.Close()
					break
				}
				if time.Now().After(end) {
					t.Fatal("it does not listen")
				}
			}
			a := callerOf(t, "http://"+at, "", "a-token-of-the-test", "b.say")
			if r := a.call("say", map[string]any{"message": "hello"}); r.Status != facts.OK || !strings.Contains(text(r),
				"hello") {
				t.Errorf("%s %+v", text(r), r)
			}
			steps := 0
			a.ctx = call.WithProgress(t.Context(), func(float64, float64, string) { steps++ })
			if r := a.call("say", map[string]any{"message": "again"}); r.Status != facts.OK || !strings.Contains(text(r),
				"again") || steps == 0 {
				t.Errorf("streamed, %d steps: %s %+v", steps, text(r), r)
			}
		})
	}
}
