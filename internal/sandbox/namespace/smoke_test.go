//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"testing"
	"time"

	"waldo/internal/sandbox"
)

func profile() sandbox.Profile {
	return sandbox.Profile{ID: "s_test", Template: sandbox.Template{Name: "host"},
		Tmpfs:  []sandbox.Tmpfs{{Target: "/tmp", Bytes: 64 << 20, Inodes: 1000}},
		Limits: sandbox.Limits{Wall: 10 * time.Second, CPU: 5 * time.Second, Memory: 512 << 20, Pids: 64, Files: 64, Disk: 64 << 20, Inodes: 1000, Output: 200 << 10}}
}

func TestSmoke(t *testing.T) {
	d := New(Options{})
	b, err := d.Start(context.Background(), profile())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for range 3 {
		f, err := b.Run(context.Background(), sandbox.Command{Argv: []string{"python3", "-c", "print(1)"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", f)
		if f.Stdout != "1\n" {
			t.Fatal("no")
		}
	}
}
