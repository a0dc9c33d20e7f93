package quickjs

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"
)

func testHost(t testing.TB, call func(string, []Arg) Value) Host {
	if call == nil {
		call = func(string, []Arg) Value { return nil }
	}
	return Host{Call: call, Now: func() int64 { return 1_700_000_000_000_000_000 },
		Random:  func(b []byte) { _, _ = rand.Read(b) },
		Module:  func(name string) (string, error) { return "", fmt.Errorf("no module %s", name) },
		Resolve: func(_, name string) (string, error) { return name, nil }}
}

func testEngine(t testing.TB, memory int64) *Engine {
	began := time.Now()
	e, err := New(context.Background(), memory, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("compile %v", time.Since(began))
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	return e
}

func TestFirst(t *testing.T) {
	e := testEngine(t, 64<<20)
	began := time.Now()
	m, err := e.Start(testHost(t, func(name string, args []Arg) Value { t.Logf("%s %q", name, args); return Text("back") }))
	if err != nil {
		t.Fatal(err)
	}
	t.Log("start", time.Since(began))
	fmt.Println(m.Eval("a.js", "host('x', 'abcé', new ArrayBuffer(3)) + [1,2].map(x => x*2)"))
	fmt.Println(m.Eval("a.js", "throw new TypeError('x')"))
	fmt.Println(m.Eval("a.js", "typeof queueMicrotask + typeof performance + typeof setTimeout + typeof console + typeof TextEncoder + typeof structuredClone + typeof atob + typeof URL + typeof WeakRef + typeof Atomics + typeof SharedArrayBuffer"))
	fmt.Println(m.Eval("a.js", "function f() { return f() + 1 } f()"))
	fmt.Println(m.Eval("a.js", "let a = []; for (;;) a.push(new Array(1000).fill(1))"))
	fmt.Println(m.Eval("a.js", "a.length"))
	fmt.Println(m.Memory())
	go func() { time.Sleep(300 * time.Millisecond); m.Interrupt() }()
	began = time.Now()
	fmt.Println(m.Eval("a.js", "/(a+)+b/.exec('a'.repeat(40))"))
	fmt.Println(time.Since(began))
}
