package quickjs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Image is a Machine between two turns: its linear memory, and the few numbers that are outside of it.
type Image struct {
	Memory                         []byte // a multiple of the page size of WebAssembly
	Stack, Runtime, Context, Turns uint32
}

// Image returns a copy of the machine's state. No code of it may run.
func (m *Machine) Image() (Image, error) {
	if m.broken != nil || m.stopped.Load() || m.depth > 0 {
		return Image{}, errors.Join(errors.New("quickjs: the machine cannot be written now"), m.broken)
	}
	runtime, err := m.call("qjs_get_runtime_ptr")
	if err != nil {
		return Image{}, err
	}
	context, err := m.call("qjs_get_context_ptr")
	if err != nil {
		return Image{}, err
	}
	all, ok := m.memory.Read(0, m.memory.Size())
	if !ok {
		return Image{}, m.fail("the memory cannot be read")
	}
	return Image{bytes.Clone(all), uint32(m.stack.Get()), uint32(runtime), uint32(context), uint32(m.turn)}, nil
}

// Become gives a Machine the state of an image. The image's author chose every byte of it: such a machine can fail,
// and reaches no more than another. The image has at least as much memory as the machine. After an error the machine
// must not be used any more.
func (m *Machine) Become(i Image) error {
	size := int(m.memory.Size())
	if len(i.Memory)%page != 0 || len(i.Memory) < size || uint64(len(i.Memory)) > uint64(m.pages)*page {
		return fmt.Errorf("quickjs: an image of %d bytes does not fit into a memory of %d to %d", len(i.Memory),
			size, uint64(m.pages)*page)
	}
	if missing := len(i.Memory) - size; missing > 0 {
		if _, ok := m.memory.Grow(uint32(missing / page)); !ok {
			return errors.New("quickjs: no memory for the image")
		}
	}
	if !m.memory.Write(0, i.Memory) {
		return errors.New("quickjs: the image is not as long as the memory")
	}
	m.stack.Set(uint64(i.Stack))
	m.turn = uint64(i.Turns)
	clear(m.rejected)
	if _, err := m.call("qjs_set_runtime_and_context", uint64(i.Runtime), uint64(i.Context)); err != nil {
		return err
	}
	return m.limit()
}

// block is the unit in which images are compared, in bytes.
const block = 1 << 10

// Header of a difference: lengths and numbers in little endian.
const deltaHeader = 5 * 4

// Delta returns what an image has that a base does not have: the blocks that differ. Images of programs that began at
// the same base differ in little.
func (i Image) Delta(base Image) []byte {
	out := make([]byte, deltaHeader, deltaHeader+64*block)
	for n, v := range []uint32{uint32(len(i.Memory)), i.Stack, i.Runtime, i.Context, i.Turns} {
		binary.LittleEndian.PutUint32(out[4*n:], v)
	}
	var zero [block]byte
	for at := 0; at < len(i.Memory); at += block {
		now, was := i.Memory[at:at+block], zero[:]
		if at+block <= len(base.Memory) {
			was = base.Memory[at : at+block]
		}
		if !bytes.Equal(now, was) {
			out = binary.LittleEndian.AppendUint32(out, uint32(at))
			out = append(out, now...)
		}
	}
	return out
}

// Apply returns the image whose difference from base is delta. It refuses one of more than most bytes.
func Apply(base Image, delta []byte, most int64) (Image, error) {
	bad := errors.New("quickjs: not an image of a program")
	if len(delta) < deltaHeader || (len(delta)-deltaHeader)%(4+block) != 0 {
		return Image{}, bad
	}
	var n [5]uint32
	for at := range n {
		n[at] = binary.LittleEndian.Uint32(delta[4*at:])
	}
	if n[0] == 0 || n[0]%page != 0 {
		return Image{}, bad
	}
	if int64(n[0]) > most {
		return Image{}, fmt.Errorf("quickjs: the program has %d bytes of memory: at most %d are allowed here", n[0],
			most)
	}
	i := Image{make([]byte, n[0]), n[1], n[2], n[3], n[4]}
	copy(i.Memory, base.Memory)
	for change := range slices.Chunk(delta[deltaHeader:], 4+block) {
		at := uint64(binary.LittleEndian.Uint32(change))
		if at%block != 0 || at+block > uint64(n[0]) {
			return Image{}, bad
		}
		copy(i.Memory[at:], change[4:])
	}
	return i, nil
}
