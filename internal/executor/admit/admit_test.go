package admit

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/budget"
	"waldo/internal/config"
	"waldo/internal/model/contract"
)

// TestRoom: waldo.yaml limits the number of live sandboxes, and a run beyond the limit gets the reason.
func TestRoom(t *testing.T) {
	file := filepath.Join(t.TempDir(), "meminfo")
	if err := os.WriteFile(file, []byte("MemTotal:        4194304 kB\nMemFree: 1 kB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := totalMemory(file); got != 4<<30 {
		t.Errorf("total memory is %d", got)
	}
	if l := Limits(contract.Sandboxes{}); l.Each != perPrincipal || l.Wait != roomWait || l.Memory <= 0 {
		t.Errorf("without a word: %+v", l)
	}
	cfg, problems := config.Parse("waldo.yaml",
		[]byte("version: 1\nsandboxes: {memory_percent: 50, per_principal: 2, wait: 10ms}\n"))
	if cfg == nil {
		t.Fatal(problems)
	}
	l := Limits(cfg.Sandboxes)
	if half := Limits(contract.Sandboxes{MemoryPercent: 100}).Memory / 2; l.Each != 2 || l.Wait != 10*time.Millisecond ||
		l.Memory-half > 100 || half-l.Memory > 100 {
		t.Errorf("as it says: %+v", l)
	}
	l.Memory = 100
	g := budget.New(l)
	leave, why := Sandbox(context.Background(), g, "os:1", 50, true)
	if why != nil {
		t.Fatalf("control: %v", why)
	}
	if _, why := Sandbox(context.Background(), g, "os:2", 50, false); why != nil {
		t.Fatalf("control: without patience there is room too: %v", why)
	}
	for _, patience := range []bool{true, false} {
		if _, why := Sandbox(context.Background(), g, "os:3", 1, patience); why == nil || why.Code != "sandbox.busy" {
			t.Errorf("patience %v: %+v", patience, why)
		} else if patience && !strings.Contains(why.Text, "sandboxes.memory_percent") {
			t.Error(why.Text)
		}
	}
	leave()
	if _, why := Sandbox(context.Background(), g, "os:3", 1, true); why != nil {
		t.Error(why)
	}
}
