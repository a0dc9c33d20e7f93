package program

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"waldo/internal/sandbox/engine/quickjs"
)

// waldoEnd answers the bridge of programs as waldo does.
type waldoEnd struct {
	*os.File
	lines *bufio.Scanner
}

func (w *waldoEnd) next(t testing.TB) string {
	t.Helper()
	if !w.lines.Scan() {
		t.Fatal("the bridge is closed")
	}
	return w.lines.Text()
}

func (w *waldoEnd) say(t testing.TB, s string) {
	t.Helper()
	if _, err := io.WriteString(w, s+"\n"); err != nil {
		t.Fatal(err)
	}
}

// process is a program in this process, with a bridge.
func process(t testing.TB, out io.Writer) (*program, *quickjs.Engine, *waldoEnd) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	end := os.NewFile(uintptr(fds[0]), "waldo")
	lines := bufio.NewScanner(end)
	lines.Buffer(nil, maxFrame)
	t.Cleanup(func() { _ = end.Close() })
	p := &program{Options: Options{Memory: 64 << 20, Disk: 1 << 20, Bridge: uintptr(fds[1]), Life: 1},
		out: [2]io.Writer{out, out}, exit: -1}
	e, err := quickjs.New(context.Background(), p.Memory, cache(t))
	if err == nil {
		err = p.begin(e)
	}
	if err == nil {
		p.files, err = openFiles(t.TempDir(), 1<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.bridge = openBridge(p.Options)
	p.ready = true
	return p, e, &waldoEnd{end, lines}
}

// twoCalls is a program with two calls at a time.
const twoCalls = `console.log('before'); let n = 40;
const all = await Promise.all([servers.a.b({ x: 1 }), servers.a.b({ x: 2 })]);
console.log('after', ++n + 1, all.map(String).join(' '));`

// suspendedProgram returns a program that waits for two calls, as it is written down.
func suspendedProgram(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	p, _, w := process(t, &out)
	p.job = Job{Name: "script.js", Args: []string{}, Servers: []string{}, Code: []byte(twoCalls)}
	if done, code, err := p.start(); done || err != nil {
		t.Fatal(code, err, out.String())
	}
	for _, id := range []string{"1", "2"} {
		if line := w.next(t); !strings.Contains(line, `"id":`+id) {
			t.Fatal(line)
		}
		p.bridge.note(frame(`{"jsonrpc":"2.0","method":"waldo/waiting","params":{"id":` + id +
			`,"approval_id":"a_` + id + `"}}`))
	}
	if !p.bridge.idle() {
		t.Fatal("the program does not wait")
	}
	image, err := p.pack()
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// TestGeneratedModules: a module that waldo gen would write calls its tool over the bridge, if no such file is there.
func TestGeneratedModules(t *testing.T) {
	for _, name := range []string{"./servers/a/b.ts", "./servers/a/b.js", "/workspace/servers/a/b"} {
		var out bytes.Buffer
		p, _, w := process(t, &out)
		p.job = Job{Name: "script.js", Args: []string{}, Servers: []string{}, Code: []byte(
			"import { call, TOOL, SERVER_URL } from '" + name + "'; import { run_async } from 'waldo';\n" +
				"console.log(TOOL, SERVER_URL, typeof run_async, String(await call(SERVER_URL, { x: 1 })));")}
		if done, code, err := p.start(); done || err != nil {
			t.Fatal(name, code, err, out.String())
		}
		if line := w.next(t); !strings.Contains(line, `"name":"a.b","arguments":{"x":1}`) {
			t.Errorf("%s: %s", name, line)
		}
		w.say(t, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"r"}],"isError":false}}`)
		if code, err := p.loop(); code != 0 || err != nil || out.String() != "b waldo:a function r\n" {
			t.Errorf("%s: %d %v %q", name, code, err, out.String())
		}
	}
}

// TestSuspend: a program goes on in another process, with both of its calls, each quoting its approval.
func TestSuspend(t *testing.T) {
	image := suspendedProgram(t)
	if len(image) > 200_000 {
		t.Errorf("the program has %d bytes", len(image))
	}
	var out bytes.Buffer
	p, _, w := process(t, &out)
	p.job = Job{Image: image}
	if err := p.resume(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"1", "2"} {
		line := w.next(t)
		if !regexp.MustCompile(`"id":` + id + `,.*"waldo/approval_id":"a_` + id + `"`).MatchString(line) {
			t.Errorf("%s", line)
		}
		w.say(t,
			`{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[{"type":"text","text":"r`+id+`"}],"isError":false}}`)
	}
	if code, err := p.loop(); code != 0 || err != nil || out.String() != "after 42 r1 r2\n" {
		t.Errorf("%d %v %q", code, err, out.String())
	}
}

// TestOlderRuntime: a program that a waldo with another runtime has suspended goes on.
func TestOlderRuntime(t *testing.T) {
	now := runtime
	runtime = strings.Replace(now, "(function (Buffer) {", "(function (Buffer) { globalThis.older = [1, 2, 3];", 1)
	image := suspendedProgram(t)
	if runtime == now {
		t.Fatal("the runtime has another beginning")
	}
	runtime = now
	var out bytes.Buffer
	p, _, w := process(t, &out)
	if bytes.HasPrefix(image, p.header) {
		t.Fatal("control: both runtimes are the same")
	}
	p.job = Job{Image: image}
	if err := p.resume(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"1", "2"} {
		if line := w.next(t); !strings.Contains(line, `"waldo/approval_id":"a_`+id+`"`) {
			t.Errorf("%s", line)
		}
		w.say(t,
			`{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[{"type":"text","text":"r`+id+`"}],"isError":false}}`)
	}
	if code, err := p.loop(); code != 0 || err != nil || out.String() != "after 42 r1 r2\n" {
		t.Errorf("%d %v %q", code, err, out.String())
	}
	for why, text := range map[string]string{
		"another interpreter": strings.Replace(string(image), quickjs.Digest(), strings.Repeat("0", len(quickjs.Digest())), 1),
		"an older form":       strings.Replace(string(image), "waldo-program 2", "waldo-program 1", 1),
	} {
		p.job = Job{Image: []byte(text)}
		if err := p.resume(); !errors.Is(err, ErrOther) {
			t.Errorf("%s: %v", why, err)
		}
	}
	// A runtime that does not give the memory that the image names is refused.
	p.job = Job{Image: append(header(p.base, now), image[len(p.header):]...)}
	if err := p.resume(); !errors.Is(err, ErrOther) {
		t.Errorf("an image with another runtime than its own: %v", err)
	}
	p.job = Job{Image: header(p.base, strings.Repeat(" ", 4*mostRuntime))}
	if err := p.resume(); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a runtime beyond its bound: %v", err)
	}
}

// FuzzRuntimeOf: what is said to be a suspended program gives a bounded text or an error.
func FuzzRuntimeOf(f *testing.F) {
	f.Add(suspendedProgram(f))
	f.Add([]byte("waldo-program 2\n" + quickjs.Digest() + "\nx\n9999999\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if text, err := runtimeOf(b); err == nil && len(text) > mostRuntime {
			t.Errorf("%d bytes", len(text))
		}
	})
}

// TestOtherProgram: an image of another runtime, or one that was changed, does not go on.
func TestOtherProgram(t *testing.T) {
	image := suspendedProgram(t)
	p, _, _ := process(t, io.Discard)
	if _, _, err := unpack(image, p.header, p.base, p.Memory); err != nil {
		t.Fatalf("control: %v", err)
	}
	other := p.base
	other.Memory = append([]byte{1}, other.Memory[1:]...)
	if _, _, err := unpack(image, header(other, runtime), other, p.Memory); !errors.Is(err, ErrOther) {
		t.Errorf("another runtime: %v", err)
	}
	if _, _, err := unpack(image, p.header, p.base, 1<<20); err == nil {
		t.Error("an image above the limit of memory goes on")
	}
	head := len(p.header)
	for _, at := range []int{0, 20, head - 2, head + 1, head + 40, len(image) - 1} {
		changed := bytes.Clone(image)
		changed[at] ^= 0x40
		if _, _, err := unpack(changed, p.header, p.base, p.Memory); err == nil && at < head {
			t.Errorf("byte %d was changed", at)
		}
	}
}

// FuzzUnpack: any bytes in place of a suspended program are refused, or give an image within its limit.
func FuzzUnpack(f *testing.F) {
	image := suspendedProgram(f)
	p, _, _ := process(f, io.Discard)
	head := len(p.header)
	f.Add(image[head:])
	f.Fuzz(func(t *testing.T, b []byte) {
		_, i, err := unpack(append(bytes.Clone(p.header), b...), p.header, p.base, 8<<20)
		if err == nil && len(i.Memory) > 8<<20 {
			t.Errorf("%d bytes", len(i.Memory))
		}
	})
}

// BenchmarkSuspend measures how long it takes to write a program down, and how many bytes it has.
func BenchmarkSuspend(b *testing.B) {
	var out bytes.Buffer
	p, _, w := process(b, &out)
	p.job = Job{Name: "script.js", Args: []string{}, Servers: []string{}, Code: []byte(twoCalls)}
	if done, _, err := p.start(); done || err != nil {
		b.Fatal(err)
	}
	_, _ = w.next(b), w.next(b)
	size := 0
	for b.Loop() {
		image, err := p.pack()
		if err != nil {
			b.Fatal(err)
		}
		size = len(image)
	}
	b.ReportMetric(float64(size), "bytes")
}

// BenchmarkResume measures a program's way from its file to the end: both answers are there.
func BenchmarkResume(b *testing.B) {
	image := suspendedProgram(b)
	for b.Loop() {
		b.StopTimer()
		p, e, w := process(b, io.Discard)
		p.job = Job{Image: image}
		for _, id := range []string{"1", "2"} {
			w.say(b, `{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[{"type":"text","text":"r"}],"isError":false}}`)
		}
		b.StartTimer()
		if err := p.resume(); err != nil {
			b.Fatal(err)
		}
		if code, err := p.loop(); code != 0 || err != nil {
			b.Fatal(code, err)
		}
		b.StopTimer()
		_ = w.Close()
		_ = e.Close(context.Background())
		b.StartTimer()
	}
}

// TestLoneSurrogate: half of a surrogate pair is an error of its call, and the bridge goes on.
func TestLoneSurrogate(t *testing.T) {
	var out bytes.Buffer
	p, _, w := process(t, &out)
	p.job = Job{Name: "script.js", Args: []string{}, Servers: []string{}, Code: []byte(
		`try { await servers.a.b({ x: 'a\ud83d' }) } catch (e) { console.log(e.name) } await servers.a.b({ x: '\u{1f600}' })`)}
	if done, code, err := p.start(); done || err != nil {
		t.Fatal(code, err, out.String())
	}
	if f := w.next(t); !strings.Contains(f, `"x":"`+"\U0001f600") || out.String() != "TypeError\n" {
		t.Errorf("%s %s", f, out.String())
	}
}
