package program

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/sandbox/guest"
)

// ran is how a program ended.
type ran struct {
	code        int
	out, stderr string
}

// runCode runs a program in this process.
func runCode(t *testing.T, j Job, change func(*Options)) ran {
	t.Helper()
	dir := t.TempDir()
	for _, f := range folders {
		if err := os.Mkdir(filepath.Join(dir, f), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// Descriptor 3 is not this process's bridge: the program would take it, and close it later.
	o := Options{Memory: 64 << 20, Disk: 1 << 20, Workspace: dir, Cache: cache(t), Bridge: ^uintptr(0)}
	if change != nil {
		change(&o)
	}
	job, err := j.Text()
	if err != nil {
		t.Fatal(err)
	}
	var out, stderr bytes.Buffer
	code := Main(o, io.MultiReader(strings.NewReader(Prelude), job), &out, &stderr)
	return ran{code, out.String(), stderr.String()}
}

// cache is a folder of compiled code that the tests of this machine share.
func cache(t testing.TB) string {
	dir := filepath.Join(os.TempDir(), "waldo-engine-test-cache")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPrograms(t *testing.T) {
	for _, r := range []struct {
		why  string
		lang guest.Lang
		code string
		want ran
	}{
		{"prints", "",
			`console.log(1, 'a', [1,'b'], {a: 1, b: {c: {d: {e: 1}}}, f: {}}, new Map([[1, 2]]), null, undefined)`,
			ran{0, "1 a [ 1, 'b' ] { a: 1, b: { c: { d: [Object] } }, f: {} } Map(1) { 1 => 2 } null undefined\n", ""}},
		{"top-level await and return", "",
			"await null; console.log(await Promise.all([1, Promise.resolve(2)])); return", ran{0, "[ 1, 2 ]\n", ""}},
		{"timers", "",
			"setTimeout(() => console.log('b'), 5); setTimeout(() => console.log('a'), 1); const i = setInterval(() => { " +
				"clearInterval(i); console.log('i') }, 20)",
			ran{0, "a\nb\ni\n", ""}},
		{"an error", "", "\nfunction f() { throw new TypeError('no') }\nf()", ran{1, "",
			"TypeError: no\n    at f (script.js:2:26)\n    at <anonymous> (script.js:3:1)\n"}},
		{"a mistake", "", "let a = ;", ran{1, "",
			"SyntaxError: unexpected token in expression: ';'\n    at script.js:1:9\n"}},
		{"exit", "", "try { process.exit(3) } finally { console.log('no') }", ran{3, "", ""}},
		{"no status of waldo's", "", "process.exit(250)", ran{1, "", ""}},
		{"exitCode", "", "process.exitCode = 4", ran{4, "", ""}},
		{"a module", "",
			"import { workspace } from 'waldo'; import fs from 'node:fs'; workspace.write('a.txt', 'x\u00e9'); " +
				"console.log(fs.readFileSync('/workspace/output/a.txt', 'utf8'), workspace.list(), import.meta.url)",
			ran{0, "xé [ 'a.txt' ] undefined\n", ""}},
		{"TypeScript", guest.TypeScript,
			"interface A { b: string }\nenum E { F = 2 }\nconst a: A = { b: 'x' } as const;\nclass C<T> { constructor(private " +
				"x: T) {} get() { return this.x } }\nconsole.log(a.b, E.F, new C<number>(1).get()); await null; return;",
			ran{0, "x 2 1\n", ""}},
		{"TypeScript that cannot be read", guest.TypeScript, "let a: = 1", ran{1, "",
			"SyntaxError: Unexpected \"=\"\n    at script.ts:1:8\n"}},
		{"no tools", "",
			"try { await servers.a.b({}) } catch (e) { console.log(e instanceof ToolError, e.message) }", ran{0,
				"true this run has no tools\n", ""}},
		{"scrub and logger", "", "logger.info('mail a@example.com', scrub({ password: 'x' }))", ran{0, "",
			"INFO mail [EMAIL] { password: '[REDACTED]' }\n"}},
		{"a promise that nothing settles", "", "await new Promise(() => {})", ran{13, "",
			"Warning: the script waits for a promise that nothing will settle\n"}},
		{"a rejection without a handler", "",
			"Promise.reject(new Error('lost')); setTimeout(() => console.log('no'), 50)", ran{1, "",
				"Error: lost\n    at <anonymous> (script.js:1:20)\n"}},
		{"host is gone", "", "console.log(typeof host, typeof __waldo, typeof require('fs').readFileSync)", ran{0,
			"undefined undefined function\n", ""}},
		{"random numbers", "", "console.log(Math.random() < 1, Math.random() !== Math.random())", ran{0,
			"true true\n", ""}},
	} {
		if got := runCode(t, Job{Lang: r.lang, Code: []byte(r.code)}, nil); got != r.want {
			t.Errorf("%s: %+v, want %+v", r.why, got, r.want)
		}
	}
}
