package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"waldo/internal/storage/database"
	"waldo/internal/testing/passkeytest"
	"waldo/internal/testing/terminaltest"
)

// consoleClient is a browser's login at a running waldo console.
type consoleClient struct {
	t            *testing.T
	at           string
	cookie, csrf string
}

func (c *consoleClient) do(method, path string, body, into any) (status int, code string) {
	c.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.at+"/api/v1"+path, bytes.NewReader(text))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", c.at)
	r.Header.Set("Cookie", c.cookie)
	r.Header.Set("X-CSRF-Token", c.csrf)
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer a.Body.Close()
	b, _ := io.ReadAll(a.Body)
	var p struct{ Code string }
	if a.StatusCode >= 400 {
		_ = json.Unmarshal(b, &p)
	} else if into != nil {
		if err := json.Unmarshal(b, into); err != nil {
			c.t.Fatalf("%s: %v: %s", path, err, b)
		}
	}
	return a.StatusCode, p.Code
}

// enter logs in with the link that a terminal printed.
func enter(t *testing.T, link string) *consoleClient {
	t.Helper()
	at, token, ok := strings.Cut(strings.TrimSpace(link), "/login#")
	if !ok {
		t.Fatalf("no link: %q", link)
	}
	c := &consoleClient{t: t, at: at}
	once := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	a, err := once.Post(at+"/login", "application/x-www-form-urlencoded", strings.NewReader("token="+token))
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close()
	c.cookie, _, _ = strings.Cut(a.Header.Get("Set-Cookie"), ";")
	var me struct{ CSRF string }
	if status, code := c.do("GET", "/me", nil, &me); status != 200 {
		t.Fatalf("login: %d %s", status, code)
	}
	c.csrf = me.CSRF
	return c
}

type asked struct {
	Draft, Digest, State string
	Options              struct{ Challenge string }
}

// answer answers a question with a passkey.
func (c *consoleClient) answer(
	approvalID, as, verdict string, key *passkeytest.Authenticator,
) (status int, code string) {
	c.t.Helper()
	var q, d asked
	if status, code = c.do("GET", "/approvals/"+approvalID, nil, &q); status != 200 {
		return status, code
	}
	draft := map[string]string{"verdict": verdict, "as": as, "digest": q.Digest, "reason": ""}
	if status, code = c.do("POST", "/approvals/"+approvalID+"/draft", draft, &d); status != 200 {
		return status, code
	}
	signed := map[string]any{"draft": d.Draft, "assertion": json.RawMessage(key.Get(d.Options.Challenge))}
	return c.do("POST", "/approvals/"+approvalID+"/"+verdict, signed, nil)
}

func (c *consoleClient) enrol(secret string, key *passkeytest.Authenticator) (status int, code string) {
	var d asked
	if status, code = c.do("POST", "/enrolment", map[string]string{"secret": secret}, &d); status != 200 {
		return status, code
	}
	made := map[string]any{"credential": json.RawMessage(key.Create(d.Options.Challenge))}
	if status, code = c.do("POST", "/enrolment/"+d.Draft+"/register", made, &d); status != 200 {
		return status, code
	}
	return c.do("POST", "/enrolment/"+d.Draft+"/finish",
		map[string]any{"assertion": json.RawMessage(key.Get(d.Options.Challenge))}, nil)
}

