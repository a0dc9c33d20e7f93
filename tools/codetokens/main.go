// Command codetokens counts the tokens that ten fixed tasks put into a model's context: with tools called directly, and
// with one program in lean mode. Each task is really done twice through `waldo serve`, against the helpdesk server that
// waldo brings along, and both ways must find the same answer.
//
// The program's way begins with a search for the tool, schemas included. Counted once each, by the vocabulary
// o200k_base: the list of tools and the instructions, the arguments that the model writes, and the texts that it gets.
// A host that sends the whole conversation at each turn pays the direct way more.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tiktoken-go/tokenizer"
)

func main() {
	waldo := flag.String("waldo", "bin/waldo", "the `PROGRAM` to measure")
	write := flag.String("write", "", "put the table between the markers of `FILE`")
	flag.Parse()
	if err := measure(*waldo, *write); err != nil {
		fmt.Fprintln(os.Stderr, "codetokens:", err)
		os.Exit(1)
	}
}

// call is one call of a tool that the model makes directly.
type call struct {
	tool string
	args map[string]any
}

// task is one thing to do. direct returns the calls in turn: it sees the structured results so far, and its answer is
// final when it returns no call. program prints the same answer.
type task struct {
	name    string
	heavy   bool // its data are large
	direct  func(results []map[string]any) (next []call, answer string)
	program string
}

const config = `version: 1
servers:
  desk: {command: [WALDO, helpdesk], placement: outside}
capabilities:
  desk.*:     {mode: read, approval: none, response_budget_bytes: 1048576, redact: [secrets]}
  desk.create_ticket: {mode: write, approval: none}
  desk.close_ticket:  {mode: write, approval: none}
  run_python: {mode: write, approval: none, isolation: namespace, timeout_seconds: 120}
`

const (
	mostRatio = 3.0
	heavySave = 0.98
)

func measure(waldo, write string) error {
	waldo, err := filepath.Abs(waldo)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "waldo-tokens-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "waldo.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(config, "WALDO", waldo)), 0o600); err != nil {
		return err
	}
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		return err
	}
	count := func(text string) int {
		n, cerr := codec.Count(text)
		err = errors.Join(err, cerr)
		return n
	}
	var b strings.Builder
	b.WriteString("| task | calls | tokens, direct | tokens, program | saved |\n|---|--:|--:|--:|--:|\n")
	var direct, code int
	var faults []error
	for _, t := range tasks {
		d, dcalls, danswer, derr := alone(waldo, dir, file, false, count, t)
		c, _, canswer, cerr := alone(waldo, dir, file, true, count, t)
		if err := errors.Join(derr, cerr, err); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if strings.TrimSpace(canswer) != strings.TrimSpace(danswer) {
			return fmt.Errorf("%s: %q directly, %q by a program", t.name, danswer, canswer)
		}
		saved := 1 - float64(c)/float64(d)
		if t.heavy && saved < heavySave {
			faults = append(faults, fmt.Errorf("%s saves %.1f %%, goal %.0f %%", t.name, saved*100, heavySave*100))
		}
		direct, code = direct+d, code+c
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %.1f %% |\n", t.name, dcalls, d, c, saved*100)
	}
	ratio := float64(direct) / float64(code)
	fmt.Fprintf(&b, "| all ten | | %d | %d | %.1f %%, %.0f times fewer |\n", direct, code, (1-1/ratio)*100, ratio)
	if ratio < mostRatio {
		faults = append(faults, fmt.Errorf("all tasks: %.1f times fewer, goal %.0f", ratio, mostRatio))
	}
	fmt.Print(b.String())
	if write != "" {
		faults = append(faults, between(write, b.String()))
	}
	return errors.Join(faults...)
}

// between replaces the text between the markers of a file.
func between(file, table string) error {
	const begin, end = "<!-- tokens: begin -->\n", "<!-- tokens: end -->"
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, also := strings.Cut(rest, end)
	if !ok || !also {
		return fmt.Errorf("%s has no markers %q", file, begin)
	}
	return os.WriteFile(file, []byte(head+begin+table+end+tail), 0o644)
}

