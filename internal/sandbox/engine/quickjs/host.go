package quickjs

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// The module calls the functions of this file. Hostile code that has corrupted the machine's memory calls them with any
// numbers, so they check every address and length against the memory and store none.

type machineKey struct{}

func machineOf(ctx context.Context) *Machine {
	m, _ := ctx.Value(machineKey{}).(*Machine)
	return m
}

// maxArgs is how many arguments a call of the host has at most.
const maxArgs = 8

// maxName bounds names of host functions and modules, in bytes.
const maxName = 4 << 10

// Error numbers of WASI.
const (
	wasiOK    = 0
	wasiBadF  = 8
	wasiFault = 21
	wasiNoSys = 52
)

func imports(ctx context.Context, r wazero.Runtime) error {
	env := r.NewHostModuleBuilder("env")
	add := func(b wazero.HostModuleBuilder, name string, f any) { b.NewFunctionBuilder().WithFunc(f).Export(name) }
	add(env, "host_get_timezone_offset", func(_, _ uint32) uint32 { return 0 }) // UTC, as all of waldo
	add(env, "host_interrupt", func(ctx context.Context) uint32 {
		if machineOf(ctx).stopped.Load() {
			return 1
		}
		return 0
	})
	add(env, "host_promise_rejection", rejection)
	add(env, "host_module_normalize", normalize)
	add(env, "host_module_load", load)
	add(env, "host_call", hostCall)
	if _, err := env.Instantiate(ctx); err != nil {
		return err
	}
	wasi := r.NewHostModuleBuilder("wasi_snapshot_preview1")
	add(wasi, "clock_time_get", clock)
	add(wasi, "fd_close", func(uint32) uint32 { return wasiNoSys })
	add(wasi, "fd_fdstat_get", func(_, _ uint32) uint32 { return wasiBadF })
	add(wasi, "fd_seek", func(uint32, uint64, uint32, uint32) uint32 { return wasiNoSys })
	add(wasi, "fd_write", discard)
	add(wasi, "random_get", random)
	_, err := wasi.Instantiate(ctx)
	return err
}

// clock writes the time of either clock.
func clock(ctx context.Context, mod api.Module, _ uint32, _ uint64, at uint32) uint32 {
	if !mod.Memory().WriteUint64Le(at, uint64(machineOf(ctx).host.Now())) {
		return wasiFault
	}
	return wasiOK
}

func random(ctx context.Context, mod api.Module, at, n uint32) uint32 {
	b, ok := mod.Memory().Read(at, n)
	if !ok {
		return wasiFault
	}
	machineOf(ctx).host.Random(b)
	return wasiOK
}

// discard takes what the C library writes to its streams, which is nothing that a program wrote.
func discard(_ context.Context, mod api.Module, _, vectors, n, written uint32) uint32 {
	total := uint32(0)
	for i := range min(n, 1<<10) {
		size, ok := mod.Memory().ReadUint32Le(vectors + 8*i + 4)
		if !ok {
			return wasiFault
		}
		total += size
	}
	if !mod.Memory().WriteUint32Le(written, total) {
		return wasiFault
	}
	return wasiOK
}

// hostCall is host(name, …) of the code. It returns the handle of a value, or 0 with an exception.
func hostCall(ctx context.Context, _ api.Module, _, _, _, argc, argv uint32) uint32 {
	m := machineOf(ctx)
	if argc == 0 || argc > maxArgs {
		return m.raise("host takes a name and at most 7 arguments")
	}
	handles, ok := m.memory.Read(argv, 4*argc)
	if !ok {
		return m.raise("host: arguments outside the memory")
	}
	handles = bytes.Clone(handles) // growth of the memory ends a view
	spans := make([]span, argc)
	for i := range spans {
		s, ok, err := m.find(uint64(binary.LittleEndian.Uint32(handles[4*i:])))
		if err != nil || !ok {
			return m.raise("host: an argument is neither a text nor an ArrayBuffer, or memory is short")
		}
		defer s.free()
		spans[i] = s
	}
	args := make([]Arg, argc)
	for i, s := range spans {
		b, err := m.view(s)
		if err != nil {
			return 0
		}
		args[i] = b
	}
	if len(args[0]) > maxName {
		return m.raise("host: the name is too long")
	}
	v := m.host.Call(string(args[0]), args[1:])
	if m.stopped.Load() {
		return m.raise("interrupted")
	}
	return m.give(v)
}

