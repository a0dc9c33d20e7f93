package operator

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"waldo/internal/testing/terminaltest"
)

// remote is a waldo with a state directory: its commands, and a process that serves A2A at an address that stays.
type remote struct {
	t                    *testing.T
	program, dir, listen string
	serves               *exec.Cmd
}

func (w *remote) command(args ...string) *exec.Cmd {
	c := exec.CommandContext(w.t.Context(), w.program, args...)
	c.Dir = filepath.Join(w.dir, "work")
	c.Env = append(os.Environ(), "WALDO_STATE="+filepath.Join(w.dir, "state"), "HOME="+w.dir, "TERM=vt100")
	return c
}

// run runs a command without a terminal.
func (w *remote) run(args ...string) string {
	w.t.Helper()
	out, err := w.command(args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("waldo %s: %v\n%s", args, err, out)
	}
	return string(out)
}

// terminal starts a command at a terminal.
func (w *remote) terminal(args ...string) (person *os.File, seen *terminaltest.Seen, c *exec.Cmd) {
	w.t.Helper()
	person, program := terminaltest.Pair(w.t)
	c = w.command(args...)
	c.Stdin, c.Stdout, c.Stderr = program, program, program
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		w.t.Fatal(err)
	}
	seen = &terminaltest.Seen{}
	go seen.Read(person)
	return person, seen, c
}

// types runs a command at a terminal, and types each answer once its prompt is there.
func (w *remote) types(args []string, typed ...[2]string) {
	w.t.Helper()
	person, seen, c := w.terminal(args...)
	for _, one := range typed {
		terminaltest.Until(w.t, one[0], seen, func() bool { return seen.Has(one[0]) })
		_, _ = person.WriteString(one[1] + "\r")
	}
	if err := c.Wait(); err != nil {
		w.t.Fatalf("waldo %s: %v\n%s", args, err, seen.Text())
	}
}

// line starts a command, and returns the first of its lines with a text.
func (w *remote) line(c *exec.Cmd, with string) string {
	w.t.Helper()
	out, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	var said strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), with) {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return strings.TrimSpace(lines.Text())
		}
	}
	w.t.Fatalf("no line with %q:\n%s", with, said.String())
	return ""
}

func (w *remote) serve() {
	w.t.Helper()
	w.serves = w.command("serve", "--listen", w.listen)
	w.line(w.serves, w.listen)
}

func (w *remote) kill() {
	_ = w.serves.Process.Kill()
	_ = w.serves.Wait()
}

// post sends a message, or asks for a task, and returns the task.
func (w *remote) task(method, path, body string) (t struct {
	ID     string
	Status struct {
		State   string
		Message struct{ Parts []struct{ Text string } }
	}
}) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.listen+"/a2a"+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("A2A-Version", "1.0")
	r.Header.Set("Content-Type", "application/json")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer a.Body.Close()
	b, _ := io.ReadAll(a.Body)
	var sent struct{ Task json.RawMessage }
	if json.Unmarshal(b, &sent) == nil && sent.Task != nil {
		b = sent.Task
	}
	if err := json.Unmarshal(b, &t); err != nil || t.ID == "" {
		w.t.Fatalf("%s: %v: %s", path, err, b)
	}
	return t
}

// until waits for a task to have a state, and returns the text of its status.
func (w *remote) until(id, state string) string {
	w.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		t := w.task("GET", "/tasks/"+id, "")
		if t.Status.State == "TASK_STATE_"+state {
			return fmt.Sprint(t.Status.Message.Parts)
		}
		if time.Now().After(end) {
			w.t.Fatalf("the task is %s: %s\n%s", t.Status.State, t.Status.Message.Parts, w.run("log", "-n", "0"))
		}
	}
}

