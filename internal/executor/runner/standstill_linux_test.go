package runner

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"waldo/internal/budget"
	"waldo/internal/frontend/bridge"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/testing/pipelinetest"
)

// waitingTool makes the calls of crm.get wait for a human. It returns the channels of their starts, and of the answers.
func waitingTool(t *testing.T, r *Runner, stands bool) (asked chan string, answers chan call.Result) {
	t.Helper()
	asked, answers = make(chan string, 8), make(chan call.Result, 8)
	tool := call.Tool{Capability: "crm.get"}
	b := bridge.New("test", &pipelinetest.Program{
		Has: []call.Tool{tool},
		OnCall: func(ctx context.Context, c call.Call) (call.Result, error) {
			over := call.Wait(ctx)
			defer over()
			asked <- c.ID
			select {
			case a := <-answers:
				return a, nil
			case <-ctx.Done():
				return call.Result{Status: facts.Cancelled, Facts: facts.New()}, nil
			}
		},
	}, budget.New(budget.Limits{Memory: 32 << 20, Each: 100, Wait: time.Minute}))
	r.Bridge = bridged(func(
		ctx context.Context, run call.Call, conn net.Conn, p *call.Suspension,
	) func() facts.SideEffect {
		if !stands {
			p = nil
		}
		return b.Open(ctx, run, conn, p)
	})
	return asked, answers
}

// busy has a thread that computes without end, beside a call that waits. It has begun when the call is made.
const busy = `
import threading
x = 0
def burn():
    global x
    while True: x += 1
threading.Thread(target=burn, daemon=True).start()
while not x: pass
`

// freezes skips the test if this machine cannot freeze a sandbox.
func freezes(t *testing.T, r *Runner) {
	t.Helper()
	asked, answers := waitingTool(t, r, true)
	go func() {
		<-asked
		time.Sleep(3 * freezeAfter)
		answers <- call.Result{Status: facts.OK, Content: []call.Content{call.Text("yes")}, Facts: facts.New()}
	}()
	f := do(t, r, "run_python", "code", `print(crm.get())`).Facts
	if f.Stdout != "yes\n" {
		t.Fatalf("%+v", f)
	}
	for _, w := range f.Warnings {
		if strings.Contains(w, "not frozen") {
			t.Skip(w)
		}
	}
}

// TestStandstill: a program is frozen while its only call waits for a human, and continues with the answer.
func TestStandstill(t *testing.T) {
	r, _ := real(t)
	freezes(t, r)
	const wait = 3 * time.Second
	spent := map[bool]float64{}
	for _, stands := range []bool{false, true} {
		asked, answers := waitingTool(t, r, stands)
		go func() {
			<-asked
			time.Sleep(wait)
			answers <- call.Result{Status: facts.OK, Content: []call.Content{call.Text("yes")}, Facts: facts.New()}
		}()
		f := do(t, r, "run_python", "code", busy+"y = crm.get()\nprint(y, x > 0)").Facts
		if f.Status != facts.OK || f.Stdout != "yes True\n" || f.Usage.WallMS < 3000 {
			t.Fatalf("stands %t: %+v", stands, f)
		}
		spent[stands] = f.Usage.CPUMS
	}
	t.Logf("processor time while a human is asked for %v: %.0f ms, frozen %.0f ms", wait, spent[false], spent[true])
	if spent[false] < 300 {
		t.Skip("control: this machine had no time for the program")
	}
	if spent[true] > spent[false]/2 {
		t.Errorf("a frozen program took %.0f ms of processor time, another %.0f", spent[true], spent[false])
	}
}

// TestStandstillBeside: a call that waits freezes nothing while another is under way, and both end.
func TestStandstillBeside(t *testing.T) {
	r, _ := real(t)
	freezes(t, r)
	asked, answers := waitingTool(t, r, true)
	go func() {
		<-asked
		<-asked
		time.Sleep(3 * freezeAfter)
		for _, text := range []string{"one", "two"} {
			answers <- call.Result{Status: facts.OK, Content: []call.Content{call.Text(text)}, Facts: facts.New()}
			time.Sleep(3 * freezeAfter)
		}
	}()
	f := do(t, r, "run_python", "code",
		"import asyncio\nprint(*sorted(str(r) for r in await asyncio.gather(crm.get(id=1), crm.get(id=2))))").Facts
	if f.Status != facts.OK || f.Stdout != "one two\n" {
		t.Errorf("%+v", f)
	}
}

// TestStandstillEnds: a frozen program ends with its call, and at the bound of the wait it gets a plain error.
func TestStandstillEnds(t *testing.T) {
	r, _ := real(t)
	freezes(t, r)
	asked, answers := waitingTool(t, r, true)
	a, err := call.ArgsOf(map[string]any{"code": busy + "crm.get()"})
	if err != nil {
		t.Fatal(err)
	}
	g, _ := allowed(t, "run_python", string(a.Raw()), func(c *contract.Contract) { c.Filesystem = contract.WorkspaceOnly })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		time.Sleep(3 * freezeAfter)
		cancel()
	}()
	began := time.Now()
	out, err := r.Execute(ctx, g)
	if err != nil || out.Facts.Status != facts.Cancelled || time.Since(began) > 20*time.Second {
		t.Errorf("cancelled while frozen: %v %+v", err, out.Facts)
	}
	go func() {
		<-asked
		time.Sleep(3 * freezeAfter)
		answers <- call.Result{Status: facts.Waiting, IsError: true, ApprovalID: "a_1", Facts: facts.New(),
			Why: []call.Reason{{Code: "contract.ask", Text: "approval: always"}}}
	}()
	f := do(t, r, "run_python", "code", "try: print(crm.get())\nexcept Waiting as e: print(e.approval_id, e)").Facts
	if f.Status != facts.OK || !strings.HasPrefix(f.Stdout, "a_1 crm.get: waits for the approval of a human, a_1;") {
		t.Errorf("at the bound: %+v", f)
	}
}
