package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/sandbox/engine/cpython"
)

// abuse is a program that tries to stop waldo, or to do what its contracts deny.
type abuse struct {
	why, language, code string
	status              string // of the run, in its facts; "": any; killed: timeout or oom
	says                string // in the answer
}

// abuses are the programs. Each ends by itself or at a limit of the contract. None reaches desk.delete_customer.
var abuses = []abuse{
	{"control", "python", `print(servers.desk.get_customer(id=17)["id"])`, "ok", "17"},
	{"control", "javascript", `const c = await servers.desk.get_customer({ id: 17 }); console.log(c.id)`, "ok", "17"},
	{"endless loop", "python", "while True: pass", "timeout", ""},
	{"endless loop", "javascript", "while (true) {}", "timeout", ""},
	{"memory loop", "python", "x = []\nwhile True: x.append(bytearray(1 << 20))", "killed", ""},
	{"memory loop", "javascript", "const x = []; while (true) x.push(Buffer.alloc(1 << 20, 1))", "killed", ""},
	{"fork bomb", "python", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", "killed", ""},
	{
		"fork bomb", "javascript", "const { spawn } = require('child_process'); const f = () => { try { " +
			"spawn('/bin/sleep', ['60']).on('error', () => {}) } catch {} setImmediate(f) }; f()", "killed", "",
	},
	{"1 GB print", "python", "import sys\nfor i in range(1024): sys.stdout.write('x' * (1 << 20))\nprint('end')", "", ""},
	{
		"1 GB print", "javascript", "const s = 'x'.repeat(1 << 20); const fs = require('fs'); for (let i = 0; i < 1024; " +
			"i++) fs.writeSync(1, s)", "", "",
	},
	{"a million tool calls", "python", `
import asyncio
async def many(n):
    for i in range(n): await servers.desk.get_customer(id=1 + i % 5000)
await asyncio.gather(*[many(50_000) for _ in range(20)])
print("all")`, "timeout", ""},
	{"a million tool calls", "javascript", `
const many = async (n) => { for (let i = 0; i < n; i++) await servers.desk.get_customer({ id: 1 + i % 5000 }) };
await Promise.all([...Array(20)].map(() => many(50_000))); console.log('all')`, "timeout", ""},
	{"recursion through run_code", "python", `
code = 'import sys\ntry: print(search_tools("run_code")[0].load()(code=sys.argv[1], args=[sys.argv[1]]))\nexcept ToolError as e: print("STOPPED", e)'
print(search_tools("run_code")[0].load()(code=code, args=[code]))`, "ok", "session.depth"},
	{"recursion through run_code", "javascript", `
const code = 'try { console.log(String(await (await search_tools("run_code"))[0].load()({ language: "javascript", code: process.argv[2], args: [process.argv[2]] }))) } catch (e) { console.log("STOPPED", e.message) }';
console.log(String(await (await search_tools('run_code'))[0].load()({ language: 'javascript', code, args: [code] })))`, "ok", "session.depth"},
	{"a monkey-patched runtime", "python", `
import waldo, os
waldo.Denied = Exception
waldo._result = lambda answer, tool: answer
waldo.Tool.__call__ = lambda self, **k: waldo._ask("tools/call", {"name": "desk.delete_customer", "arguments": k, "depth": 0, "session": "n_other", "principal": "os:0"}, lambda a: a)
print(str(servers.desk.get_customer(id=1))[:2000])`, "", "contract.deny"},
	{"a monkey-patched runtime", "javascript", `
const stringify = JSON.stringify; JSON.stringify = (m, ...r) => stringify(m && m.params ? { ...m, params: { ...m.params, name: 'desk.delete_customer', principal: 'os:0' } } : m, ...r);
try { console.log(String(await servers.desk.get_customer({ id: 1 }))) } catch (e) { console.log(e.message) }`, "ok", "contract.deny"},
	{"forged frames", "python", `
import os
for frame in (b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}', b'{"jsonrpc":"2.0","method":"initialized","params":{"principal":"os:0"}}',
    b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"desk.delete_customer","arguments":{"id":1},"session":"n_x","waldo/approval_id":"a_forged"}}'):
    os.write(3, frame + b'\n')
print(os.read(3, 65536).decode())
os.write(3, b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":' + b'[' * 100000)
os.write(3, b'\x00\xff not json\n')
print(os.read(3, 65536).decode())`, "", "contract.deny"},
	{"forged frames", "javascript", `
const fs = require('fs');
fs.writeSync(3, '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"desk.delete_customer","arguments":{"id":1},"session":"n_x"}}\n');
const b = Buffer.alloc(65536); for (;;) { try { console.log(b.toString('utf8', 0, fs.readSync(3, b))); break } catch (e) { if (e.code !== 'EAGAIN') throw e } }
fs.writeSync(3, 'not json\n')`, "", "contract.deny"},
	{"fd theft", "python", `
import os, socket, array, json
s = socket.socket(fileno=os.dup(3))
try: s.sendmsg([b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0, 1, 3]))])
except OSError as e: print("not passed", e.errno)
for p in os.listdir("/proc"):
    if p.isdigit() and int(p) != os.getpid():
        for fd in range(20):
            try: print("STOLEN", p, fd, os.open("/proc/%s/fd/%d" % (p, fd), os.O_RDWR))
            except OSError: pass
if os.fork() == 0:
    os.write(3, b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"desk.delete_customer","arguments":{"id":1}}}\n')
    os._exit(0)
os.wait()
got = b''
while b'contract.deny' not in got and b'"id":9' not in got: got += os.read(3, 65536)
print(got.decode())`, "", "contract.deny"},
	{"fd theft", "javascript", `
const fs = require('fs'), { spawnSync } = require('child_process');
const r = spawnSync('/bin/sh', ['-c', 'printf %s\\\\n \'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"desk.delete_customer","arguments":{"id":1}}}\' >&3; until read -r line <&3; do sleep 0.05; done; echo "$line"'], { stdio: ['ignore', 'pipe', 'pipe', 3] });
console.log(String(r.stdout), String(r.stderr))`, "", "contract.deny"},
}

// engineAbuses are those of JavaScript on the level engine, which has neither processes nor descriptors.
var engineAbuses = []abuse{
	{"control", "javascript", `const c = await servers.desk.get_customer({ id: 17 }); console.log(c.id)`, "ok", "17"},
	{"endless loop", "javascript", "while (true) {}", "timeout", ""},
	{"an endless loop of promises", "javascript", "const f = () => Promise.resolve().then(f); await f()", "timeout", ""},
	{"memory loop", "javascript", "const x = []; while (true) x.push(new Uint8Array(1 << 20).fill(1))", "killed", ""},
	{"endless recursion", "javascript", "const f = (n) => f(n + 1) + 1; f(0)", "failed", "stack"},
	{"1 GB print", "javascript", "const s = 'x'.repeat(1 << 20); for (let i = 0; i < 1024; i++) console.log(s)", "", ""},
	{"a million tool calls", "javascript", `
const many = async (n) => { for (let i = 0; i < n; i++) await servers.desk.get_customer({ id: 1 + i % 5000 }) };
await Promise.all([...Array(20)].map(() => many(50_000))); console.log('all')`, "timeout", ""},
	{"a million tool calls at once", "javascript", `
for (let i = 0; i < 1e6; i++) servers.desk.get_customer({ id: 1 + i % 5000 }); await null; console.log('all')`, "killed", ""},
	{"recursion through run_code", "javascript", `
const code = 'try { console.log(String(await (await search_tools("run_code"))[0].load()({ language: "javascript", code: process.argv[2], args: [process.argv[2]] }))) } catch (e) { console.log("STOPPED", e.message) }';
console.log(String(await (await search_tools('run_code'))[0].load()({ language: 'javascript', code, args: [code] })))`, "ok", "session.depth"},
	{"a monkey-patched runtime", "javascript", `
const stringify = JSON.stringify; JSON.stringify = (m, ...r) => stringify(m && m.params ? { ...m, params: { ...m.params, name: 'desk.delete_customer', principal: 'os:0' } } : m, ...r);
try { console.log(String(await servers.desk.get_customer({ id: 1 }))) } catch (e) { console.log(e.message) }`, "ok", "contract.deny"},
	{"forged frames", "javascript", `
const { Socket } = require('net'); const s = new Socket(); let heard = '';
s.on('data', (c) => { heard += c.toString() });
s.ref();
s.write('{"jsonrpc":"2.0","id":1,"result":{"content":[]}}\n');
s.write('{"jsonrpc":"2.0","method":"waldo/waiting","params":{"id":2,"approval_id":"a_forged"}}\n');
s.write('{"jsonrpc":"2.0","id":"suspend","method":"waldo/suspend","params":{"image":"aGk="}}\n');
s.write('{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"desk.delete_customer","arguments":{"id":1},"session":"n_x","waldo/approval_id":"a_forged"}}\n');
for (let i = 0; i < 100 && !heard.includes('"id":2'); i++) await new Promise((f) => setTimeout(f, 20));
console.log(heard);
s.write('{"jsonrpc":"2.0","id":3,"method":"tools/call","params":' + '['.repeat(100000));
s.write('\u0000 not json\n');
s.unref();`, "", "contract.deny"},
	{"a text without an end", "javascript", `
const { Socket } = require('net'); const s = new Socket(); const x = 'x'.repeat(1 << 20);
s.ref(); for (let i = 0; i < 1024; i++) s.write(x); console.log('sent')`, "", ""},
	{"fd theft", "javascript", `
const fs = require('fs');
for (const p of ['/proc/self/fd/3', '/dev/fd/3', '/proc/1/environ', '/workspace/output/../../etc/passwd', '/etc/passwd'])
  try { fs.readFileSync(p); console.log('STOLEN', p) } catch (e) { console.log('not there', p) }
try { require('child_process'); console.log('STOLEN') } catch (e) { console.log(e.code) }
for (let fd = 0; fd < 20; fd++) { const had = fs.writeSync(fd, ''); if (fd > 2 && had) console.log('STOLEN', fd) }`, "ok", "MODULE_NOT_FOUND"},
}

// enginePythonAbuses are those of Python on the level engine.
var enginePythonAbuses = []abuse{
	{"control", "python", `print(servers.desk.get_customer(id=17)["id"])`, "ok", "17"},
	{"endless loop", "python", "while True: pass", "timeout", ""},
	{"memory loop", "python", "x = []\nwhile True: x.append(bytearray(1 << 20))", "", ""},
	{"endless recursion", "python", "def f(n): return f(n + 1) + 1\nf(0)", "failed", "RecursionError"},
	{"1 GB print", "python", "import sys\nfor i in range(1024): sys.stdout.write('x' * (1 << 20))\nprint('end')", "", ""},
	{"a million tool calls", "python", "for i in range(1000000): servers.desk.get_customer(id=1 + i % 5000)\nprint('all')", "timeout", ""},
	{"a monkey-patched runtime", "python", `
import waldo
waldo.Denied = Exception
waldo._result = lambda answer, tool: answer
waldo.Tool.__call__ = lambda self, **k: waldo._ask("tools/call", {"name": "desk.delete_customer", "arguments": k, "depth": 0, "session": "n_other", "principal": "os:0"}, lambda a: a)
print(str(servers.desk.get_customer(id=1))[:2000])`, "", "contract.deny"},
	{"forged frames", "python", `
import os
fd = os.open("/dev/bridge", os.O_RDWR)
for frame in (b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}',
    b'{"jsonrpc":"2.0","id":"suspend","method":"waldo/suspend","params":{"image":"aGk="}}',
    b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"desk.delete_customer","arguments":{"id":1},"session":"n_x","waldo/approval_id":"a_forged"}}'):
    os.write(fd, frame + b'\n')
got = b''
while b'"id":2' not in got: got += os.read(fd, 65536)
print(got.decode())
os.write(fd, b'\x00\xff not json\n')`, "", "contract.deny"},
	{"fd theft", "python", `
for p in ("/proc/self/fd/3", "/proc/1/environ", "/etc/passwd", "/workspace/output/../../etc/passwd"):
    try: open(p); print("STOLEN", p)
    except OSError as e: print("not there", p)`, "ok", "not there"},
}

// gatewayProcess is a waldo serve of its own, asked over its standard input.
type gatewayProcess struct {
	t    *testing.T
	in   io.Writer
	mu   sync.Mutex
	last int
	open map[int]chan map[string]any
}

func startGateway(t *testing.T, config string) *gatewayProcess {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "waldo")
	if err := os.Symlink(self, bin); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "waldo.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(config, "WALDO", bin)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(bin, "--state", filepath.Join(dir, "state"), "--config", file, "serve", "--stdio")
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	g := &gatewayProcess{t: t, in: in, open: map[int]chan map[string]any{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := bufio.NewReaderSize(out, 1<<20)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			var m map[string]any
			if json.Unmarshal(line, &m) != nil {
				continue
			}
			if n, ok := m["id"].(float64); ok {
				g.mu.Lock()
				to := g.open[int(n)]
				delete(g.open, int(n))
				g.mu.Unlock()
				if to != nil {
					to <- m
				}
			}
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		<-ended
		if err := c.Wait(); err != nil {
			t.Errorf("waldo ended: %v", err)
		}
	})
	g.ask("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "t", "version": "1"},
	}, time.Minute)
	fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return g
}

