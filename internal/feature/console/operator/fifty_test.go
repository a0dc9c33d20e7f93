package operator

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/app"
	"waldo/internal/app/configfile"
	"waldo/internal/core/session"
	"waldo/internal/feature/console/site"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
)

func TestMain(m *testing.M) {
	app.Child()
	if len(os.Args) == 3 && os.Args[1] == "notes" {
		notes(os.Args[2])
		return
	}
	os.Exit(m.Run())
}

// notes is an MCP server that appends each note to a file. It ends without an answer after it has written c17.
func notes(file string) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Arguments struct{ Text string } }
		}
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		result := `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"notes","version":"1"}}`
		switch m.Method {
		case "tools/list":
			schema := `"inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}`
			result = fmt.Sprintf(`{"tools":[{"name":"create",%s},{"name":"drop",%s}]}`, schema, schema)
		case "tools/call":
			text := m.Params.Arguments.Text
			f, _ := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			_, _ = fmt.Fprintln(f, text)
			_ = f.Close()
			if text == "c17" {
				os.Exit(1)
			}
			result = fmt.Sprintf(`{"content":[{"type":"text","text":"created %s"}]}`, text)
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
	}
}

const fiftyContracts = `version: 1
servers:
  notes: {command: [%q, notes, %q], placement: outside}
capabilities:
  notes.drop: {mode: write, approval: none}
  notes.create: {mode: write, approval: always, rollback: {by: notes.drop, args: {text: args.text}}}
  run_javascript: {mode: high_risk, approval: none, writes: hold, isolation: engine}
`

// fifty is a waldo with its console, whose programs' writes are held.
type fifty struct {
	*desk
	h    *app.App
	n    session.Info
	file string // of the notes
}

func openFifty(t *testing.T) fifty {
	t.Helper()
	dir := t.TempDir()
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := fifty{file: filepath.Join(dir, "notes")}
	config, state := filepath.Join(dir, "waldo.yaml"), filepath.Join(dir, "state")
	if err := os.WriteFile(config, fmt.Appendf(nil, fiftyContracts, me, f.file), 0o600); err != nil {
		t.Fatal(err)
	}
	f.h, err = app.New(t.Context(), app.Options{State: state, Version: "test",
		Source: configfile.Source{Config: config, State: state, Say: func(string) {}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.h.Close() })
	if f.n, err = f.h.OpenSession(); err != nil {
		t.Fatal(err)
	}
	f.desk = &desk{t: t, ctx: t.Context(), dir: state, store: f.h.Store, log: f.h.Log, k: f.h.Approvals,
		cfg: f.h.InForce().Config, policy: f.h.InForce().Policy}
	f.op = f.operator()
	f.web = site.New(site.Options{Backend: f.op, Hosts: []string{"localhost", "127.0.0.1"}})
	t.Cleanup(func() { _ = f.op.Close() })
	return f
}

// run runs a program that makes fifty notes; changed is the number of one with another text; 0: none.
func (f fifty) run(changed int, approvalID string) call.Result {
	f.t.Helper()
	code := fmt.Sprintf("for (let i = 1; i <= 50; i++) await servers.notes.create({text: `c${i}` + (i === %d ? 'x' : '')});", changed)
	args, err := call.ArgsOf(map[string]any{"code": code})
	if err != nil {
		f.t.Fatal(err)
	}
	c := call.Call{ID: id.New(id.Call), Capability: "run_javascript", Args: args, Session: f.n.ID, Principal: f.n.Principal,
		Channel: "cli", ApprovalID: approvalID}
	if why := f.h.Prepare(f.ctx, &c); why != nil {
		f.t.Fatal(why)
	}
	r, err := f.h.Call(f.ctx, c)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// TestChromiumFifty: a person strikes one of fifty creates of a program out and signs the rest with a passkey. A program
// of which one call is another then makes none. The server dies at call 17: the page of the question says of each call
// whether it is done, and what would undo it.
func TestChromiumFifty(t *testing.T) {
	b := startChromium(t)
	f := openFifty(t)
	_, at := f.listen()
	b.authenticator()
	b.approver(f.desk, at)
	b.enter(f.desk, at, site.RoleApprover)
	waits := f.run(0, "")
	if waits.Status != facts.Waiting || waits.ApprovalID == "" {
		t.Fatalf("%s %v %v", waits.Status, waits.Why, waits.Content)
	}
	page := at + "/approvals/" + waits.ApprovalID
	b.visit(page)
	b.until("document.querySelectorAll('input[name=struck]').length === 50")
	b.eval("document.querySelector('input[name=struck][value=\"5\"]').click()")
	b.press("a")
	b.until("document.querySelector('#status').textContent.startsWith('Taken')")

	other := f.run(9, waits.ApprovalID)
	if _, err := os.Stat(f.file); err == nil || len(other.Why) == 0 || other.Why[0].Code != "approval.mismatch" {
		t.Fatalf("a changed call: %s %v %v", other.Status, other.Why, err)
	}

	done := f.run(0, waits.ApprovalID)
	text := fmt.Sprint(done.Content)
	for _, want := range []string{"4. notes.create done", "5. notes.create struck out by approver:ann", "16. notes.create done",
		"17. notes.create unknown", "18 to 50. not done"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not say %q: %s", want, text)
		}
	}
	made, err := os.ReadFile(f.file)
	if n := strings.Count(string(made), "\n"); err != nil || n != 16 || strings.Contains(string(made), "c5\n") {
		t.Errorf("%d notes: %v\n%s", n, err, made)
	}
	b.visit(page)
	b.until("document.querySelectorAll('.held li').length === 50")
	for n, want := range map[int]string{4: "done", 5: "struck out", 16: "done", 17: "unknown", 18: "not done", 50: "not done"} {
		row := fmt.Sprintf("document.querySelectorAll('.held li')[%d]", n-1)
		if got := b.eval(row + ".querySelector('.pill').textContent.trim()"); got != want {
			t.Errorf("row %d is %q, want %q", n, got, want)
		}
		undo := b.eval(row + ".innerText.includes('waldo undo c_')")
		if undo != fmt.Sprint(want == "done") {
			t.Errorf("row %d names an undo: %s", n, undo)
		}
	}
	b.inspect("fifty")
	b.eval("document.querySelectorAll('.held li')[16].querySelector('a').click()")
	b.until("location.pathname.startsWith('/calls/c_') && document.body.innerText.includes('call 17 of 50 of the statement')")
	b.quiet()
}
