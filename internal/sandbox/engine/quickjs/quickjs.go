// Package quickjs runs JavaScript in QuickJS, compiled to WebAssembly, on wazero. One Machine is one interpreter with a
// linear memory of its own. Its code reaches nothing but the functions of its Host. A Machine can be written to bytes
// between two calls and continued from them elsewhere, also with promises that are pending.
package quickjs

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// module is quickjs.wasm of the npm package quickjs-wasi 3.6.2, 637 KB: QuickJS-NG and a thin layer of C. Both are
// under the MIT licence (LICENSE.quickjs, LICENSE.quickjs-wasi). scripts/quickjs.sh fetches it, by its digest.
//
//go:embed quickjs.wasm
var module []byte

// Digest is the SHA-256 of the module, in hexadecimal.
var Digest = sync.OnceValue(func() string { sum := sha256.Sum256(module); return hex.EncodeToString(sum[:]) })

const page = 64 << 10 // bytes of a page of WebAssembly memory

// MinMemory is the least memory of a Machine, in bytes: the module's own data and a small script.
const MinMemory = 4 << 20

// maxStack is the stack of one Machine's code, in bytes. The module's stack has 1 MiB; native frames need the rest.
const maxStack = 512 << 10

// Errors of a Machine. After ErrInterrupted and ErrBroken it must not be used any more.
var (
	ErrInterrupted = errors.New("the program was interrupted")
	ErrBroken      = errors.New("the interpreter failed")
)

// Thrown is an exception that the code did not catch. The code chose its texts.
type Thrown struct{ Name, Text, Stack string }

func (t *Thrown) Error() string {
	if t.Name == "" {
		return t.Text
	}
	return t.Name + ": " + t.Text
}

// Arg is an argument of a call of the host: a text in UTF-8 (with lone surrogates, if the code made some), or the bytes
// of an ArrayBuffer. It is a view of the Machine's memory, valid until the function returns.
type Arg []byte

// Value is a result of a host function: nil (undefined), Text or Bytes.
type Value interface{ value() }

// Text and Bytes are values of a host function.
type (
	Text  string
	Bytes []byte
)

func (Text) value()  {}
func (Bytes) value() {}

// Host has the functions that a Machine's code can call. Each is bounded, since the code calls it with anything.
type Host struct {
	// Call answers host.call(name, …) of the code.
	Call func(name string, args []Arg) Value
	// Module returns the source of a module that the code imports by its full name.
	Module func(name string) (source string, err error)
	// Resolve returns the full name of a module that one imports by a name.
	Resolve func(from, name string) (string, error)
	// Now is the wall clock, in nanoseconds since 1970.
	Now func() int64
	// Random fills b.
	Random func(b []byte)
}

// Engine is the compiled module. It is safe for concurrent use.
type Engine struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	pages    uint32
}

// New compiles the module for machines of at most so many bytes of memory each. In cache, a folder that only waldo
// writes to, it looks for the machine code of an earlier New; empty: it compiles in memory.
func New(ctx context.Context, memory int64, cache string) (*Engine, error) {
	if memory < MinMemory {
		return nil, fmt.Errorf("quickjs: %d bytes of memory: at least %d are needed", memory, MinMemory)
	}
	e := &Engine{pages: uint32(min(memory/page, 1<<15))} // pointers of QuickJS are signed in places
	// WithCloseOnContextDone would check for the end in every loop, which makes QuickJS seven times slower.
	config := wazero.NewRuntimeConfig().WithMemoryLimitPages(e.pages).WithDebugInfoEnabled(false).
		WithMemoryCapacityFromMax(true) // growth never copies; the system gives memory when it is used
	if cache != "" {
		c, err := wazero.NewCompilationCacheWithDir(cache)
		if err != nil {
			return nil, fmt.Errorf("quickjs: the folder of compiled code: %w", err)
		}
		config = config.WithCompilationCache(c)
	}
	e.runtime = wazero.NewRuntimeWithConfig(ctx, config)
	if err := imports(ctx, e.runtime); err != nil {
		return nil, errors.Join(fmt.Errorf("quickjs: %w", err), e.Close(ctx))
	}
	var err error
	if e.compiled, err = e.runtime.CompileModule(ctx, module); err != nil {
		return nil, errors.Join(fmt.Errorf("quickjs: %w", err), e.Close(ctx))
	}
	return e, nil
}

