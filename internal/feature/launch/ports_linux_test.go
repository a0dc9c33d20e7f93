package launch

import (
	"errors"
	"net"
	"testing"

	"waldo/internal/app"
	"waldo/internal/core/audit"
	"waldo/internal/executor/runner"
	"waldo/internal/model/call"
	"waldo/internal/sandbox"
	"waldo/internal/storage/database"
)

type still struct{ sandbox.Sandbox }

func (still) Abilities() sandbox.Abilities { return sandbox.Abilities{PID: func() int { return 0 }} }

type nowhere struct{ sandbox.Driver }

func (nowhere) Reach(int) (sandbox.Reach, error) {
	return nil, errors.New("the sandbox is no real one")
}

// TestUnrecordedPort: a port that the log cannot record is closed. The control is the same port with a log.
func TestUnrecordedPort(t *testing.T) {
	dir := t.TempDir()
	s, err := database.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	log, err := audit.Open(t.Context(), audit.Dir(dir), audit.Options{Heads: s})
	if err != nil {
		t.Fatal(err)
	}
	h := &app.App{Storage: &app.Storage{Log: log}, Runner: &runner.Runner{},
		Drivers: map[string]sandbox.Driver{"": nowhere{}}}
	for _, recorded := range []bool{true, false} {
		if !recorded {
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
		}
		p := plan{asked: asked{ports: [][2]uint16{{3000, 0}}}}
		all, err := p.listen(t.Output())
		if err != nil {
			t.Fatal(err)
		}
		over := all.forward(t.Context(), h, call.Call{}, p, still{})
		conn, err := net.Dial("tcp4", all[0].at[0].Addr().String())
		if (err == nil) != recorded {
			t.Errorf("recorded %t: %v", recorded, err)
		}
		if err == nil {
			conn.Close()
		}
		over()
	}
}
