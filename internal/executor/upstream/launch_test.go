package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// crowd counts how many servers are started at once.
type crowd struct{ now, most, all atomic.Int64 }

func (c *crowd) Launch(context.Context, contract.Server, call.Session) (Process, error) {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	c.all.Add(1)
	time.Sleep(20 * time.Millisecond)
	return Process{}, errors.New("no")
}

// Servers are started side by side, and no more than maxLaunches at once.
func TestStartsAreBounded(t *testing.T) {
	servers := map[string]contract.Server{}
	for i := range 5 * maxLaunches {
		servers[fmt.Sprint("s", i)] = contract.Server{Command: []string{"x"}}
	}
	c := &crowd{}
	m := New(servers, Options{Launcher: c})
	defer m.Close()
	var wg sync.WaitGroup
	for name := range servers {
		wg.Go(func() { _, _ = m.Tools(context.Background(), name) })
	}
	wg.Wait()
	if c.all.Load() != int64(len(servers)) || c.most.Load() < 2 || c.most.Load() > maxLaunches {
		t.Errorf("%d of %d were started, %d at once", c.all.Load(), len(servers), c.most.Load())
	}
}
