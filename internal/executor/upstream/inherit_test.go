package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// made launches fakes that say what they were made with, and counts those that run.
type made struct {
	*fakes
	running map[string]*atomic.Int64
}

func (l made) Launch(ctx context.Context, s contract.Server, n call.Session) (Process, error) {
	p, err := l.fakes.Launch(ctx, s, n)
	if err != nil {
		return p, err
	}
	p.Made = "the same"
	l.running[s.Name].Add(1)
	wait := p.Wait
	p.Wait = func() error { defer l.running[s.Name].Add(-1); return wait() }
	return p, nil
}

func (l made) manager(t *testing.T) *Manager {
	servers := map[string]contract.Server{}
	for name := range l.serve {
		servers[name] = contract.Server{Command: []string{name}}
	}
	m := New(servers, Options{Launcher: l, Probe: 30 * time.Second})
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// TestAStartUnderWayEndsWithItsManager: closing the last manager of a server ends a start without waiting callers,
// also if another server of the same manager goes on.
func TestAStartUnderWayEndsWithItsManager(t *testing.T) {
	asked, goOn := make(chan struct{}, 8), make(chan struct{})
	defer close(goOn)
	echo := legacy(echoTool, answers(fine))
	l := made{launchers(map[string]func(*bufio.Scanner, io.Writer){
		"goes-on": echo,
		"slow": func(in *bufio.Scanner, out io.Writer) { // it reads the first request, and never answers
			if in.Scan() {
				asked <- struct{}{}
			}
			<-goOn
		},
	}), map[string]*atomic.Int64{"goes-on": {}, "slow": {}}}
	before, after := l.manager(t), l.manager(t)
	if _, err := before.Tools(t.Context(), "goes-on"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan struct{})
	go func() { _, _ = before.Tools(ctx, "slow"); close(given) }()
	<-asked
	cancel() // the caller is cancelled; the start goes on
	<-given
	if n := after.Inherit(before, func(_ string, made []string) bool { return !slices.Contains(made, "") }); n != 1 {
		t.Fatalf("inherited %d servers, not the one that runs", n)
	}
	if n := l.running["slow"].Load(); n != 1 {
		t.Fatalf("control: %d processes are being started", n)
	}
	done := make(chan struct{})
	go func() { _ = before.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("the manager waits for a start that nobody wants")
	}
	if n := l.running["slow"].Load(); n != 0 {
		t.Errorf("%d processes of a configuration that is over still run", n)
	}
	if _, err := before.Tools(t.Context(), "slow"); !errors.Is(err, errStopped) || l.starts["slow"].Load() != 1 {
		t.Errorf("asked for once more: %v, %d starts", err, l.starts["slow"].Load())
	}
	if _, err := after.Tools(t.Context(), "goes-on"); err != nil || l.running["goes-on"].Load() != 1 ||
		l.starts["goes-on"].Load() != 1 {
		t.Errorf("control: the server that goes on: %v, %d running, %d starts", err, l.running["goes-on"].Load(),
			l.starts["goes-on"].Load())
	}
}

// TestMadeOfAStart: a server of which another process is being started is not as it was made before.
func TestMadeOfAStart(t *testing.T) {
	l := made{launchers(map[string]func(*bufio.Scanner, io.Writer){"crm": legacy(echoTool, answers(fine))}),
		map[string]*atomic.Int64{"crm": {}}}
	m := l.manager(t)
	if _, err := m.Tools(t.Context(), "crm"); err != nil {
		t.Fatal(err)
	}
	s := m.servers["crm"]
	if got := s.made(); !slices.Equal(got, []string{"the same"}) {
		t.Fatalf("control: %q", got)
	}
	s.replicas = []*server{{m: m, starting: make(chan struct{})}}
	if got := s.made(); !slices.Equal(got, []string{"the same", ""}) {
		t.Errorf("%q", got)
	}
	s.replicas = nil
}

// TestRelockAfterInherit: a lock that is accepted counts for inherited servers as well.
func TestRelockAfterInherit(t *testing.T) {
	l := made{launchers(map[string]func(*bufio.Scanner, io.Writer){"crm": legacy(echoTool, answers(fine))}),
		map[string]*atomic.Int64{"crm": {}}}
	before, after := l.manager(t), l.manager(t)
	empty := &lockfile.Lock{Servers: map[string]lockfile.Locked{"crm": {
		Command: lockfile.Command(before.servers["crm"].cfg), Name: "fake",
	}}}
	before.Relock(empty)
	after.Relock(empty)
	if tools, err := before.Tools(t.Context(), "crm"); err != nil || len(tools) != 0 {
		t.Fatalf("control: a lock without tools: %v %v", tools, err)
	}
	if n := after.Inherit(before, func(string, []string) bool { return true }); n != 1 {
		t.Fatal(n)
	}
	_ = before.Close()
	seen, err := after.Seen(t.Context(), "crm")
	if err != nil {
		t.Fatal(err)
	}
	after.Relock(&lockfile.Lock{Servers: map[string]lockfile.Locked{"crm": seen}})
	if tools, err := after.Tools(t.Context(), "crm"); err != nil || len(tools) != 1 {
		t.Errorf("%v %v", tools, err)
	}
}