// Close ends all machines.
func (e *Engine) Close(ctx context.Context) error { return e.runtime.Close(ctx) }

// Machine is one interpreter. It is for one goroutine; Interrupt alone is for any.
type Machine struct {
	host    Host
	mod     api.Module
	ctx     context.Context
	fn      [maxDepth]map[string]api.Function
	depth   int    // calls that are under way
	turn    uint64 // the handle of Load's function; 0: none
	memory  api.Memory
	stack   api.MutableGlobal
	pages   uint32
	stopped atomic.Bool
	broken  error // after it the memory is in an unknown state
	// rejected are the reasons of promises that were rejected and have no handler, by the promise's address.
	rejected map[uint64]uint64
}

// Interrupt makes the code that runs end with ErrInterrupted, soon. It stays so.
func (m *Machine) Interrupt() { m.stopped.Store(true) }

// blank makes an instance of the module that has run nothing.
func (e *Engine) blank(h Host) (*Machine, error) {
	m := &Machine{host: h, pages: e.pages, rejected: map[uint64]uint64{}}
	m.ctx = context.WithValue(context.Background(), machineKey{}, m)
	var err error
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	if m.mod, err = e.runtime.InstantiateModule(m.ctx, e.compiled, config); err != nil {
		return nil, fmt.Errorf("quickjs: %w", err)
	}
	m.memory = m.mod.Memory()
	var ok bool
	if m.stack, ok = m.mod.ExportedGlobal("__stack_pointer").(api.MutableGlobal); !ok || m.memory == nil {
		return nil, errors.New("quickjs: the module has no memory or no stack")
	}
	return m, nil
}

// Start makes a Machine whose only global beside those of the language is host.
func (e *Engine) Start(h Host) (*Machine, error) {
	m, err := e.blank(h)
	if err != nil {
		return nil, err
	}
	if _, err = m.call("_initialize"); err == nil {
		var failed uint64
		if failed, err = m.call("qjs_init"); err == nil && failed != 0 {
			err = errors.New("QuickJS did not start")
		}
	}
	if err == nil {
		err = m.limit()
	}
	if err == nil {
		err = m.global("host")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("quickjs: %w", err), m.Close())
	}
	return m, nil
}

// limit sets what the interpreter holds its code to.
func (m *Machine) limit() error {
	// The interpreter needs a page to report that memory is full.
	all := uint64(m.pages)*page - page
	for _, c := range []struct {
		name string
		arg  uint64
	}{{"qjs_set_memory_limit", all}, {"qjs_set_max_stack_size", maxStack}, {"qjs_set_interrupt_handler", 1},
		{"qjs_set_promise_rejection_handler", 1}, {"qjs_set_module_loader", 1}} {
		if _, err := m.call(c.name, c.arg); err != nil {
			return err
		}
	}
	return nil
}

// global makes the function by which the code calls the host.
func (m *Machine) global(name string) error {
	at, n, err := m.put(name)
	if err != nil {
		return err
	}
	defer m.free(at)
	f, err := m.call("qjs_new_host_function", at, n, 0)
	if err != nil {
		return err
	}
	defer m.drop(f)
	g, err := m.call("qjs_get_global")
	if err != nil {
		return err
	}
	defer m.drop(g)
	_, err = m.call("qjs_define_prop_string", g, at, f, 1) // configurable: the runtime takes it and deletes it
	return err
}

// Close frees the memory.
func (m *Machine) Close() error { return m.mod.Close(context.Background()) }

// Memory is how many bytes of linear memory the Machine has.
func (m *Machine) Memory() int64 { return int64(m.memory.Size()) }

// maxDepth is how deep calls of the module and of the host nest: the module calls the host, which calls the module.
const maxDepth = 4