// give makes a value of the interpreter.
func (m *Machine) give(v Value) uint32 {
	var handle uint64
	var err error
	switch v := v.(type) {
	case nil:
		handle, err = m.call("qjs_get_undefined")
		if err == nil {
			handle, err = m.call("qjs_dup_value", handle)
		}
	case Text:
		handle, err = m.newText(string(v))
	case Bytes:
		var at uint64
		if at, _, err = m.put(string(v)); err == nil {
			handle, err = m.call("qjs_new_array_buffer", at, uint64(len(v)))
			m.free(at)
		}
	}
	if err != nil {
		return m.raise(err.Error())
	}
	return uint32(handle)
}

// raise throws an Error in the code.
func (m *Machine) raise(text string) uint32 {
	e, err := m.call("qjs_new_error")
	if err != nil {
		return 0
	}
	defer m.drop(e)
	if v, err := m.newText(text); err == nil {
		if at, _, err := m.put("message"); err == nil {
			_, _ = m.call("qjs_define_prop_string", e, at, v, 3) // defining runs no setter of the code's
			m.free(at)
		}
		m.drop(v)
	}
	if m.stopped.Load() { // no catch or finally of the code's runs
		context, err := m.call("qjs_get_context_ptr")
		value, ok := m.memory.ReadUint64Le(uint32(e))
		if err == nil && ok {
			_, _ = m.call("JS_SetUncatchableError", context, value)
		}
	}
	if thrown, err := m.call("qjs_throw", e); err == nil {
		m.drop(thrown)
	}
	return 0
}

// maxRejected is how many rejections without a handler are remembered.
const maxRejected = 1000

// rejection is called when a promise is rejected without a handler, and again when it gets one.
func rejection(ctx context.Context, promise, reason, handled uint32) {
	m := machineOf(ctx)
	defer m.drop(uint64(promise))
	at, err := m.call("qjs_get_value_ptr", uint64(promise))
	if err != nil || handled != 0 || len(m.rejected) >= maxRejected {
		m.drop(m.rejected[at])
		delete(m.rejected, at)
		m.drop(uint64(reason))
		return
	}
	m.drop(m.rejected[at])
	m.rejected[at] = uint64(reason)
}

// cstring copies a text that ends with NUL, of at most maxName bytes.
func (m *Machine) cstring(at uint32) (string, bool) {
	n := min(uint64(maxName)+1, uint64(m.memory.Size())-min(uint64(at), uint64(m.memory.Size())))
	b, ok := m.memory.Read(at, uint32(n))
	end := bytes.IndexByte(b, 0)
	if !ok || end < 0 {
		return "", false
	}
	return string(b[:end]), true
}

// normalize returns the full name of a module as a text that the module frees, or 0 with an exception.
func normalize(ctx context.Context, _ api.Module, from, name uint32) uint32 {
	m := machineOf(ctx)
	base, ok1 := m.cstring(from)
	short, ok2 := m.cstring(name)
	if !ok1 || !ok2 {
		return m.raise("import: a name is too long")
	}
	full, err := m.host.Resolve(base, short)
	if err != nil {
		return m.raise(err.Error())
	}
	at, _, err := m.put(full)
	if err != nil {
		return m.raise(err.Error())
	}
	return uint32(at)
}

// load returns the source of a module as a text that the module frees, and writes its length.
func load(ctx context.Context, _ api.Module, name, length uint32) uint32 {
	m := machineOf(ctx)
	full, ok := m.cstring(name)
	if !ok {
		return m.raise("import: the name is too long")
	}
	source, err := m.host.Module(full)
	if err != nil {
		return m.raise(err.Error())
	}
	at, n, err := m.put(source)
	if err != nil {
		return m.raise(err.Error())
	}
	if !m.memory.WriteUint32Le(length, uint32(n)) {
		return m.raise("import: an address outside the memory")
	}
	return uint32(at)
}
