package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/app/configfile"
	"waldo/internal/app/control"
	"waldo/internal/core/broker"
	"waldo/internal/core/policy"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/strictjson"
)

// opened opens an application with a configuration file that the test can rewrite.
func opened(t *testing.T, config string) (h *App, file string) {
	t.Helper()
	dir := t.TempDir()
	file = filepath.Join(dir, "waldo.yaml")
	rewrite(t, file, config)
	h, err := New(t.Context(), Options{State: filepath.Join(dir, "state"), Source: configfile.Source{Config: file}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	h.TakesReloads(func(*App) error { return nil })
	return h, file
}

func rewrite(t *testing.T, file, config string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRunAtAWorker: a run can go on at a worker after the time of its contract. Another call cannot.
func TestRunAtAWorker(t *testing.T) {
	h, _ := opened(t, "version: 1\nservers: {notes: {command: [notes], placement: outside}}\ncapabilities:\n"+
		"  notes.put: {mode: write, approval: none, timeout_seconds: 2}\n"+
		"  run_python: {mode: write, approval: none, timeout_seconds: 2}\n")
	of := func() string {
		return fmt.Sprint(h.lives.contract("notes.put").Timeout, h.lives.contract("run_python").Timeout)
	}
	if got := of(); got != "2s 2s" {
		t.Errorf("control: %s", got)
	}
	h.Config.Workers = &contract.Workers{Wait: 5 * time.Second}
	if got := of(); got != "2s 17s" {
		t.Errorf("with workers: %s", got)
	}
}

// A waldo serve that read its configuration after an order to reload answers the order, and does not reload.
func TestAnOrderOfBeforeTheStart(t *testing.T) {
	h, _ := opened(t, "version: 1\n")
	for _, row := range []struct {
		why     string
		o       control.Order
		reloads bool
	}{
		{"before the start", control.Order{ID: "o_1", At: h.began.Add(-time.Second)}, false},
		{"control: after the start", control.Order{ID: "o_2", At: h.began.Add(time.Second)}, true},
	} {
		r := h.attendant.Renew(t.Context(), row.o)
		if !r.Serves || r.Said == "" || r.Kept != "" || (h.lives.inForce() != h) != row.reloads {
			t.Errorf("%s: %+v, another application: %v", row.why, r, h.lives.inForce() != h)
		}
	}
}

// An earlier application closes after its last call ends, and not before.
func TestAnEarlierApplicationLastsAsLongAsItsCalls(t *testing.T) {
	h, file := opened(t, "version: 1\n")
	first, done := h.lives.Enter()
	closed := make(chan struct{})
	h.closers = append(h.closers, func() error { close(closed); return nil })
	rewrite(t, file, "version: 1\nredaction: {}\n")
	if r := h.attendant.Renew(t.Context(), control.Order{}); r.Kept != "" {
		t.Fatal(r.Kept)
	}
	now, over := h.lives.Enter()
	over()
	if first != h || now == h || len(h.lives.All()) != 2 {
		t.Fatal("a call does not enter the application in force")
	}
	select {
	case <-closed:
		t.Fatal("an application was closed over a call")
	case <-time.After(50 * time.Millisecond):
	}
	done()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("an application whose calls are over stays open")
	}
}

// watcher follows no step of a call.
type watcher struct{ closed atomic.Int64 }

func (w *watcher) Begin(call.Call) broker.Trail { return nil }

// The observer of the first configuration follows the calls of later ones, and closes with waldo.
func TestObserverStays(t *testing.T) {
	w := &watcher{}
	file := filepath.Join(t.TempDir(), "waldo.yaml")
	rewrite(t, file, "version: 1\n")
	h, err := New(t.Context(), Options{State: t.TempDir(), Source: configfile.Source{Config: file},
		Openers: []Opener{func(h *App) (Running, error) {
			if h.InForce() != h {
				return Running{}, nil
			}
			return Running{Observer: w, Close: func() error { w.closed.Add(1); return nil }}, nil
		}}})
	if err != nil {
		t.Fatal(err)
	}
	h.TakesReloads(func(*App) error { return nil })
	rewrite(t, file, "version: 1\nredaction: {}\n")
	if r := h.attendant.Renew(t.Context(), control.Order{}); r.Kept != "" || h.InForce() == h {
		t.Fatal(r.Kept)
	}
	time.Sleep(50 * time.Millisecond) // an application without calls closes at once
	if n := w.closed.Load(); n != 0 || h.InForce().Broker.Observer != w {
		t.Errorf("after a reload: closed %d times, follows: %v", n, h.InForce().Broker.Observer)
	}
	if err := h.Close(); err != nil || w.closed.Load() != 1 {
		t.Errorf("at the end: closed %d times, %v", w.closed.Load(), err)
	}
}

// A refused reload reports the reason and changes nothing.
func TestReloadRefuses(t *testing.T) {
	const good = "version: 1\n"
	for _, row := range []struct{ why, config, want string }{
		{"control: another configuration is taken", "version: 1\nredaction: {}\n", ""},
		{"an unknown key", "version: 1\nnope: 1\n", "key.unknown"},
		{"a secret that is nowhere", "version: 1\nservers: {s: {url: 'https://s.example', auth: {bearer: " +
			"'env:WALDO_NOT_SET'}}}\n",
			"secret.missing: secret env:WALDO_NOT_SET"},
	} {
		t.Run(row.why, func(t *testing.T) {
			h, file := opened(t, good)
			rewrite(t, file, row.config)
			r := h.attendant.Renew(t.Context(), control.Order{})
			if row.want == "" && r.Kept != "" || !strings.Contains(r.Kept, row.want) {
				t.Errorf("kept: %q", r.Kept)
			}
			if took := h.lives.inForce() != h; took != (row.want == "") {
				t.Errorf("in force is another: %v", took)
			}
		})
	}
	t.Run("where it cannot be served", func(t *testing.T) {
		h, _ := opened(t, good)
		h.TakesReloads(func(next *App) error { _, err := listenOn("0.0.0.0:0", next.Config.Gateway); return err })
		if r := h.attendant.Renew(t.Context(), control.Order{}); !strings.Contains(r.Kept, "needs gateway.auth") ||
			h.lives.inForce() != h {
			t.Errorf("kept: %q", r.Kept)
		}
	})
}

// waldo serve accepts only the lock that an order names: not another file, and not a replacement with another digest.
func TestOnlyTheAcceptedLockIsTaken(t *testing.T) {
	h, _ := opened(t, "version: 1\n")
	file, err := filepath.Abs(h.lockFile())
	if err != nil {
		t.Fatal(err)
	}
	content := []byte(`{"version":1,"servers":{}}`)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		why          string
		o            control.Order
		serves, kept bool
	}{
		{"control", control.Order{File: file, Lock: strictjson.Digest(content)}, true, false},
		{"another lock is in its place", control.Order{File: file, Lock: strictjson.Digest([]byte("other"))}, true, true},
		{"no digest", control.Order{File: file}, true, true},
		{"older than this process, which read the lock later", control.Order{ID: "o_1", File: file}, true, false},
		{"another configuration's", control.Order{File: file + ".other", Lock: strictjson.Digest(content)}, false, false},
	} {
		if r := h.attendant.Relock(t.Context(), row.o); r.Serves != row.serves || (r.Kept != "") != row.kept {
			t.Errorf("%s: %+v", row.why, r)
		}
	}
}

// The policy reads a tool's annotations in the lock that was taken last.
func TestTheTakenLockRenewsAnnotations(t *testing.T) {
	h, _ := opened(t, "version: 1\nservers:\n  s: {command: [x]}\ncapabilities:\n  s.wipe: {mode: write, "+
		"approval: none}\n")
	explained := func() policy.Decision { return h.Policy.Explain(call.Call{Capability: "s.wipe"}) }
	if d := explained(); d.Effect != policy.Allow {
		t.Fatalf("control: %+v", d)
	}
	file, err := filepath.Abs(h.lockFile())
	if err != nil {
		t.Fatal(err)
	}
	def, err := strictjson.Parse([]byte(`{"name":"wipe","inputSchema":{"type":"object"},` +
		`"annotations":{"destructiveHint":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	content := []byte(`{"version":1,"servers":{"s":{"command":"c","name":"s","tools":{"wipe":"` + def.Digest() +
		`"},"definitions":{"wipe":` + string(def.Raw()) + `}}}}`)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := h.relock(t.Context(), control.Order{File: file, Lock: strictjson.Digest(content)}); r.Kept != "" || !r.Serves {
		t.Fatalf("%+v", r)
	}
	if d := explained(); d.Effect != policy.Ask {
		t.Errorf("%+v", d)
	}
}

// New definitions that a waldo serve stored appear for their server only, under their own names. They never replace a
// definition that the server lists.
func TestAppearedTools(t *testing.T) {
	h, _ := opened(t, "version: 1\n")
	put := func(row string) {
		if err := h.Store.Put(t.Context(), appearedBucket, h.appearedKey("s"), row); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		why, row string
		want     int
	}{
		{"control", `{"command":"c","tools":{"late":{"name":"late"}}}`, 2},
		{"started otherwise", `{"command":"other","tools":{"late":{"name":"late"}}}`, 1},
		{"under another name", `{"command":"c","tools":{"late":{"name":"send"}}}`, 1},
		{"the server lists it", `{"command":"c","tools":{"own":{"name":"own","description":"x"}}}`, 1},
		{"not readable", `{`, 1},
	} {
		put(row.row)
		now := lockfile.Locked{
			Command: "c", Tools: map[string]string{"own": "sha256:1"}, Definitions: map[string]strictjson.Value{},
		}
		if err := h.withAppeared(t.Context(), "s", &now); err != nil || len(now.Tools) != row.want ||
			now.Tools["own"] != "sha256:1" {
			t.Errorf("%s: %v %v", row.why, now.Tools, err)
		}
	}
}
