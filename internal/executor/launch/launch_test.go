package launch

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/secret"
	"waldo/internal/sandbox"
)

// TestEnv: a server gets the secrets that its entry names by their values, except those that egress injects. An error
// names a missing secret. The configuration's variables take precedence over those of a lasting folder.
func TestEnv(t *testing.T) {
	l := &Launcher{
		Config: &contract.Config{Secrets: map[string]contract.Secret{"injected": {Inject: &contract.Inject{}}, "plain": {}}},
		Secret: func(ref secret.Ref) (secret.Value, error) {
			if ref == "absent" {
				return secret.Value{}, errors.New("there is none")
			}
			return secret.NewValue("value of " + string(ref)), nil
		},
	}
	s := contract.Server{
		Command: []string{"npx", "@modelcontextprotocol/server-memory"},
		Data:    "d", Env: map[string]string{"OWN": "mine"}, Secrets: map[string]secret.Ref{"A": "plain", "B": "injected"},
	}
	env, err := l.env(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A=value of plain", "OWN=mine", "MEMORY_FILE_PATH=/data/memory.jsonl", "HOME=" + contract.DataAt} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is not in %q", want, env)
		}
	}
	if all := strings.Join(env, "\n"); strings.Contains(all, "value of injected") {
		t.Errorf("%q", env)
	}
	own := s
	own.Env = map[string]string{"MEMORY_FILE_PATH": "mine"}
	if env, err = l.env(own); err != nil || slices.Contains(env, "MEMORY_FILE_PATH=/data/memory.jsonl") {
		t.Errorf("%q %v", env, err)
	}
	s.Secrets["C"] = "absent"
	if _, err := l.env(s); err == nil || !strings.Contains(err.Error(), "C: there is none") {
		t.Errorf("a missing secret: %v", err)
	}
}

// TestEnded: the reason why a server ended leaves out the warnings that its sandbox had from the start.
func TestEnded(t *testing.T) {
	one := 1
	err := endedBy(facts.Facts{
		Status: facts.Failed, ExitCode: &one, Warnings: []string{facts.NoMemoryCgroup, "the disk was full"},
	}, []string{facts.NoMemoryCgroup})
	if want := "its program ended: exit status 1; the disk was full"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

// TestLaunchRefuses: a server whose program changed, or whose placement is unknown, does not start.
func TestLaunchRefuses(t *testing.T) {
	changed := errors.New("the program changed")
	var now error
	l := &Launcher{State: t.TempDir(), Config: &contract.Config{}, Unchanged: func(contract.Server) error { return now }}
	s := contract.Server{Name: "a", Command: []string{"/bin/true"}, Placement: "elsewhere"}
	if _, err := l.Launch(t.Context(), s, ""); err == nil ||
		!strings.Contains(err.Error(), "placement elsewhere is not enforced") {
		t.Errorf("an unknown placement: %v", err)
	}
	if now = changed; true {
		if _, err := l.Launch(t.Context(), s, ""); !errors.Is(err, changed) {
			t.Errorf("a changed program: %v", err)
		}
	}
}

// TestLaunchRefusesALevel: a server whose level of isolation this machine does not give does not start, in any other.
func TestLaunchRefusesALevel(t *testing.T) {
	l := &Launcher{State: t.TempDir(), Drivers: map[string]sandbox.Driver{"namespace": nil}}
	for _, level := range []string{"gvisor", ""} {
		s := contract.Server{Name: "a", Isolation: level}
		if _, err := l.inSandbox(t.Context(), s, nil, nil, nil, nil); err == nil ||
			!strings.Contains(err.Error(), "this machine does not give isolation") {
			t.Errorf("%q: %v", level, err)
		}
	}
}

// TestLimits: the configuration's limits replace the defaults one by one.
func TestLimits(t *testing.T) {
	got := limitsOf(contract.Server{Limits: contract.Limits{MemoryMB: 7, Files: 9}})
	want := serverLimits
	want.Memory, want.Files = 7<<20, 9
	if got != want {
		t.Errorf("%+v", got)
	}
}

// TestPipe: once the sandbox has made the pipe, both ends read and write it directly. Closing ends both.
func TestPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	in, out := toServer{newPipe()}, fromServer{newPipe()}
	if _, err := in.SyscallConn(); err == nil {
		t.Error("a pipe that does not exist has a file")
	}
	ended := make(chan bool, 2)
	go func() { in.use(w); ended <- true }()
	go func() { out.use(r); ended <- true }()
	if _, err := in.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if n, err := out.Read(b); err != nil || string(b[:n]) != "hello" {
		t.Errorf("%q %v", b[:n], err)
	}
	_ = in.Close()
	_ = w.Close()
	if _, err := out.Read(b); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
	<-ended
	<-ended
	if _, err := in.Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed pipe: %v", err)
	}
}

// TestDuring: after its context is done a share does nothing.
func TestDuring(t *testing.T) {
	n := 0
	ctx, cancel := context.WithCancel(t.Context())
	share := during(ctx, together(func() ([]string, error) { n++; return []string{"a"}, nil }, nil))
	if names, err := share(); err != nil || len(names) != 1 {
		t.Error(names, err)
	}
	cancel()
	if names, err := share(); err != nil || len(names) != 0 || n != 1 {
		t.Error(names, err, n)
	}
	if during(ctx, nil) != nil {
		t.Error("a share of nothing")
	}
}