// TestConsoleAgainstAgent: a person enrols a passkey with a terminal and a browser and approves a call. An agent of the
// same user tries the command line, the database, the console and an authenticator of its own, and approves nothing.
func TestConsoleAgainstAgent(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "waldo.yaml")
	text := "version: 1\ncapabilities:\n  run_shell: {transport: sandboxed_exec, mode: write, isolation: namespace, " +
		"timeout_seconds: 20, approval: always}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "state")
	base := []string{"--state", state, "--config", config}
	waldo := func(args ...string) (string, int) { // without a terminal, as an agent runs it
		c := exec.Command("waldo", append(append([]string{}, base...), args...)...) // testscript puts it on PATH
		b, _ := c.CombinedOutput()
		return string(b), c.ProcessState.ExitCode()
	}

	console := exec.Command("waldo", append(append([]string{}, base...), "console", "--listen", "127.0.0.1:0")...)
	out, err := console.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := console.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = console.Process.Kill(); _ = console.Wait() })
	lines, link := bufio.NewScanner(out), ""
	for link == "" && lines.Scan() {
		if strings.Contains(lines.Text(), "/login#") {
			link = lines.Text()
		}
	}
	person := enter(t, link)
	key := passkeytest.New(person.at, "localhost")

	terminal, _, seen, _ := onTTY(t, append(append([]string{}, base...), "approve", "--enroll", "ann", "--passkey")...)
	terminaltest.Until(t, "the secret", seen, func() bool { return seen.Has("waiting for the browser") })
	secret := regexp.MustCompile(`\b[a-z2-7]{26}\b`).FindString(seen.Text())
	if status, code := person.enrol(secret, key); status != 200 {
		t.Fatalf("enrolling: %d %s", status, code)
	}
	terminaltest.Until(t, "the question", seen, func() bool { return seen.Has("Enrol it?") })
	_, _ = terminal.WriteString("yes\r")
	terminaltest.Until(t, "the enrolment", seen, func() bool { return seen.Has("enrolled ann, passkey sha256:") })

	// The first approver's passkey signs the enrolment of a second one.
	terminal, _, seen, _ = onTTY(t, append(append([]string{}, base...), "approve", "--enrol", "bob")...)
	terminaltest.Until(t, "the secret", seen, func() bool { return seen.Has("waiting for the browser") })
	secret = regexp.MustCompile(`\b[a-z2-7]{26}\b`).FindString(seen.Text())
	if status, code := person.enrol(secret, passkeytest.New(person.at, "localhost")); status != 200 {
		t.Fatalf("enrolling: %d %s", status, code)
	}
	terminaltest.Until(t, "the question", seen, func() bool { return seen.Has("Enrol it?") })
	_, _ = terminal.WriteString("yes\r")
	terminaltest.Until(t, "the wait", seen, func() bool { return seen.Has("waiting for the first approver") })
	signs := func(secret string) {
		t.Helper()
		var d asked
		if status, code := person.do("POST", "/enrolment-root", map[string]string{"secret": secret}, &d); status != 200 {
			t.Fatalf("the first approver: %d %s", status, code)
		}
		by := map[string]any{"assertion": json.RawMessage(key.Get(d.Options.Challenge))}
		if status, code := person.do("POST", "/enrolment-root/"+d.Draft+"/sign", by, nil); status != 200 {
			t.Fatalf("the first approver: %d %s", status, code)
		}
	}
	signs(secret)
	terminaltest.Until(t, "the enrolment", seen, func() bool { return seen.Has("enrolled bob, passkey sha256:") })

	// So does the configuration load, which no first approver has signed yet.
	if said, code := waldo("tools"); code != 2 || !strings.Contains(said, "trust.unsigned") {
		t.Errorf("a configuration that is not signed: %d %s", code, said)
	}
	if said, code := waldo("trust", config); code != 2 || !strings.Contains(said, "printed only on a terminal") {
		t.Errorf("an agent signs: %d %s", code, said)
	}
	_, _, seen, _ = onTTY(t, append(append([]string{}, base...), "trust", config)...)
	terminaltest.Until(t, "the secret", seen, func() bool { return seen.Has("waiting for the browser") })
	signs(regexp.MustCompile(`\b[a-z2-7]{26}\b`).FindString(seen.Text()))
	terminaltest.Until(t, "the record", seen, func() bool { return seen.Has("trusted " + config) })

	call := func() (string, int) { return waldo("call", "run_shell", "command=echo did-it", "--json") }
	said, code := call()
	waiting := regexp.MustCompile(`a_[a-z2-7]{26}`).FindString(said)
	if code != 4 || waiting == "" {
		t.Fatalf("control: %d %s", code, said)
	}

	// The agent.
	if said, code := waldo("approve", waiting); code == 0 {
		t.Errorf("the command line: %d %s", code, said)
	}
	for _, verb := range []string{"approve", "deny"} { // before any prompt
		said, code := waldo(verb, waiting, "--as", "bob")
		if code != 2 || !strings.Contains(said, person.at+"/approvals/"+waiting) {
			t.Errorf("%s as one with a passkey: %d %s", verb, code, said)
		}
	}
	if said, code := waldo("approve", "--enroll", "eve", "--passkey"); code != 2 ||
		!strings.Contains(said, "printed only on a terminal") {
		t.Errorf("an enrolment without a terminal: %d %s", code, said)
	}
	if said, code := waldo("approve", "--revoke", "bob"); code != 2 || !strings.Contains(said, "printed only on a terminal") {
		t.Errorf("a revocation without a terminal: %d %s", code, said)
	}
	port := person.at[strings.LastIndexByte(person.at, ':')+1:]
	if said, code := waldo("console", "--link", "--listen", "127.0.0.1:1"); code != 2 ||
		!strings.Contains(said, "no console of this state directory listens on port 1") {
		t.Errorf("a link to a port where no console listens: %d %s", code, said)
	}
	if said, code := waldo("console", "--link", "--listen", "127.0.0.1:"+port, "--state", t.TempDir()); code != 2 ||
		!strings.Contains(said, "no console of this state directory listens") {
		t.Errorf("a link to the console of another state directory: %d %s", code, said)
	}
	said, _ = waldo("console", "--link", "--listen", "127.0.0.1:"+port)
	agent, mine := enter(t, said), passkeytest.New(person.at, "localhost")
	mine.ID = key.ID
	if status, code := agent.answer(waiting, "ann", "approve", mine); status != 403 || code != "approval.not_enrolled" {
		t.Errorf("an authenticator of its own: %d %s", status, code)
	}
	if status, code := agent.enrol("aaaaaaaaaaaaaaaaaaaaaaaaaa", mine); status != 403 || code != "enrol.secret" {
		t.Errorf("an enrolment with a guess: %d %s", status, code)
	}
	if said, code := call(); code != 4 {
		t.Errorf("after all that: %d %s", code, said)
	}

	if status, code := person.answer(waiting, "ann", "approve", key); status != 200 {
		t.Fatalf("the person: %d %s", status, code)
	}
	if said, code := call(); code != 0 || !strings.Contains(said, "did-it") {
		t.Fatalf("the approved call: %d %s", code, said)
	}
	said, code = call()
	second := regexp.MustCompile(`a_[a-z2-7]{26}`).FindString(said)
	if code != 4 || second == waiting {
		t.Errorf("a yes is for one call: %d %s", code, said)
	}

	// The agent copies the used answer into the row of the next question.
	s, err := database.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Update(context.Background(), func(tx *sql.Tx) error {
		_, err := tx.Exec(`UPDATE approvals SET state = 'yes', answer = (SELECT answer FROM approvals WHERE id = $1) `+
			`WHERE id = $2`, waiting, second)
		return err
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if said, code := call(); code != 3 && code != 4 || !strings.Contains(said, "approval.forged") {
		t.Errorf("the database: %d %s", code, said)
	}
	if said, code := waldo("log", "verify"); code != 0 {
		t.Errorf("log verify: %d %s", code, said)
	}
	if said, _ := waldo("log", "-n", "0"); !strings.Contains(said, "approve "+waiting+" done by link as operator") {
		t.Errorf("the log:\n%s", said)
	}
	if said, _ := waldo("log", "--json"); !strings.Contains(said, `"action":"approve"`) {
		t.Errorf("the log lacks the action of the console")
	}
}
