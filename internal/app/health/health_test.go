package health

import (
	"net"
	"testing"

	"waldo/internal/app"
	"waldo/internal/core/redact"
	"waldo/internal/model/contract"
)

// TestServers: each thing that works is ok, each other one says what is wrong, and no secret is in the text.
func TestServers(t *testing.T) {
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
	got := Servers(t.Context(), app.Place{Known: &redact.Registry{}, Config: &contract.Config{
		Servers: map[string]contract.Server{"up": {URL: up}, "down": {URL: down}, "command": {Command: []string{"x"}}},
	}})
	want := map[string]bool{"server up": true, "server down": false}
	if len(got) != len(want) {
		t.Errorf("%+v", got)
	}
	for _, a := range got {
		if ok, there := want[a.Name]; !there || a.OK != ok || a.OK != (a.Hint == "") {
			t.Errorf("%+v", a)
		}
	}
}
