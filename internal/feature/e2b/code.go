package e2b

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"waldo/internal/detect/pattern"
	"waldo/internal/executor/runner"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/model/secret"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/sandboxes"
)

// maxContexts bounds the contexts of one sandbox.
const maxContexts = 16

// codeContext is a context of the code interpreter. Python's has an interpreter that stays.
type codeContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	CWD      string `json:"cwd"`
	ran      int    // pieces of code
	moved    bool   // its interpreter is in its folder
}

// spoken are E2B's names of the languages, with the capabilities that run them.
var spoken = map[string]call.Capability{"python": "run_python", "javascript": "run_javascript", "js": "run_javascript",
	"typescript": "run_typescript", "ts": "run_typescript", "bash": "run_shell"}

// usual is the name of the context that code without one runs in.
const usual = "default"

// routeCode adds the routes of the code interpreter.
func (s *server) routeCode() {
	for pattern, f := range map[string]func(box, sandboxes.Sandbox, http.ResponseWriter, *http.Request) error{
		"POST /execute": s.execute, "GET /contexts": s.listContexts, "POST /contexts": s.newContext,
		"POST /contexts/{id}/restart": s.restartContext, "DELETE /contexts/{id}": s.removeContext,
	} {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			b, is, err := s.coded(r)
			if err == nil {
				err = f(b, is, w, r)
			}
			if err != nil {
				tell(w, failed(err))
			}
		})
	}
}

// coded returns the sandbox of a request to the interpreter, which the SDK sends with either token.
func (s *server) coded(r *http.Request) (box, sandboxes.Sandbox, error) {
	ident, err := asked(r)
	if err != nil {
		return box{}, sandboxes.Sandbox{}, err
	}
	if !s.holds(r.Header.Get("E2B-Traffic-Access-Token"), ident, forTraffic) &&
		!s.holds(r.Header.Get("X-Access-Token"), ident, forFiles) {
		return box{}, sandboxes.Sandbox{}, fail(401, "the access token is not that of the sandbox")
	}
	return s.running(r, ident)
}

// context returns a context of a sandbox, and makes the usual one of a language.
func (b *live) context(ident, language string) (*codeContext, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ident == "" {
		if ident = usual; language != "" && language != "python" {
			ident += "-" + language
		}
	} else if b.contexts[ident] == nil {
		return nil, fail(404, "no such context")
	}
	if c := b.contexts[ident]; c != nil {
		return c, nil
	}
	return b.add(ident, language, home)
}

// add makes a context. b.mu is held.
func (b *live) add(ident, language, cwd string) (*codeContext, error) {
	if language == "" {
		language = "python"
	}
	if spoken[language] == "" {
		return nil, fail(400, "language %.50q: waldo runs python, javascript, typescript and bash", language)
	}
	if len(b.contexts) >= maxContexts {
		return nil, fail(429, "%d contexts are open, which is the most", maxContexts)
	}
	c := &codeContext{ID: ident, Language: language, CWD: cwd}
	b.contexts[ident] = c
	return c, nil
}

