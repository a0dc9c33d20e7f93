package agent

import (
	"net"
	"testing"

	"waldo/internal/app"
	"waldo/internal/app/secrets"
	"waldo/internal/core/redact"
	"waldo/internal/model/contract"
)

// TestDoctor: a model whose address answers is ok; one without a key or an answer has a hint.
func TestDoctor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	up, down := "http://"+l.Addr().String(), "http://"+gone.Addr().String()
	cfg := &contract.Config{Agent: contract.Agent{Providers: []contract.Provider{{Kind: "ollama", URL: up, Model: "up"},
		{Kind: "ollama", URL: down, Model: "down"}, {Kind: "openai", URL: up, Model: "keyless", Key: "env:HEALTH_NONE"}}}}
	known := &redact.Registry{}
	state := t.TempDir()
	got := doctor(t.Context(), app.Place{State: state, Config: cfg, Known: known,
		Secret: secrets.New(state, cfg, known, nil).Get})
	want := map[string]bool{"model 1, up": true, "model 2, down": false, "model 3, keyless": false}
	if len(got) != len(want) {
		t.Errorf("%+v", got)
	}
	for _, a := range got {
		if ok, there := want[a.Name]; !there || a.OK != ok || a.OK != (a.Hint == "") {
			t.Errorf("%+v", a)
		}
	}
}
