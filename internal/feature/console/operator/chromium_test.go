package operator

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// chromium is a headless Chromium that a test drives over the DevTools protocol, through two pipes.
type chromium struct {
	t       *testing.T
	ctx     context.Context
	out     *os.File
	session string

	mu     sync.Mutex
	next   int
	wait   map[int]chan json.RawMessage
	faults []string // messages of the console: refused scripts, errors

	ended chan struct{} // closed when the process has ended
	end   string        // then: how, and what it wrote

	cache   string // .cache of the repository
	checker string // axe-core
	waits   bool   // a page that goes away meanwhile is no fault
}

// startChromium starts the Chromium of scripts/setup-chromium.sh, or skips the test.
func startChromium(t *testing.T) *chromium {
	t.Helper()
	if testing.Short() {
		t.Skip("a real browser takes minutes: make test has it")
	}
	cache, err := filepath.Abs(filepath.Join("..", "..", "..", "..", ".cache"))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(cache, "chromium", "chrome")
	if _, err := os.Stat(program); err != nil {
		t.Skip("no Chromium here: scripts/setup-chromium.sh unpacks one, on Debian")
	}
	checker, err := os.ReadFile(filepath.Join(cache, "npm-axe", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Skip("no axe-core here: scripts/setup-npm.sh npm-axe installs it, with npm")
	}
	toRead, toWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromRead, fromWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	profile, err := os.MkdirTemp("", "TestChromium")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	c := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--remote-debugging-pipe", "--user-data-dir="+profile, "about:blank")
	c.ExtraFiles = []*os.File{toRead, fromWrite} // descriptors 3 and 4
	c.WaitDelay = 5 * time.Second                // processes that it started hold its output, too
	said := &bytes.Buffer{}
	c.Stderr = said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = toRead.Close(), fromWrite.Close()
	b := &chromium{t: t, ctx: ctx, out: toWrite, wait: map[int]chan json.RawMessage{}, cache: cache, checker: string(checker),
		ended: make(chan struct{})}
	go func() {
		err := c.Wait()
		b.end = fmt.Sprintf("Chromium has ended: %v\n%s", err, said)
		close(b.ended)
	}()
	go b.read(fromRead)
	t.Cleanup(func() {
		cancel()
		<-b.ended
		_, _ = toWrite.Close(), fromRead.Close()
		for range 50 { // processes that it started end after it, and write to the profile until then
			if err = os.RemoveAll(profile); err == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Log("the profile stays: ", err)
	})
	var target struct{ TargetID string }
	b.do("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.do("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	b.do("Emulation.setScrollbarsHidden", map[string]any{"hidden": true}, nil)
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.do(domain+".enable", nil, nil)
	}
	return b
}

func (b *chromium) read(f *os.File) {
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			ID     int
			Method string
			Result json.RawMessage
			Error  json.RawMessage
			Params json.RawMessage
		}
		if json.Unmarshal(line[:len(line)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if m.Method == "Log.entryAdded" || m.Method == "Runtime.exceptionThrown" {
			b.faults = append(b.faults, string(m.Params))
		}
		c := b.wait[m.ID]
		delete(b.wait, m.ID)
		b.mu.Unlock()
		if c != nil {
			if m.Error != nil {
				m.Result = json.RawMessage(`{"failed":` + string(m.Error) + `}`)
			}
			c <- m.Result
		}
	}
}

// do sends one command and decodes its result.
func (b *chromium) do(method string, params, into any) {
	b.t.Helper()
	b.mu.Lock()
	b.next++
	id, c := b.next, make(chan json.RawMessage, 1)
	b.wait[id] = c
	b.mu.Unlock()
	m := map[string]any{"id": id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, _ := json.Marshal(m)
	if _, err := b.out.Write(append(text, 0)); err != nil {
		select {
		case <-b.ended:
			b.t.Fatal(b.end)
		case <-time.After(10 * time.Second):
			b.t.Fatal(err)
		}
	}
	select {
	case r := <-c:
		if b.waits && strings.Contains(string(r), "Inspected target navigated") {
			return // until asks the next page
		}
		if strings.HasPrefix(string(r), `{"failed":`) {
			b.t.Fatalf("%s: %s", method, r)
		}
		if into != nil {
			_ = json.Unmarshal(r, into)
		}
	case <-b.ended:
		b.t.Fatalf("%s: %s", method, b.end)
	case <-time.After(time.Minute):
		b.t.Fatalf("%s: no answer in a minute", method)
	case <-b.ctx.Done():
		b.t.Fatalf("%s: no answer", method)
	}
}

// eval evaluates an expression in the page, and returns its value as text.
func (b *chromium) eval(js string) string {
	b.t.Helper()
	var r struct{ Result struct{ Value any } }
	b.do("Runtime.evaluate", map[string]any{
		"expression": js, "returnByValue": true, "awaitPromise": true, "userGesture": true,
	}, &r)
	return fmt.Sprint(r.Result.Value)
}

// until waits for an expression to be true.
func (b *chromium) until(js string) {
	b.t.Helper()
	b.waits = true
	defer func() { b.waits = false }()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if b.eval("!!("+js+")") == "true" {
			return
		}
	}
	b.t.Fatalf("not true in 30 s: %s\n%s\n%s", js, b.eval("document.body.innerText"), b.faults)
}

func (b *chromium) visit(url string) {
	b.t.Helper()
	b.do("Page.navigate", map[string]any{"url": url}, nil)
	b.until("document.readyState === 'complete' && location.href !== 'about:blank'")
}

// look sets the theme and the width of the window.
func (b *chromium) look(theme string, width int) {
	b.t.Helper()
	b.do("Emulation.setEmulatedMedia",
		map[string]any{"features": []any{map[string]string{"name": "prefers-color-scheme", "value": theme}}}, nil)
	b.do("Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
}

// shot returns the window as PNG.
func (b *chromium) shot() []byte {
	b.t.Helper()
	var shot struct{ Data string }
	b.do("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return png
}

// phone is the width of a phone's window, in CSS pixels.
const phone = 390

// inspect checks the page with axe-core, light on a desk and dark on a phone, with all details open. It also keeps a
// picture of each theme on both in .cache/pictures, or where $WALDO_PICTURES says.
func (b *chromium) inspect(name string) {
	b.t.Helper()
	dir := cmp.Or(os.Getenv("WALDO_PICTURES"), filepath.Join(b.cache, "pictures"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int{1200, phone} {
			b.look(theme, width)
			b.eval("document.querySelector('.result')?.scrollIntoView()")
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%s-%d.png", name, theme, width)), b.shot(), 0o644); err != nil {
				b.t.Fatal(err)
			}
			if wide := b.eval("document.documentElement.scrollWidth"); wide != fmt.Sprint(width) {
				b.t.Errorf("%s is %s pixels wide in a window of %d", name, wide, width)
			}
			if (theme == "light") == (width == phone) {
				continue // light on a desk and dark on a phone have every rule's cases
			}
			b.eval("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
			if found := b.axe(); found != "" {
				b.t.Errorf("%s, %s, %d pixels: %s", name, theme, width, found)
			}
			b.eval("document.querySelectorAll('details').forEach((d) => { d.open = false; })")
		}
	}
	b.do("Emulation.clearDeviceMetricsOverride", nil, nil)
}

// axe returns what axe-core finds in the page; empty: nothing.
func (b *chromium) axe() string {
	b.t.Helper()
	if b.eval("typeof axe") == "undefined" {
		b.eval(b.checker + "; 0")
	}
	return b.eval(`axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'], resultTypes: ['violations'] })
		.then((r) => (r.passes.length < 5 ? 'axe-core checked nothing ' : '') + r.violations.map((v) => v.id + ': ' + v.help + ' ' +
		v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + ' ' + n.failureSummary).join('; ')).join('\\n'))`)
}
