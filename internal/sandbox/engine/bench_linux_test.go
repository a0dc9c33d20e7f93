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
// servers as globals, whose tools are found by name when they are called, so that their number costs nothing. The pool
// is full and has been quiet for 10 ms, as in BenchmarkWarm of package pool.
func BenchmarkWarmEngine(b *testing.B) {
	warm(b, guest.JavaScript, Argv, 4, "console.log(typeof server_7.tool_1, 1)", "function 1\n")
}

// BenchmarkWarmEngineTypeScript is the same in TypeScript.
func BenchmarkWarmEngineTypeScript(b *testing.B) {
	warm(b, guest.TypeScript, Argv, 4, "const n: number = 1; console.log(typeof server_7.tool_1, n)", "function 1\n")
}

// BenchmarkWarmEngineRefill is the same with one program behind the other: the pool makes further processes meanwhile.
func BenchmarkWarmEngineRefill(b *testing.B) {
	warm(b, guest.JavaScript, Argv, 1, "console.log(typeof server_7.tool_1, 1)", "function 1\n")
}

// BenchmarkWarmEnginePython is the same in Python.
func BenchmarkWarmEnginePython(b *testing.B) {
	if !cpython.Available() {
		b.Skip("this program was built without Python for engine")
	}
	warm(b, guest.Python, PythonArgv, 1, "print(server_7.tool_1, 1)", "<tool server_7.tool_1> 1\n")
}

// warm measures programs. Before each, it waits until so many processes are ready; 4 are all.
func warm(b *testing.B, lang guest.Lang, argv []string, ready int, code, out string) {
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
		for end := time.Now().Add(time.Minute); d.Ready(p) < ready && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if ready == 4 {
			time.Sleep(10 * time.Millisecond)
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
	b.ReportMetric(float64(times[len(times)/10])/1e6, "p10-ms")
	b.ReportMetric(float64(times[len(times)/2])/1e6, "p50-ms")
	b.ReportMetric(float64(times[len(times)*99/100])/1e6, "p99-ms")
}
