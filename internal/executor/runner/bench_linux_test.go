package runner

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/gvisor"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/sandbox/pool"
	"waldo/internal/testing/sandboxtest"
)

func BenchmarkRun(b *testing.B) {
	for _, row := range []struct {
		name       string
		capability call.Capability
		args       string
	}{
		{"shell", "run_shell", `{"command":"true"}`},
		{"python", "run_python", `{"code":"print(1)"}`},
		{"python and a tool", "run_python", `{"code":"crm.get()"}`},
		{"python and 1000 calls", "run_python", `{"code":"for i in range(1000): crm.get()"}`},
		{"javascript", "run_javascript", `{"code":"console.log(1)"}`},
		{"typescript", "run_typescript", `{"code":"console.log(1 as number)"}`},
	} {
		b.Run(row.name, func(b *testing.B) {
			r, _ := real(b)
			for b.Loop() {
				g, _ := allowed(b, row.capability, row.args)
				if out, err := r.Execute(context.Background(), g); err != nil || out.IsError {
					b.Fatal(err, out)
				}
			}
		})
	}
}

// BenchmarkServed is a call as `waldo serve` makes it, from its grant to its outcome, with a bridge and a workspace.
// It uses a prewarmed sandbox, and runs the bare interpreter in the same minute for comparison.
func BenchmarkServed(b *testing.B) {
	const (
		python = "/usr/bin/python3"
		node   = "/usr/bin/node"
	)
	quick, strong := 20*time.Millisecond, 1500*time.Millisecond // a VM takes longer to start and end
	for _, row := range []struct {
		name, level string
		capability  call.Capability
		code        string
		bare        []string
		idle        time.Duration
	}{
		{"python", "namespace", "run_python", "print(1)", []string{python, "-c", "print(1)"}, quick},
		{"javascript", "namespace", "run_javascript", "console.log(1)", []string{node, "-e", "console.log(1)"}, quick},
		{"typescript", "namespace", "run_typescript", "const n: number = 1; console.log(n)",
			[]string{node, "-e", "console.log(1)"}, quick},
		{"javascript and a tool", "namespace", "run_javascript", "await crm.get({}); console.log(1)",
			[]string{node, "-e", "console.log(1)"}, quick},
		{"gVisor, python", "gvisor", "run_python", "print(1)", []string{python, "-c", "print(1)"}, strong},
		{"gVisor, javascript", "gvisor", "run_javascript", "console.log(1)", []string{node, "-e", "console.log(1)"}, strong},
	} {
		b.Run(row.name, func(b *testing.B) {
			if _, err := os.Stat(row.bare[0]); err != nil {
				b.Skip(err)
			}
			r, _ := real(b)
			var d sandbox.Driver = namespace.New(namespace.Options{MilliCPU: 1000})
			if row.level == "gvisor" {
				d = gvisor.New(gvisor.Options{State: b.TempDir(), MilliCPU: 1000})
			}
			p := pool.New(d, pool.Options{Most: 2, Failed: func(err error) { b.Error(err) }})
			defer p.Close()
			r.Warm, r.Drivers = true, map[string]sandbox.Driver{"namespace": p}
			a, err := call.ArgsOf(map[string]any{"code": row.code})
			if err != nil {
				b.Fatal(err)
			}
			files := func(c *contract.Contract) { c.Filesystem = contract.WorkspaceOnly }
			_, decision := allowed(b, row.capability, string(a.Raw()), files)
			var bare, warm []float64
			measure := func(to *[]float64, f func()) {
				began := time.Now()
				f()
				*to = append(*to, float64(time.Since(began).Microseconds())/1000)
			}
			for range b.N {
				measure(&bare, func() {
					c := exec.Command(row.bare[0], row.bare[1:]...)
					c.Env = []string{"PATH=/usr/bin:/bin"}
					if out, err := c.Output(); err != nil || string(out) != "1\n" {
						b.Fatal(err, string(out))
					}
				})
				expected(b, r, p, decision)
				time.Sleep(row.idle)
				g, _ := allowed(b, row.capability, string(a.Raw()), files)
				measure(&warm, func() {
					out, err := r.Execute(context.Background(), g)
					if err != nil || !out.Facts.Sandbox.Warm || out.Facts.Stdout != "1\n" {
						b.Fatal(err, out)
					}
				})
			}
			sandboxtest.Report(b, bare, warm)
		})
	}
}

// expected waits until two sandboxes for calls like the decided one are ready.
func expected(b *testing.B, r *Runner, p *pool.Driver, like policy.Decision) {
	b.Helper()
	if err := r.Expect(like, 2); err != nil {
		b.Fatal(err)
	}
	j, why := r.job(like, Options{})
	if why != nil {
		b.Fatal(why)
	}
	ws, err := r.open(like, Options{}, j)
	if err != nil {
		b.Fatal(err)
	}
	defer ws.Close()
	kind := r.profile(like, Options{}, ws)
	kind.Prestart = j.ahead(Options{}, like.Call.Principal)
	for end := time.Now().Add(time.Minute); p.Ready(kind) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.Fatal("no sandboxes get ready")
		}
	}
}
