//go:build linux && (amd64 || arm64)

package gvisor

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"waldo/internal/sandbox"
)

func profile() sandbox.Profile {
	return sandbox.Profile{ID: "s_test", Template: sandbox.Template{Name: "host"},
		Limits: sandbox.Limits{Wall: 10 * time.Second, CPU: 5 * time.Second, Memory: 256 << 20, Pids: 32, Files: 64, Disk: 16 << 20, Inodes: 500, Output: 100 << 10},
		Tmpfs:  []sandbox.Tmpfs{{Target: "/tmp", Bytes: 16 << 20, Inodes: 500}, {Target: "/workspace/output", Bytes: 16 << 20, Inodes: 500, Export: true}}}
}

func TestTry(t *testing.T) {
	d := New(Options{State: t.TempDir()})
	t0 := time.Now()
	b, err := d.Start(t.Context(), profile())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	fmt.Println("start", time.Since(t0))
	argv := []string{"python3", "-c", os.Getenv("CODE")}
	if os.Getenv("ARGV0") != "" {
		argv = []string{os.Getenv("ARGV0")}
	}
	for range 2 {
		t0 = time.Now()
		f, err := b.Run(t.Context(), sandbox.Command{Argv: argv, Env: []string{"PATH=/usr/bin:/bin"}})
		j, _ := json.Marshal(f)
		fmt.Println(time.Since(t0), string(j), err)
	}
}
