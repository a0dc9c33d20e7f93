package upstream

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/executor/upstream/bounds"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// safely is a buffer that a logger may write to while a test reads it.
type safely struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safely) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *safely) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A server that sends unsolicited messages without pause is stopped early. The operator gets the reason once; the
// call under way and the next one fail with it. A server that sends a lot and then answers is not stopped.
func TestFlood(t *testing.T) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`,
		`{"jsonrpc":"2.0","id":77777,"result":{}}`,
		`no message at all`,
	} {
		for _, most := range []int{bounds.Burst / 4, 100 * bounds.Burst} {
			t.Run(fmt.Sprint(line, most), func(t *testing.T) {
				var wrote, changed atomic.Int64
				f := launchers(map[string]func(*bufio.Scanner,
					io.Writer){"s": legacy(echoTool, func(r request, out io.Writer) string {
					text := line
					if strings.Contains(line, "%s") {
						text = fmt.Sprintf(line, r.ID)
					}
					for range most {
						if _, err := io.WriteString(out, text+"\n"); err != nil {
							return ""
						}
						wrote.Add(1)
					}
					return fine
				})})
				log := &safely{}
				m := manager(t, f, Options{Watcher: toolCount{n: &changed}, Log: slog.New(slog.NewTextHandler(log, nil))})
				begun := time.Now()
				o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{}))
				if n := changed.Load(); n > 2+int64(time.Since(begun)/bounds.FirstPace) ||
					strings.Contains(line, "list_changed") && n == 0 {
					t.Errorf("told %d times of a change in %s", n, time.Since(begun))
				}
				if most < bounds.Burst {
					if text(o) != "fine" || wrote.Load() != int64(most) || strings.Contains(log.String(), "stopped") {
						t.Errorf("control: %q after %d: %s", text(o), wrote.Load(), log)
					}
					return
				}
				paid := int64(bounds.Rate * time.Since(begun).Seconds())
				if n := wrote.Load(); n > 2*bounds.Burst+paid { // some are read while it is being stopped
					t.Errorf("%d messages were read", n)
				}
				if o.Facts.Status != facts.Failed ||
					!strings.Contains(text(o), "not available: it was stopped, since it sent messages without pause") {
					t.Errorf("the call under way: %s %q", o.Facts.Status, text(o))
				}
				m.servers["s"].mu.Lock()
				m.servers["s"].failedAt = time.Now() // so that it rests, however busy the machine is
				m.servers["s"].mu.Unlock()
				o = execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{}))
				if got := text(o); !strings.Contains(got, "it was stopped, since it sent") ||
					!strings.Contains(got, "Try again in ") || !strings.Contains(got, "The call was not made.") {
					t.Errorf("the next call: %q", got)
				}
				if n := f.starts["s"].Load(); n != 1 {
					t.Errorf("started %d times", n)
				}
				if n := strings.Count(log.String(), `level=WARN msg="server stopped" server=s error="it was stopped`); n != 1 {
					t.Errorf("the operator reads of it %d times: %s", n, log)
				}
			})
		}
	}
}