// call calls an exported function. A trap, as for an unreachable instruction, breaks the machine.
func (m *Machine) call(name string, args ...uint64) (uint64, error) {
	if m.broken != nil {
		return 0, m.broken
	}
	if m.depth >= maxDepth {
		return 0, m.fail("calls nest too deep")
	}
	// wazero's functions have one stack each: one that is running must not be called again.
	if m.fn[m.depth] == nil {
		m.fn[m.depth] = map[string]api.Function{}
	}
	f := m.fn[m.depth][name]
	if f == nil {
		if f = m.mod.ExportedFunction(name); f == nil {
			return 0, fmt.Errorf("quickjs: the module has no function %s", name)
		}
		m.fn[m.depth][name] = f
	}
	m.depth++
	out, err := f.Call(m.ctx, args...)
	m.depth--
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n") // a trace of WebAssembly frames follows
		return 0, m.fail(first)
	}
	if len(out) == 0 {
		return 0, nil
	}
	return out[0], nil
}

// fail breaks the machine: hostile code can have corrupted its memory.
func (m *Machine) fail(why string) error {
	if m.broken == nil {
		m.broken = fmt.Errorf("%w: %s", ErrBroken, why)
	}
	return m.broken
}

var errMemory = &Thrown{Text: "InternalError: out of memory"}

// put copies a text into the machine's memory, with a NUL behind it. The caller frees it.
func (m *Machine) put(s string) (at, n uint64, err error) {
	at, err = m.call("wasm_malloc", uint64(len(s))+1)
	if err != nil {
		return 0, 0, err
	}
	if at == 0 {
		return 0, 0, errMemory
	}
	if !m.memory.WriteString(uint32(at), s) || !m.memory.WriteByte(uint32(at)+uint32(len(s)), 0) {
		return 0, 0, m.fail("an address outside the memory")
	}
	return at, uint64(len(s)), nil
}

func (m *Machine) free(at uint64) { _, _ = m.call("wasm_free", at) }

// drop frees the handle of a value.
func (m *Machine) drop(v uint64) {
	if v != 0 {
		_, _ = m.call("qjs_free_value", v)
	}
}

// span is where the bytes of a text or buffer are; free is called after their use.
type span struct {
	at, n uint32
	free  func()
}

// view returns the bytes of a span. Growth of the memory ends a view.
func (m *Machine) view(s span) ([]byte, error) {
	b, ok := m.memory.Read(s.at, s.n)
	if !ok {
		return nil, m.fail("a text outside the memory")
	}
	return b, nil
}

// find finds the bytes of a value that is a text or an ArrayBuffer; ok is false for any other. It runs no code.
func (m *Machine) find(v uint64) (s span, ok bool, err error) {
	read, is := "qjs_get_string_len", uint64(0)
	if is, err = m.call("qjs_is_string", v); err != nil {
		return s, false, err
	}
	if is == 0 {
		read = "qjs_get_array_buffer"
		if is, err = m.call("qjs_is_array_buffer", v); err != nil || is == 0 {
			return s, false, err
		}
	}
	size, err := m.call("wasm_malloc", 4)
	if err != nil {
		return s, false, err
	}
	if size == 0 {
		return s, false, errMemory
	}
	defer m.free(size)
	at, err := m.call(read, v, size)
	if err != nil {
		return s, false, err
	}
	n, inside := m.memory.ReadUint32Le(uint32(size))
	if !inside {
		return s, false, m.fail("an address outside the memory")
	}
	s = span{uint32(at), n, func() {}}
	if read == "qjs_get_string_len" {
		if at == 0 {
			return s, false, errMemory
		}
		s.free = func() { _, _ = m.call("qjs_free_cstring", at) }
	}
	return s, true, nil
}

// Eval runs a script, and then the jobs of promises until none is left. It returns the script's value, if that is a
// text or bytes.
func (m *Machine) Eval(name, source string) (string, error) {
	v, err := m.eval(name, source)
	if err != nil {
		return "", err
	}
	said, err := m.copied(v)
	m.drop(v)
	if err != nil {
		return "", err
	}
	return said, m.jobs()
}

func (m *Machine) eval(name, source string) (uint64, error) {
	code, n, err := m.put(source)
	if err != nil {
		return 0, err
	}
	defer m.free(code)
	file, _, err := m.put(name)
	if err != nil {
		return 0, err
	}
	defer m.free(file)
	v, err := m.call("qjs_eval", code, n, file, 0)
	if err != nil {
		return 0, err
	}
	return v, m.thrown(v)
}