// TestChromiumThreeDeep: three waldos call each other, and the bottom one asks. A person at the top answers in a real
// browser with her passkey, which the bottom has enrolled. Each of the three is killed in turn while the question
// waits. A call waits for the bottom to come back. The task of a killed caller fails, and nothing is written without an
// answer.
func TestChromiumThreeDeep(t *testing.T) {
	b := startChromium(t)
	program := filepath.Join(t.TempDir(), "waldo")
	if out, err := exec.Command("go", "build", "-o", program, "waldo/cmd/waldo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var all [3]*remote // the bottom first
	for i, text := range []string{
		"  files.*: {transport: direct, root: ., mode: write, approval: always, a2a: {expose: true}}\n",
		"  b.*: {transport: a2a, mode: write, approval: none, timeout_seconds: 120, a2a: {expose: true}}\n" +
			"peers: {b: {url: %q}}\n",
		"  m.*: {transport: a2a, mode: write, approval: none, timeout_seconds: 120, a2a: {expose: true}}\n" +
			"peers: {m: {url: %q}}\n",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		w := &remote{t: t, program: program, dir: t.TempDir(), listen: l.Addr().String()}
		_ = l.Close()
		if all[i] = w; i > 0 {
			text = fmt.Sprintf(text, "http://"+all[i-1].listen)
		}
		text = "version: 1\napproval: {carriers: [a2a]}\ncapabilities:\n" + text
		err = os.Mkdir(filepath.Join(w.dir, "work"), 0o700)
		file := filepath.Join(w.dir, "work", "waldo.yaml")
		if err := errors.Join(err, os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		w.run("trust")
		if i > 0 {
			w.run("lock", "--accept", string("bm"[i-1]))
			w.run("trust")
		}
		w.serve()
	}
	bottom, top := all[0], all[2]

	// carol enrols at the top, and the first approver of the bottom enrols her passkey there.
	link := top.line(top.command("console", "--listen", "127.0.0.1:0"), "/login#")
	at, _, _ := strings.Cut(link, "/login#")
	b.authenticator()
	person, seen, enrols := top.terminal("approve", "--enroll", "carol", "--passkey")
	terminaltest.Until(t, "the secret", seen, func() bool { return seen.Has("waiting for the browser") })
	secret := regexp.MustCompile(`\b[a-z2-7]{26}\b`).FindString(seen.Text())
	b.visit(at + "/enrol")
	b.eval("document.querySelector('#secret').value = '" + secret + "'; document.querySelector('#enrol').requestSubmit()")
	b.until("document.querySelector('#status').textContent.startsWith('Done here')")
	terminaltest.Until(t, "the question", seen, func() bool { return seen.Has("Enrol it?") })
	_, _ = person.WriteString("yes\r")
	if err := enrols.Wait(); err != nil {
		t.Fatal(err, seen.Text())
	}
	var known []struct{ Key string }
	if err := json.Unmarshal([]byte(top.run("approve", "--list", "--json")), &known); err != nil || len(known) != 1 {
		t.Fatal(err, known)
	}
	const pass = "four words of nothing"
	bottom.types([]string{"approve", "--enroll", "root"}, [2]string{"or more): ", pass}, [2]string{"same again: ", pass})
	bottom.types([]string{"approve", "--enroll", "carol", "--public-key", known[0].Key},
		[2]string{"passphrase of root: ", pass})
	b.visit(link)
	b.until("location.pathname === '/' && document.querySelector('#live')")

	asks := func(message, file string) (task string) {
		task = top.task("POST", "/message:send", `{"message":{"messageId":"`+message+`","role":"ROLE_USER",`+
			`"metadata":{"skill":"m.b.files.write"},"parts":[{"data":{"arguments":{"arguments":{"path":"`+file+
			`","content":"x"}}}}]}}`).ID
		if said := top.until(task, "INPUT_REQUIRED"); !strings.Contains(said, "may files.write be called") {
			t.Fatalf("the question does not travel: %s", said)
		}
		return task
	}
	const first = `document.querySelector('main a[href^="/approvals/a_"]')`
	answers := func(file, task string) {
		b.visit(at + "/approvals")
		b.until(first)
		b.eval(first + ".click()")
		b.until("document.querySelector('#answer') && document.querySelector('main').innerText.includes('" + file + "')")
		b.press("a")
		b.until("document.querySelector('#status').textContent.startsWith('Taken')")
		top.until(task, "COMPLETED")
		if text, err := os.ReadFile(filepath.Join(bottom.dir, "work", file)); err != nil || string(text) != "x" {
			t.Errorf("%s: %q, %v", file, text, err)
		}
	}
	for i, name := range []string{"none", "bottom", "middle", "top"} {
		file := name + ".txt"
		task := asks(name, file)
		if name != "none" {
			all[i-1].kill()
			time.Sleep(2 * time.Second) // the one above it finds it gone
			all[i-1].serve()
		}
		if name == "bottom" || name == "none" {
			answers(file, task)
			continue
		}
		if said := top.until(task, "FAILED"); !strings.Contains(said, "known") {
			t.Errorf("%s: it does not say that the outcome is unknown: %s", name, said)
		}
		if _, err := os.Stat(filepath.Join(bottom.dir, "work", file)); err == nil {
			t.Errorf("%s: written without an answer", name)
		}
	}
	if n := strings.Count(bottom.run("log", "-n", "0", "--json"), `"capability":"files.write","status":"ok"`); n != 2 {
		t.Errorf("%d writes", n)
	}
	bottom.run("log", "verify")
	b.quietBut("404") // an answered question is gone from the page
}
