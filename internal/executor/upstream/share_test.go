package upstream

import (
	"bufio"
	"context"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// TestSharingHasTheTimeOfTheCall: files that cannot be shared in time hold no call for longer than it may take.
func TestSharingHasTheTimeOfTheCall(t *testing.T) {
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){
		"crm": legacy(`[{"name":"get","inputSchema":{"type":"object"}}]`,
			answers(`{"content":[{"type":"text","text":"ok"}]}`)),
	})
	open := make(chan struct{})
	var shares atomic.Int64
	f.share = func() ([]string, error) {
		if shares.Add(1) > 2 {
			<-open
		}
		return []string{"output/left"}, nil
	}
	m := manager(t, f, Options{})
	o := execute(t, context.Background(), m, decision(t, "crm.get", `{}`, contract.Contract{}))
	if text(o) != "ok" || !slices.Equal(o.Facts.Files.Artifacts, []string{"output/left"}) {
		t.Fatalf("control: %q %+v", text(o), o.Facts)
	}
	began := time.Now()
	for range 2 { // the second waits for the first one's share, and no longer either
		o = execute(t, context.Background(), m, decision(t, "crm.get", `{}`, contract.Contract{Timeout: time.Second}))
		if o.Facts.Status == facts.OK && !strings.Contains(strings.Join(o.Facts.Warnings, ""), "listed or shared") {
			t.Errorf("%q %+v", text(o), o.Facts)
		}
	}
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("two calls of a second each took %v", took)
	}
	close(open)
}
