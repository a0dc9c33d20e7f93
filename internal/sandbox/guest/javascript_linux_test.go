package guest_test

import (
	"strings"
	"testing"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox/guest"
)

func js(code string) guest.Script {
	return guest.Script{Lang: guest.JavaScript, Name: "agent.js", Code: []byte(code), Servers: []string{"crm", "console"}}
}

func TestJavaScript(t *testing.T) {
	for _, row := range []struct {
		why, code, want string
		exit            int
	}{
		{"a plain script", "console.log(1 + 1)", "2", 0},
		{"its exit code is its own", "console.log('x'); process.exit(5)", "x", 5},
		{"exitCode is its own too", "process.exitCode = 3", "", 3},
		{"an uncaught error is exit 1", "throw new Error('x')", "", 1},
		{"a rejected promise is exit 1", "Promise.reject(new Error('x'))", "", 1},
		{"require works", "console.log(require('path').join('a', 'b'))", "a/b", 0},
		{"await works at the top", "console.log(await Promise.resolve(4))", "4", 0},
		{"sloppy scripts work", "x = 3; console.log(x, typeof module, typeof __dirname)", "3 object string", 0},
		{
			"a module works", "import { join } from 'path';\nimport fs from 'node:fs';\nconsole.log(join('a', 'b'), " +
				"typeof fs.readFileSync, import.meta.url)", "a/b function file:///workspace/agent.js", 0,
		},
		{"a module can import waldo",
			"import { servers } from 'waldo';\nconst r = await servers.crm.get({ id: 7 });\nconsole.log(r.title)", "Ada", 0},
		{"a module of waldo gen is its tool",
			"import { call, SERVER_URL } from './servers/crm/get.ts';\nconst r = await call(SERVER_URL, { id: 7 });\n" +
				"console.log(r.title, SERVER_URL, (await import('../x/servers/crm/get.js').catch(() => 'none')))",
			"Ada waldo:crm none", 0},
		{"dynamic import works", "const { join } = await import('path'); console.log(join('a', 'c'))", "a/c", 0},
		{"import in a string makes no module", "const s = `\nimport x from 'y'\n`; console.log(typeof require)",
			"function", 0},
		{"what follows on stdin is the script's", "console.log(require('fs').readFileSync(0, 'utf8').trim())", "hello", 0},
		{"stdin streams", "for await (const c of process.stdin) console.log(String(c).trim())", "hello", 0},
		{"help describes tools",
			"console.log(await help(servers.crm.get)); console.log((await help(crm)).slice(0, 18)); console.log(await help())",
			"crm.get\ndoes crm.get\nand more\nTools: array, ask,\nServers: crm", 0},
		{"half of a surrogate pair is an error of its call alone",
			"const odd = []; for (const a of [{ a: '\\ud83d' }, { ['\\udc00']: 1 }]) try { await crm.echo(a) } catch (e) { " +
				"odd.push(e.name) } console.log(odd.join(), (await crm.echo({ a: '\\u{1f600} \\\\ud800' })).a)",
			"TypeError,TypeError \U0001f600 \\ud800", 0},
		{"a field is a property",
			"const r = await crm.get({ id: 7 }); console.log(r.id, r.title, r.owner.email, `${r}`.length > 10)",
			"7 Ada [EMAIL_1] true", 0},
		{"rows iterate, index and count",
			"const r = await crm.list(); console.log([...r].length, r[1].n, r.length, r.filter((x) => x.Status === " +
				"'pending').length, r.total)", "3 2 3 2 3", 0},
		{"a result is text", "const r = await crm.text(); console.log(r + '!', r.length, r.toUpperCase())",
			"plain words! 11 PLAIN WORDS", 0},
		{"its JSON is its data", "console.log(JSON.stringify(await crm.array()))", `[{"a":1},{"a":2}]`, 0},
		{"a denial is an exception with its reasons",
			"try { await crm.delete({}) } catch (e) { console.log(e instanceof Denied, e.message, e.decision_id, " +
				"e.reasons[0].file) }", "true crm.delete: contract.deny: never d_1 undefined", 0},
		{"a question names its approval and can be repeated",
			"try { await crm.ask({}) } catch (e) { console.log(e.name, e.approval_id, (await crm.ask({}, { waldo_approval: " +
				"e.approval_id })).done) }", "Waiting a_9 true", 0},
		{"waldo's own failure says nothing of its insides",
			"try { await crm.broken() } catch (e) { console.log(e.message, e.decision_id) }",
			"waldo failed; its operator can see why d_2", 0},
		{"search gives references that load",
			"const [t] = await search_tools('echo'); console.log(t.name, t.summary, (await t.load()({ a: 3 })).a)",
			"crm.echo does crm.echo 3", 0},
		{"a failed call nobody catches ends the script", "await crm.fails()", "", 1},
		{"secrets and personal data leave text",
			"console.log(scrub('a.b@c.example 555-123-4567 123-45-6789 4111 1111 1111 1111 password: hunter2 token=abc'))",
			"[EMAIL] [PHONE] [SSN] [CREDIT_CARD] password: [REDACTED] token=[REDACTED]", 0},
		{"scrub walks through objects", "console.log(JSON.stringify(scrub({ api_key: 'k', n: 1, l: ['a@b.example'] })))",
			`{"api_key":"[REDACTED]","n":1,"l":["[EMAIL]"]}`, 0},
		{"the workspace writes what it is given",
			"workspace.root = 'out'; workspace.write('a/b.json', [{ k: 'é' }]); workspace.write('t.txt', 'x'); " +
				"console.log(workspace.read_json('a/b.json')[0].k, workspace.read('t.txt'), workspace.list().join())",
			"é x a/b.json,t.txt", 0},
		{"a path above the workspace is refused",
			"for (const p of ['/etc/x', '../x', 'a/../../x']) try { workspace.write(p, ''); console.log('wrote') } " +
				"catch (e) { console.log(e.name) }", "RangeError\nRangeError\nRangeError", 0},
		{"a server's name never hides a global", "console.log(typeof console.log)", "function", 0},
	} {
		t.Run(row.why, func(t *testing.T) {
			same(t, run(t, &desk{}, js(row.code), "hello\n"), row.exit, row.want)
			same(t, start(t, &desk{}, js(row.code), "hello\n", true), row.exit, row.want)
		})
	}
}