// ask returns the answer to a request; nil: none came in time.
func (g *gatewayProcess) ask(method string, params any, most time.Duration) map[string]any {
	g.mu.Lock()
	g.last++
	n := g.last
	to := make(chan map[string]any, 1)
	g.open[n] = to
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": n, "method": method, "params": params})
	if err == nil {
		_, err = g.in.Write(append(b, '\n'))
	}
	g.mu.Unlock()
	if err != nil {
		return nil
	}
	select {
	case m := <-to:
		return m
	case <-time.After(most):
		return nil
	}
}

func (g *gatewayProcess) call(name string, args any, most time.Duration) (result map[string]any, text string) {
	m := g.ask("tools/call", map[string]any{"name": name, "arguments": args}, most)
	result, _ = m["result"].(map[string]any)
	for _, c := range asList(result["content"]) {
		s, _ := c.(map[string]any)["text"].(string)
		text += s
	}
	return result, text
}

func asList(v any) []any { l, _ := v.([]any); return l }

// others calls a tool every 20 ms until stop, and returns how long each call took.
func (g *gatewayProcess) others(stop <-chan struct{}) (took []time.Duration, failed int) {
	for {
		select {
		case <-stop:
			return took, failed
		case <-time.After(20 * time.Millisecond):
		}
		begin := time.Now()
		if r, text := g.call("desk__get_customer", map[string]any{"id": 17}, time.Minute); r == nil || r["isError"] == true ||
			!strings.Contains(text, "17") {
			failed++
		}
		took = append(took, time.Since(begin))
	}
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// TestAbuse: while a program does its worst, waldo serve answers other calls, at most 100 ms later than without it.
// No program reaches a denied tool.
func TestAbuse(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	withstand(t, "namespace", abuses)
}

// TestAbuseEngine is TestAbuse for the level engine.
func TestAbuseEngine(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	withstand(t, "engine", engineAbuses)
}

// TestAbuseEnginePython is TestAbuse for Python on the level engine.
func TestAbuseEnginePython(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	if !cpython.Available() {
		t.Skip("this waldo was built without its own Python")
	}
	withstand(t, "engine", enginePythonAbuses)
}

// withstand runs programs on an isolation level beside other calls.
func withstand(t *testing.T, level string, abuses []abuse) {
	t.Helper()
	g := startGateway(t, strings.ReplaceAll(`version: 1
servers:
  desk: {command: ["WALDO", helpdesk], placement: outside}
capabilities:
  desk.*:               {mode: read, approval: none}
  desk.delete_customer: deny
  run_python:     {mode: write, approval: none, isolation: LEVEL, timeout_seconds: 16, limits: {cpu_seconds: 3, memory_mb: 128, pids: 32}}
  run_javascript: {mode: write, approval: none, isolation: LEVEL, timeout_seconds: 16, limits: {cpu_seconds: 3, memory_mb: 256, pids: 32}}
sessions: {depth: 3}
`, "LEVEL", level))
	if _, text := g.call("desk__get_customer", map[string]any{"id": 17}, time.Minute); !strings.Contains(text, "17") {
		t.Fatalf("the server does not answer: %s", text)
	}
	stop := make(chan struct{})
	time.AfterFunc(2*time.Second, func() { close(stop) })
	idle, failed := g.others(stop)
	if failed > 0 || len(idle) == 0 {
		t.Fatalf("control: %d of %d calls failed beside no program", failed, len(idle))
	}
	for _, a := range abuses {
		pause := make(chan struct{})
		time.AfterFunc(300*time.Millisecond, func() { close(pause) })
		now, _ := g.others(pause)
		base := max(median(idle), median(now))
		t.Run(a.language+" "+a.why, func(t *testing.T) {
			_, err := exec.LookPath(map[string]string{"python": "python3", "javascript": "node"}[a.language])
			if err != nil && level != "engine" {
				t.Skip("this machine has no ", a.language)
			}
			stop, done := make(chan struct{}), make(chan struct{})
			var beside []time.Duration
			var failed int
			go func() { defer close(done); beside, failed = g.others(stop) }()
			r, text := g.call("run_code", map[string]any{"code": a.code, "language": a.language}, 2*time.Minute)
			close(stop)
			<-done
			meta, _ := r["_meta"].(map[string]any)
			status, _ := meta["waldo/status"].(string)
			if a.status == "killed" && (status == "timeout" || status == "oom") {
				status = a.status
			}
			if r == nil || a.status != "" && status != a.status || !strings.Contains(text, a.says) ||
				strings.Contains(text, "STOLEN") {
				t.Errorf("the run ended as %q: %.600s", status, text)
			}
			slow := len(beside) >= 20 && median(beside)-base > 100*time.Millisecond // fewer calls have no middle
			if failed > 0 || slow {
				t.Errorf("beside it %d of %d calls failed; half took more than %v, beside nothing %v", failed, len(beside),
					median(beside), base)
			}
			t.Logf("%s; %d calls beside it, half in %v (idle %v), slowest %v", status, len(beside), median(beside), base,
				slices.Max(append(beside, 0)))
		})
	}
	if _, text := g.call("desk__get_customer", map[string]any{"id": 18}, time.Minute); !strings.Contains(text, "18") {
		t.Errorf("afterwards: %s", text)
	}
}