// copied returns a copy of a value that is a text or bytes, and nothing for another.
func (m *Machine) copied(v uint64) (string, error) {
	s, ok, err := m.find(v)
	if err != nil || !ok {
		return "", err
	}
	defer s.free()
	b, err := m.view(s)
	return string(b), err
}

// thrown returns the exception that v stands for, or nil. It takes v then.
func (m *Machine) thrown(v uint64) error {
	is, err := m.call("qjs_is_exception", v)
	if err != nil || is == 0 {
		return err
	}
	m.drop(v)
	if m.stopped.Load() {
		return ErrInterrupted
	}
	e, err := m.call("qjs_get_exception")
	if err != nil {
		return err
	}
	defer m.drop(e)
	return m.reason(e)
}

// reason describes what was thrown.
func (m *Machine) reason(e uint64) (err error) {
	t := &Thrown{}
	for _, p := range []struct {
		name string
		to   *string
	}{{"name", &t.Name}, {"message", &t.Text}, {"stack", &t.Stack}} {
		if *p.to, err = m.property(e, p.name); err != nil {
			return err
		}
	}
	if t.Text == "" {
		t.Text, err = m.copied(e)
	}
	return errors.Join(err, t)
}

// property returns a property that is a text. A getter of the code can run.
func (m *Machine) property(v uint64, name string) (string, error) {
	if object, err := m.call("qjs_is_object", v); err != nil || object == 0 {
		return "", err
	}
	at, _, err := m.put(name)
	if err != nil {
		return "", err
	}
	defer m.free(at)
	p, err := m.call("qjs_get_prop_string", v, at)
	if err != nil {
		return "", err
	}
	defer m.drop(p)
	return m.copied(p)
}

// Load runs a script whose value is a function, for Turn.
func (m *Machine) Load(name, source string) error {
	v, err := m.eval(name, source)
	if err != nil {
		return err
	}
	if is, err := m.call("qjs_is_function", v); err != nil || is == 0 {
		m.drop(v)
		return errors.Join(err, fmt.Errorf("quickjs: %s is not a function", name))
	}
	m.turn = v
	return nil
}

// Turn calls the function of Load with texts, and then the jobs of promises until none is left. It returns the value
// of the function, if that is a text.
func (m *Machine) Turn(args ...string) (string, error) {
	said, err := m.invoke(args)
	if err != nil {
		return said, err
	}
	return said, m.jobs()
}

// jobs runs the jobs of promises. A promise that was rejected and has no handler after them is an exception.
func (m *Machine) jobs() error {
	for {
		n, err := m.call("qjs_execute_pending_job")
		switch {
		case err != nil:
			return err
		case m.stopped.Load():
			return ErrInterrupted
		case int32(n) < 0:
			e, err := m.call("qjs_get_exception") // no reaction of a promise throws; a broken one does
			m.drop(e)
			if err != nil {
				return err
			}
		case n == 0:
			return m.unhandled()
		}
	}
}

// unhandled returns the reason of the first rejection that has no handler, and forgets all.
func (m *Machine) unhandled() error {
	if len(m.rejected) == 0 {
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(m.rejected)))
	err := m.reason(m.rejected[first])
	for _, reason := range m.rejected {
		m.drop(reason)
	}
	clear(m.rejected)
	return err
}

func (m *Machine) invoke(args []string) (string, error) {
	list, err := m.call("wasm_malloc", uint64(4*len(args)+4))
	if err != nil {
		return "", err
	}
	if list == 0 {
		return "", errMemory
	}
	defer m.free(list)
	for i, a := range args {
		v, err := m.newText(a)
		if err != nil {
			return "", err
		}
		defer m.drop(v)
		if !m.memory.WriteUint32Le(uint32(list)+uint32(4*i), uint32(v)) {
			return "", m.fail("an address outside the memory")
		}
	}
	this, err := m.call("qjs_get_undefined")
	if err != nil {
		return "", err
	}
	v, err := m.call("qjs_call", m.turn, this, uint64(len(args)), list)
	if err != nil {
		return "", err
	}
	if err := m.thrown(v); err != nil {
		return "", err
	}
	defer m.drop(v)
	return m.copied(v)
}

func (m *Machine) newText(s string) (uint64, error) {
	at, n, err := m.put(s)
	if err != nil {
		return 0, err
	}
	defer m.free(at)
	return m.call("qjs_new_string", at, n)
}