// TestRehearsed: the preparation of an interpreter leaves nothing that a script could see: no name, descriptor,
// listener, output or call.
func TestRehearsed(t *testing.T) {
	look := `console.log(JSON.stringify([
  Reflect.ownKeys(globalThis).map(String).sort(), Reflect.ownKeys(process).map(String).sort(),
  Object.fromEntries(process.eventNames().map((n) => [String(n), process.listenerCount(n)])),
  [process.stdout, process.stderr].map((s) => [Reflect.ownKeys(s._handle).map(String), s.bytesWritten, s.listenerCount('error')]),
  [Object.prototype, Function.prototype, Array.prototype, Promise.prototype].map((p) => Reflect.ownKeys(p).map(String)),
  process.argv, process.exitCode, process.execArgv, Object.keys(require.cache), process.getActiveResourcesInfo(),
  require('fs').readdirSync('/proc/self/fd').map((n) => { try { return require('fs').readlinkSync('/proc/self/fd/' + n).replace(/\d+/g, '') } catch { return '' } }).sort(),
]))`
	for _, l := range []guest.Lang{guest.JavaScript, guest.TypeScript} {
		for _, d := range []*desk{nil, {}} {
			s := js(look)
			s.Lang = l
			// A trace of the preparation is there at each start. Node's own threads open a descriptor now and then.
			for left := 3; ; left-- {
				cold, warm := start(t, d, s, "", false), start(t, d, s, "", true)
				if cold.exit == 0 && cold.stdout != "" && cold == warm {
					break
				}
				t.Logf("%s, with tools %t:\n%+v, and without getting ready\n%+v", l, d != nil, warm, cold)
				if left == 1 {
					t.Error("the two differ at each of three starts")
					break
				}
			}
			if d != nil && len(d.asked) > 0 {
				t.Errorf("%s: a call of a tool that was rehearsed came out: %+v", l, d.asked)
			}
		}
	}
}

