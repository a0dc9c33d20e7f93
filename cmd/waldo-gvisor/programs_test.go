//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
)

// TestPrograms holds the programs that were compiled ahead against what gVisor compiles now: they
// are for the same settings and say the same of every system call that is tried.
func TestPrograms(t *testing.T) {
	have, err := readPrograms()
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("nothing is compiled ahead for %s", runtime.GOARCH)
	}
	if err != nil {
		t.Fatal(err)
	}
	want, err := compile()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []struct {
		name       string
		have, want []precompiledseccomp.Program
	}{{"the kernel", have.Sentry, want.Sentry}, {"the file server", have.Gofer, want.Gofer}} {
		old := map[string]precompiledseccomp.Program{}
		for _, p := range kind.have {
			old[p.Name] = p
		}
		for _, p := range kind.want {
			if _, ok := old[p.Name]; !ok {
				t.Errorf("%s: no program for %s: run scripts/build-gvisor.sh --programs", kind.name, p.Name)
				continue
			}
			same(t, kind.name, old[p.Name], p)
		}
	}
}

// same tries system calls; most have numbers from the programs as arguments.
func same(t *testing.T, name string, a, b precompiledseccomp.Program) {
	values := precompiledseccomp.Values{}
	for i, v := range slices.Sorted(maps.Keys(b.VarOffsets)) {
		values[v] = uint32(1000 + i)
	}
	x, y := runnable(t, a, values), runnable(t, b, values)
	words := append(slices.Clone(b.Bytecode32), slices.Collect(maps.Values(values))...)
	var allowed, refused int
	for range 300_000 {
		in := make([]byte, 64)
		binary.NativeEndian.PutUint32(in, uint32(rand.IntN(470)))
		binary.NativeEndian.PutUint32(in[4:], map[string]uint32{"amd64": 0xc000003e, "arm64": 0xc00000b7}[runtime.GOARCH])
		for at := 16; at < 64; at += 8 {
			if rand.IntN(3) > 0 {
				binary.NativeEndian.PutUint32(in[at:], words[rand.IntN(len(words))])
			}
		}
		one, err1 := bpf.Exec[bpf.NativeEndian](x, in)
		two, err2 := bpf.Exec[bpf.NativeEndian](y, in)
		if err1 != nil || err2 != nil || one != two {
			t.Fatalf("%s: %x: %#x %v, and gVisor would say %#x %v: run scripts/build-gvisor.sh --programs", name, in, one,
				err1, two, err2)
		}
		if one == 0x7fff0000 {
			allowed++
		} else {
			refused++
		}
	}
	if allowed < 1000 || refused < 1000 {
		t.Errorf("%s: %d allowed and %d refused: the calls that were tried prove little", name, allowed, refused)
	}
}

func runnable(t *testing.T, p precompiledseccomp.Program, values precompiledseccomp.Values) bpf.Program {
	t.Helper()
	code, err := p.RenderInstructions(values)
	if err != nil {
		t.Fatal(err)
	}
	out, err := bpf.Compile(code, false)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
