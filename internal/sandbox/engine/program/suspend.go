package program

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/klauspost/compress/zstd"

	"waldo/internal/sandbox/engine/quickjs"
)

// suspendID is the id of the request that hands a suspended program to waldo. Ids of the program are numbers.
const suspendID = `"suspend"`

// mostSuspended bounds a suspended program, compressed, in bytes. A larger one waits in memory.
const mostSuspended = 8 << 20

// mostUnpacked bounds what a suspended program unpacks to, beside its memory.
const mostUnpacked = 64 << 20

// ErrOther is returned for a program that was suspended with another interpreter.
var ErrOther = errors.New("the program was suspended by a waldo with another interpreter, " +
	"and cannot go on here; run it anew")

// suspended is a program's state beside its memory.
type suspended struct {
	Job      Job       `json:"job"`
	Module   string    `json:"module,omitempty"`
	Requests []request `json:"requests"`
}

// request is one that waits for a human.
type request struct {
	Frame    string `json:"frame"`
	Approval string `json:"approval"`
}

// mostRuntime bounds the text of a runtime, in bytes.
const mostRuntime = 1 << 20

// header names the interpreter that an image belongs to, and holds the runtime: a later waldo, which has another one,
// makes from it the memory that the image is a difference to.
func header(base quickjs.Image, runtime string) []byte {
	memory, text := sha256.Sum256(base.Memory), encoder.EncodeAll([]byte(runtime), nil)
	return fmt.Appendf(nil, "waldo-program 2\n%s\n%x\n%d\n%s", quickjs.Digest(), memory, len(text), text)
}

// runtimeOf returns the runtime that an image was written with.
func runtimeOf(image []byte) (string, error) {
	rest, ok := bytes.CutPrefix(image, []byte("waldo-program 2\n"+quickjs.Digest()+"\n"))
	if !ok {
		return "", ErrOther
	}
	_, rest, ok1 := bytes.Cut(rest, []byte("\n")) // beginWith makes it anew, and unpack compares it
	size, rest, ok2 := bytes.Cut(rest, []byte("\n"))
	n, err := strconv.Atoi(string(size))
	if !ok1 || !ok2 || err != nil || n < 0 || n > len(rest) {
		return "", errors.New("the suspended program is damaged")
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(mostRuntime))
	if err != nil {
		return "", err
	}
	defer decoder.Close()
	text, err := decoder.DecodeAll(rest[:n], nil)
	if err != nil {
		return "", fmt.Errorf("the suspended program is damaged: %w", err)
	}
	return string(text), nil
}

var encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))

// pack writes the program down: its memory as the difference to the base that every program begins with.
func (p *program) pack() ([]byte, error) {
	image, err := p.machine.Image()
	if err != nil {
		return nil, err
	}
	s := suspended{Job: p.job, Module: p.module}
	for id, f := range p.bridge.open {
		s.Requests = append(s.Requests, request{string(f), p.bridge.waiting[id]})
	}
	slices.SortFunc(s.Requests, func(a, b request) int { return bytes.Compare([]byte(a.Frame), []byte(b.Frame)) })
	state, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	body := binary.LittleEndian.AppendUint32(nil, uint32(len(state)))
	body = append(append(body, state...), image.Delta(p.base)...)
	return encoder.EncodeAll(body, bytes.Clone(p.header)), nil
}

// unpack reads the output of pack.
func unpack(b, header []byte, base quickjs.Image, memory int64) (s suspended, i quickjs.Image, err error) {
	packed, ok := bytes.CutPrefix(b, header)
	if !ok {
		return s, i, ErrOther
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(uint64(2*memory+mostUnpacked)))
	if err != nil {
		return s, i, err
	}
	defer decoder.Close()
	body, err := decoder.DecodeAll(packed, nil)
	if err != nil || len(body) < 4 {
		return s, i, errors.Join(errors.New("the suspended program is damaged"), err)
	}
	n := binary.LittleEndian.Uint32(body)
	if uint64(n) > uint64(len(body)-4) {
		return s, i, errors.New("the suspended program is damaged")
	}
	if err := json.Unmarshal(body[4:4+n], &s); err != nil {
		return s, i, fmt.Errorf("the suspended program is damaged: %w", err)
	}
	i, err = quickjs.Apply(base, body[4+n:], memory)
	return s, i, err
}

// suspend hands the program to waldo, if waldo takes it. Then the process ends.
func (p *program) suspend() (bool, error) {
	if p.stays {
		return false, nil
	}
	p.stays = true
	image, err := p.pack()
	if err != nil {
		return false, err
	}
	if len(image) > mostSuspended {
		image = nil // waldo answers the waiting calls then
	}
	frame, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(suspendID),
		"method": "waldo/suspend",
		"params": map[string]string{"image": base64.StdEncoding.EncodeToString(image)}})
	if err != nil {
		return false, err
	}
	p.bridge.send(append(frame, '\n'))
	for f := range p.bridge.frames() {
		var m message
		if json.Unmarshal(f, &m) == nil && string(m.ID) == suspendID {
			return m.Error == nil, nil
		}
		if done, _, err := p.judge(p.arrive(f)); done || err != nil {
			return false, errors.Join(err, errors.New("the program ended while it was suspended"))
		}
	}
	return false, nil
}

// resume makes the machine from an image, and makes its waiting calls again, each with its approval.
func (p *program) resume() error {
	if !bytes.HasPrefix(p.job.Image, p.header) {
		older, err := runtimeOf(p.job.Image)
		if err != nil {
			return err
		}
		if err := errors.Join(p.machine.Close(), p.beginWith(older)); err != nil {
			return err
		}
	}
	s, image, err := unpack(p.job.Image, p.header, p.base, p.Memory)
	if err != nil {
		return err
	}
	if p.bridge == nil {
		return errors.New("a suspended program needs tools")
	}
	if err = p.machine.Become(image); err != nil {
		return err
	}
	p.job, p.module, p.servers = s.Job, s.Module, s.Job.Servers
	for _, r := range s.Requests {
		var f map[string]json.RawMessage
		var params map[string]json.RawMessage
		err := json.Unmarshal([]byte(r.Frame), &f)
		if err == nil {
			err = json.Unmarshal(f["params"], &params)
		}
		if err != nil || params == nil {
			return errors.New("the suspended program is damaged")
		}
		params["waldo/approval_id"] = json.RawMessage(quoted(r.Approval))
		if f["params"], err = json.Marshal(params); err != nil {
			return err
		}
		again, err := json.Marshal(f)
		if err != nil {
			return err
		}
		p.bridge.send(append(again, '\n'))
		p.bridge.open[string(f["id"])] = frame(r.Frame)
	}
	return nil
}