func TestJavaScriptCallsRunTogether(t *testing.T) {
	d := &desk{}
	r := run(t, d,
		js("const r = await Promise.all([...Array(10)].map((_, n) => crm.slow({ n }))); console.log(r.length, r[9].ok)"), "")
	same(t, r, 0, "10 true")
	if d.most < 8 {
		t.Errorf("at most %d at once", d.most)
	}
	same(t, run(t, &desk{},
		js("const r = await Promise.all([...Array(200)].map((_, n) => crm.get({ n }))); console.log(r.length)"), ""), 0,
		"200")
	d = &desk{}
	if r = run(t, d, js("crm.echo({ a: 1 }); console.log('end')"), ""); len(d.asked) != 1 || r.effect != facts.None {
		t.Errorf("a call that nobody awaits: %d calls, effect %v", len(d.asked), r.effect)
	}
}

func TestJavaScriptErrorsShowTheScriptAlone(t *testing.T) {
	r := run(t, nil, js("function f() {\n  throw new TypeError('x');\n}\nf();"), "")
	if r.exit != 1 || !strings.Contains(r.stderr, "TypeError: x") || !strings.Contains(r.stderr, "agent.js:2:9") ||
		strings.Contains(r.stderr, "node:") || strings.Contains(r.stderr, "eval") {
		t.Errorf("exit %d:\n%s", r.exit, r.stderr)
	}
	r = run(t, nil, js("const x = ;"), "")
	if r.exit != 1 || !strings.Contains(r.stderr, "SyntaxError") || !strings.Contains(r.stderr, "agent.js:1") {
		t.Errorf("a syntax error: exit %d:\n%s", r.exit, r.stderr)
	}
	same(t, run(t, nil, js("try { await crm.get() } catch (e) { console.log(e.message) }"), ""), 0,
		"this run has no tools")
}

func TestTypeScript(t *testing.T) {
	for _, row := range []struct {
		why, code, want string
		exit            int
	}{
		{
			"types go", "interface P { n: number }\nconst p: P = { n: 1 };\nfunction f<T>(x: T): T { return x }\n" +
				"console.log(f<number>(p!.n) satisfies number)", "1", 0,
		},
		{"enums and parameter properties work",
			"enum E { A = 1, B }\nclass C { constructor(private x: E) {} get() { return this.x } }\n" +
				"console.log(new C(E.B).get())", "2", 0},
		{"a module works, and imports of types alone go",
			"import type { X } from 'nowhere';\nimport { Y } from 'nowhere';\nimport { join } from 'path';\nconst y: Y = 1;\n" +
				"console.log(join('a', 'b'))", "a/b", 0},
		{"tools are there", "const r = await crm.get({ id: 7 } as const);\nconsole.log(r.title as string)", "Ada", 0},
		{"a syntax error is exit 1", "const x: = 1", "", 1},
		{"await at the top of a typed script", "const n: number = await Promise.resolve(2); console.log(n)", "2", 0},
	} {
		t.Run(row.why, func(t *testing.T) {
			s := js(row.code)
			s.Lang, s.Name = guest.TypeScript, "agent.ts"
			same(t, run(t, &desk{}, s, ""), row.exit, row.want)
		})
	}
	s := js("interface A {\n  a: number\n}\n\nthrow new Error('x')")
	s.Lang, s.Name = guest.TypeScript, "agent.ts"
	if r := run(t, nil, s, ""); !strings.Contains(r.stderr, "agent.ts:5:") {
		t.Errorf("lines do not keep their numbers:\n%s", r.stderr)
	}
}

// Code that would overflow a parser's stack does so in the sandbox, as an error of its own.
func TestTypeScriptThatIsTooDeep(t *testing.T) {
	s := js(strings.Repeat("(", 500_000))
	s.Lang = guest.TypeScript
	if r := run(t, nil, s, ""); r.exit == 0 {
		t.Error("exit 0")
	}
}
