package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/engine/cpython"
	"waldo/internal/sandbox/engine/program"
	"waldo/internal/sandbox/guest"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/sandbox/pool"
)

// BenchmarkWarmEngine measures a fresh program in a process that waits for it, from the job to its facts. It has 20
// servers as globals, whose tools are found by name when they are called, so that their number costs nothing.
func BenchmarkWarmEngine(b *testing.B) {
	warm(b, guest.JavaScript, Argv, "console.log(typeof server_7.tool_1, 1)", "function 1\n")
}

// BenchmarkWarmEnginePython is the same in Python.
func BenchmarkWarmEnginePython(b *testing.B) {
	if !cpython.Available() {
		b.Skip("this program was built without Python for engine")
	}
	warm(b, guest.Python, PythonArgv, "print(server_7.tool_1, 1)", "<tool server_7.tool_1> 1\n")
}

func warm(b *testing.B, lang guest.Lang, argv []string, code, out string) {
	d := pool.New(New(Options{
		State: state(b), Within: []sandbox.Driver{namespace.New(namespace.Options{MilliCPU: 1000})},
	}),
		pool.Options{Most: 4})
	defer func() { _ = d.Close() }()
	var servers []string
	for i := range 20 {
		servers = append(servers, fmt.Sprintf("server_%d", i))
	}
	p := profile()
	p.Limits.Memory = 128 << 20
	p.Prestart = &sandbox.Prestart{Argv: argv, Env: []string{}, Prelude: program.Prelude}
	d.Keep(p, 4)
	var times []time.Duration
	for b.Loop() {
		b.StopTimer()
		for end := time.Now().Add(time.Minute); d.Ready(p) < 1 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		job, err := program.Job{Lang: lang, Servers: servers, Code: []byte(code)}.Text()
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		began := time.Now()
		sb, err := d.Start(b.Context(), p)
		if err != nil {
			b.Fatal(err)
		}
		f, err := sb.Run(b.Context(), sandbox.Command{Argv: argv, Env: []string{},
			Stdin: guest.Stdin(program.Prelude, job, nil)})
		took := time.Since(began)
		b.StopTimer()
		if err != nil || f.Status != facts.OK || f.Stdout != out || !f.Sandbox.Warm {
			b.Fatalf("%v %+v", err, f)
		}
		times = append(times, took)
		if err := sb.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2])/1e6, "p50-ms")
	b.ReportMetric(float64(times[len(times)*99/100])/1e6, "p99-ms")
}