// alone does a task in a gateway and a state directory of its own.
func alone(
	waldo, dir, file string, lean bool, count func(string) int, t task,
) (tokens, calls int, answer string, err error) {
	state, err := os.MkdirTemp(dir, "state-")
	if err != nil {
		return 0, 0, "", err
	}
	args := []string{"--state", state, "--config", file, "serve", "--stdio"}
	if lean {
		args = append(args, "--lean")
	}
	g, err := open(exec.Command(waldo, args...))
	if err != nil {
		return 0, 0, "", err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	tokens = count(g.instructions)
	tools, err := g.ask("tools/list", map[string]any{})
	if err != nil {
		return 0, 0, "", err
	}
	tokens += count(string(tools["tools"]))
	do := func(name string, args any) (structured map[string]any, text string, err error) {
		said, err := json.Marshal(args)
		if err != nil {
			return nil, "", err
		}
		r, err := g.ask("tools/call", map[string]any{"name": name, "arguments": args})
		if err != nil {
			return nil, "", err
		}
		text, failed := textOf(r)
		if failed {
			return nil, "", fmt.Errorf("%s: %s", name, text)
		}
		calls++
		tokens += count(name) + count(string(said))
		if raw := r["structuredContent"]; len(raw) > 0 { // hosts show it in place of the text
			tokens += count(string(raw))
			return structured, text, json.Unmarshal(raw, &structured)
		}
		tokens += count(text)
		return nil, text, nil
	}
	if lean {
		first, _ := t.direct(nil) // the model looks for the tool that its program calls
		query := "desk " + strings.ReplaceAll(first[0].tool, "_", " ")
		if _, _, err := do("search_tools", map[string]any{"query": query, "detail": "full", "limit": 1}); err != nil {
			return 0, 0, "", err
		}
		_, answer, err = do("run_code", map[string]any{"code": t.program})
		return tokens, calls, answer, err
	}
	var results []map[string]any
	for {
		next, final := t.direct(results)
		if len(next) == 0 {
			return tokens, calls, final, nil
		}
		for _, c := range next {
			r, _, err := do("desk__"+c.tool, c.args)
			if err != nil {
				return 0, 0, "", err
			}
			results = append(results, r)
		}
	}
}

func textOf(r map[string]json.RawMessage) (text string, failed bool) {
	var content []struct{ Text string }
	_ = json.Unmarshal(r["content"], &content) // an answer of another form has no text
	for _, c := range content {
		text += c.Text
	}
	return text, string(r["isError"]) == "true"
}

// gateway is a running waldo serve.
type gateway struct {
	cmd          *exec.Cmd
	in           io.WriteCloser
	out          *bufio.Reader
	last         int
	instructions string
}

func open(c *exec.Cmd) (*gateway, error) {
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	g := &gateway{cmd: c, in: in, out: bufio.NewReaderSize(out, 1<<20)}
	r, err := g.ask("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "codetokens", "version": "1"}})
	if err != nil {
		return nil, err
	}
	_ = json.Unmarshal(r["instructions"], &g.instructions) // none: nothing is counted
	_, err = fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return g, err
}

func (g *gateway) ask(method string, params any) (map[string]json.RawMessage, error) {
	g.last++
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": g.last, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	if _, err := g.in.Write(append(b, '\n')); err != nil {
		return nil, err
	}
	for {
		line, err := g.out.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		var m struct {
			ID     int
			Result map[string]json.RawMessage
			Error  json.RawMessage
		}
		if json.Unmarshal(line, &m) != nil || m.ID != g.last {
			continue
		}
		if m.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, m.Error)
		}
		return m.Result, nil
	}
}

func (g *gateway) close() error {
	_ = g.in.Close() // the process ends with its input
	return g.cmd.Wait()
}