func (s *server) newContext(b box, _ sandboxes.Sandbox, w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Language string `json:"language"`
		CWD      string `json:"cwd"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	cwd := home
	if in.CWD != "" {
		cwd = place(in.CWD)
	}
	var tail [12]byte
	_, _ = rand.Read(tail[:]) // never fails: crypto/rand ends the process instead
	l := s.of(b.ID)
	l.mu.Lock()
	c, err := l.add(hex.EncodeToString(tail[:]), in.Language, cwd)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, c)
}

func (s *server) listContexts(b box, _ sandboxes.Sandbox, w http.ResponseWriter, _ *http.Request) error {
	l := s.of(b.ID)
	l.mu.Lock()
	out := []codeContext{}
	for _, c := range l.contexts {
		out = append(out, *c)
	}
	l.mu.Unlock()
	return answer(w, http.StatusOK, out)
}

// restartContext ends the interpreter of a context. The next piece of code has a new one.
func (s *server) restartContext(b box, is sandboxes.Sandbox, w http.ResponseWriter, r *http.Request) error {
	l := s.of(b.ID)
	l.mu.Lock()
	c := l.contexts[r.PathValue("id")]
	if c != nil {
		c.ran, c.moved = 0, false
	}
	l.mu.Unlock()
	if c == nil {
		return fail(404, "no such context")
	}
	return s.endContext(w, is, c)
}

func (s *server) endContext(w http.ResponseWriter, is sandboxes.Sandbox, c *codeContext) error {
	if err := s.h.InForce().Runner.EndNamed(call.Session(is.Session), c.ID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

func (s *server) removeContext(b box, is sandboxes.Sandbox, w http.ResponseWriter, r *http.Request) error {
	l := s.of(b.ID)
	l.mu.Lock()
	c := l.contexts[r.PathValue("id")]
	delete(l.contexts, r.PathValue("id"))
	l.mu.Unlock()
	if c == nil {
		return fail(404, "no such context")
	}
	return s.endContext(w, is, c)
}

// execution is the body of one piece of code.
type execution struct {
	Code     string            `json:"code"`
	Context  string            `json:"context_id"`
	Language string            `json:"language"`
	Env      map[string]string `json:"env_vars"`
}

func (s *server) execute(b box, is sandboxes.Sandbox, w http.ResponseWriter, r *http.Request) error {
	var in execution
	if err := read(w, r, &in); err != nil {
		return err
	}
	if in.Context != "" && in.Language != "" {
		return fail(400, "context_id and language exclude each other")
	}
	b, err := s.whole(r.Context(), b)
	if err != nil {
		return err
	}
	l := s.of(b.ID)
	c, err := l.context(in.Context, in.Language)
	if err != nil {
		return err
	}
	l.cells.Add(1)
	defer l.cells.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(l.life, cancel)() // with its sandbox
	l.share()                                 // so that it finds what commands wrote
	run, err := s.m.Begin(ctx, b.Owner, is.Name, id.New(id.Call), false)
	if err != nil {
		return err
	}
	defer func() { _ = run.End(context.WithoutCancel(ctx)) }()
	run.Tell(c.Language + " code")
	got, err := s.evaluate(ctx, b, run.Sandbox, c, in)
	if err != nil {
		return err
	}
	l.share()
	l.mu.Lock()
	c.ran++
	n := c.ran
	l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(patient{w, http.NewResponseController(w)})
	for _, line := range lines(got, n, time.Now()) {
		if err := out.Encode(line); err != nil {
			return nil // the client is gone
		}
	}
	return nil
}

// evaluate runs a piece of code, in a context of Python after what it asks of its surroundings.
func (s *server) evaluate(
	ctx context.Context, b box, is sandboxes.Sandbox, c *codeContext, in execution,
) (call.Result, error) {
	if c.Language != "python" {
		field := "code"
		if c.Language == "bash" {
			field = "command"
		}
		set, err := b.setting(c.Language, in.Env)
		if err != nil {
			return call.Result{}, err
		}
		return s.evaluateIn(ctx, b, is, spoken[c.Language], map[string]any{field: set + in.Code})
	}
	before := ""
	if !c.moved && c.CWD != home {
		before += fmt.Sprintf("os.makedirs(%[1]q, exist_ok=True); os.chdir(%[1]q)\n", c.CWD)
	}
	if len(in.Env) > 0 || !c.moved {
		all := b
		if c.moved {
			all.Env = nil // they are set, and the program may have changed them
		}
		set, err := all.setting("python", in.Env)
		if err != nil {
			return call.Result{}, err
		}
		before += set
	}
	if before != "" {
		args := map[string]any{"code": "import json, os\n" + before, "session": c.ID}
		r, err := s.evaluateIn(ctx, b, is, "run_python", args)
		if err != nil || r.Status != facts.OK {
			return r, err
		}
	}
	c.moved = true
	return s.evaluateIn(ctx, b, is, "run_python", map[string]any{"code": in.Code, "session": c.ID})
}

// setting is the code that sets the variables of a piece of code. It ends no line of JavaScript or bash.
func (b box) setting(language string, own map[string]string) (string, error) {
	all, names := b.variables(own)
	if len(names) == 0 {
		return "", nil
	}
	env, err := json.Marshal(all)
	if err != nil {
		return "", err
	}
	switch language {
	case "bash":
		var export strings.Builder
		for _, k := range names {
			if !secret.Variable(k) {
				return "", fail(400, "env_vars: %.50q is not the name of a variable of bash", k)
			}
			export.WriteString("export " + k + "='" + strings.ReplaceAll(all[k], "'", `'\''`) + "'; ")
		}
		return export.String(), nil
	case "python":
		text, err := json.Marshal(string(env))
		return "os.environ.update(json.loads(" + string(text) + "))\n", err
	}
	return "Object.assign(process.env, " + string(env) + "); ", nil
}

// evaluateIn passes one piece of code through the pipeline.
func (s *server) evaluateIn(
	ctx context.Context, b box, is sandboxes.Sandbox, capability call.Capability, args map[string]any,
) (r call.Result, err error) {
	now := s.h.InForce()
	o, err := s.options(now, b, is, capability)
	if err != nil {
		return r, err
	}
	session, err := s.session(is)
	if err != nil {
		return r, err
	}
	a, err := call.ArgsOf(args)
	if err != nil {
		return r, fail(400, "%v", err)
	}
	k := call.Call{ID: id.New(id.Call), Capability: capability, Args: a, Session: session,
		Principal: call.Principal(b.Owner), Channel: channel, Run: o.Request()}
	defer now.Runner.Attach(k.ID, runner.Streams{Root: o.Root, Image: o.Image})()
	if r, err = now.Broker.Call(ctx, k); err != nil {
		return r, err
	}
	if r.Status == facts.Denied || r.ApprovalID != "" {
		return r, refused(r)
	}
	return r, nil
}

// lines are the NDJSON of one piece of code.
func lines(r call.Result, n int, at time.Time) []map[string]any {
	out := []map[string]any{{"type": "number_of_executions", "execution_count": n}}
	stderr, trace := r.Facts.Stderr, ""
	if r.Status != facts.OK {
		stderr, trace = traceback(stderr)
	}
	for _, text := range []struct{ name, text string }{{"stdout", r.Facts.Stdout}, {"stderr", stderr}} {
		if text.text != "" {
			out = append(out, map[string]any{"type": text.name, "text": text.text, "timestamp": at.UnixNano()})
		}
	}
	shown := results(r.Content)
	for i, one := range shown {
		one["type"], one["is_main_result"] = "result", i == 0 // a value comes before pictures
		out = append(out, one)
	}
	if r.Status != facts.OK {
		name, value := "Error", runner.Sentence(r.Facts)
		if trace != "" {
			name, value = raised(trace)
		}
		out = append(out, map[string]any{"type": "error", "name": name, "value": value, "traceback": trace})
	}
	return append(out, map[string]any{"type": "end_of_execution"})
}

// results are the values and pictures of a piece of code: all blocks but the first, which is its output.
func results(content []call.Content) (out []map[string]any) {
	for i, c := range content {
		kind := ""
		if c.Type == "image" {
			kind = member(c.Raw, "mimeType")
		}
		switch {
		case i == 0:
		case c.Type == "text":
			out = append(out, map[string]any{"text": c.Text})
		case kind == "image/png":
			out = append(out, map[string]any{"png": member(c.Raw, "data")})
		case kind == "image/jpeg":
			out = append(out, map[string]any{"jpeg": member(c.Raw, "data")})
		}
	}
	return out
}

// member returns a text of an object; empty: it has none.
func member(v strictjson.Value, name string) string {
	var all map[string]json.RawMessage
	var text string
	if v.Decode(&all) == nil {
		_ = json.Unmarshal(all[name], &text)
	}
	return text
}

// begins matches the first line of what Python writes about an exception.
var begins = pattern.Lazy(`(?m)^(Traceback \(most recent call last\):|  File ")`)

// traceback splits what a failed piece of code wrote from what Python wrote about it.
func traceback(stderr string) (wrote, trace string) {
	if at := begins().FindStringIndex(stderr); at != nil {
		return stderr[:at[0]], stderr[at[0]:]
	}
	return stderr, ""
}

// raised returns the name and the text of the exception of a traceback: its last line that is not indented.
func raised(trace string) (name, value string) {
	all := strings.Split(strings.TrimRight(trace, "\n"), "\n")
	for i := len(all) - 1; i >= 0; i-- {
		if line := all[i]; line != "" && line[0] != ' ' {
			name, value, _ = strings.Cut(line, ": ")
			return name, strings.Join(append([]string{value}, all[i+1:]...), "\n")
		}
	}
	return "Error", trace
}
