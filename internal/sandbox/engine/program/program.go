package program

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"waldo/internal/sandbox/engine/quickjs"
	"waldo/internal/sandbox/guest"
)

//go:embed engine.js
var engineRuntime string

// runtime is evaluated in every machine: engine.js, with waldo.js as its argument.
var runtime = "(" + strings.TrimSpace(engineRuntime) + ")(function (Buffer) { const runtime =\n" +
	strings.TrimSpace(guest.JavaScriptRuntime()) + ";\nreturn runtime; })"

// Exit statuses that a program cannot choose: the driver reads them as the end for a limit.
const (
	ExitMemory    = 250
	ExitSuspended = 251
	ExitCPU       = 252
	ExitBroken    = 253
)

// Options are what a process is started with. They are the same for all programs of one kind.
type Options struct {
	Memory    int64         `json:"memory"` // bytes of a program's memory
	CPU       time.Duration `json:"cpu"`    // processor time of the process after its job came; 0: others bound it
	Disk      int64         `json:"disk"`   // bytes that a program may write to files
	Workspace string        `json:"-"`      // the folder that holds input, output and tmp
	Python    bool          `json:"python"` // the program is in Python
	Cache     string        `json:"cache"`  // a folder with compiled code; empty: none
	Bridge    uintptr       `json:"bridge"` // the handle of the bridge; 0: descriptor 3, if it is a socket and Life is 0
	// the handle of a pipe that ends with waldo; 0: something else ends the process
	Life uintptr `json:"life"`
}

// program is one program under way.
type program struct {
	Options
	engine  *quickjs.Engine
	machine *quickjs.Machine
	base    quickjs.Image // of every fresh program
	header  []byte        // of a suspended program with this base
	job     Job
	module  string   // the script's source, if it is a module
	servers []string // the names of servers that are globals
	files   *files
	stdin   io.Reader
	out     [2]io.Writer // standard output and error
	bridge  *bridge
	exit    int  // the status that the program asked for; -1: none
	ready   bool // the job is there: the clock and chance are real
	memory  bool // the program ended because its memory was full
	stays   bool // waldo was asked to suspend the program, or did not take it
}

// Main runs one program, from the prelude to its end, and returns the exit status.
func Main(o Options, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{Options: o, stdin: stdin, out: [2]io.Writer{stdout, stderr}, exit: -1}
	code, err := p.run()
	if err != nil {
		fmt.Fprintln(stderr, "waldo:", err)
		return ExitBroken
	}
	return code
}

func (p *program) run() (int, error) {
	prelude := make([]byte, len(Prelude)-1)
	if _, err := io.ReadFull(p.stdin, prelude); err != nil || string(prelude) != Prelude[:len(Prelude)-1] {
		return 0, errors.New("this command is a part of waldo's own")
	}
	if p.Python {
		return p.runPython()
	}
	engine, err := quickjs.New(context.Background(), p.Memory, p.Cache)
	if err != nil &&
		p.Cache != "" { // it cannot be read here, as in a sandbox of another user: that takes a second more
		engine, err = quickjs.New(context.Background(), p.Memory, "")
	}
	if err != nil {
		return 0, err
	}
	if err := p.begin(engine); err != nil {
		return 0, err
	}
	if err := p.rehearse(); err != nil {
		return 0, err
	}
	if p.files, err = openFiles(p.Workspace, p.Disk); err != nil {
		return 0, err
	}
	p.watchLife()
	p.bridge = openBridge(p.Options)
	if _, err := io.ReadFull(p.stdin, prelude[:1]); err != nil {
		return 0, nil // never used
	}
	p.stdin = bufio.NewReaderSize(p.stdin, 64<<10) // not before: waldo sees by the last byte that the process is ready
	if p.job, err = readJob(p.stdin); err != nil {
		return 0, err
	}
	p.ready = true
	p.servers = p.job.Servers
	p.limitCPU()
	if p.job.Resumed {
		if err := p.resume(); err != nil {
			return 0, err
		}
	} else if done, code, err := p.start(); done || err != nil {
		return code, err
	}
	return p.loop()
}

// begin makes the machine that every program starts from.
func (p *program) begin(e *quickjs.Engine) error {
	p.engine = e
	return p.beginWith(runtime)
}

// beginWith makes the machine that programs of one runtime start from. It is the same in every process: the clock stands
// still, and nothing is random.
func (p *program) beginWith(runtime string) error {
	ready := p.ready
	p.ready = false
	defer func() { p.ready = ready }()
	var err error
	if p.machine, err = p.engine.Start(p.host()); err != nil {
		return err
	}
	if err = p.machine.Load("waldo", runtime); err != nil {
		return fmt.Errorf("the runtime: %w", err)
	}
	if p.base, err = p.machine.Image(); err == nil {
		p.header = header(p.base, runtime)
	}
	return err
}

// host are the functions that a program can call.
func (p *program) host() quickjs.Host {
	return quickjs.Host{Call: p.call, Module: p.load, Resolve: p.resolve,
		Now: func() int64 {
			if !p.ready {
				return 1_700_000_000_000_000_000
			}
			return time.Now().UnixNano()
		},
		Random: func(b []byte) {
			clear(b)
			if p.ready {
				_, _ = rand.Read(b)
			}
		},
	}
}

// call answers one call of the program. An answer that begins with "!" is an error.
func (p *program) call(name string, args []quickjs.Arg) quickjs.Value {
	text := func(i int) string {
		if i < len(args) {
			return strings.ToValidUTF8(string(args[i]), "\uFFFD")
		}
		return ""
	}
	switch name {
	case "write":
		return p.write(text(0), args)
	case "send":
		if len(args) == 1 {
			p.bridge.send(args[0])
		}
		return nil
	case "bridge":
		if p.bridge != nil {
			return quickjs.Text("open")
		}
		return nil
	case "exit":
		code, _ := strconv.Atoi(text(0))
		p.exit = code
		p.machine.Interrupt()
		return nil
	case "fail":
		p.memory = p.memory || text(0) == "InternalError: out of memory"
		return nil
	case "random":
		b := make([]byte, 1<<10)
		_, _ = rand.Read(b)
		return quickjs.Bytes(b)
	case "bytes":
		return quickjs.Bytes(text(0))
	case "text":
		return quickjs.Text(" " + text(0))
	case "stdin":
		b, err := io.ReadAll(io.LimitReader(p.stdin, maxFile))
		if err != nil {
			return quickjs.Text("!EIO: the standard input cannot be read")
		}
		return quickjs.Bytes(b)
	}
	if p.files == nil {
		return quickjs.Text("!ENOSYS: host has no " + name)
	}
	return p.file(name, text(0), args)
}

func (p *program) write(to string, args []quickjs.Arg) quickjs.Value {
	if len(args) != 2 || (to != "1" && to != "2") {
		return quickjs.Text("!EBADF: write takes 1 or 2 and a text")
	}
	b := []byte(args[1])
	if !utf8.Valid(b) {
		b = bytes.ToValidUTF8(b, []byte("\uFFFD"))
	}
	if _, err := p.out[to[0]-'1'].Write(b); err != nil {
		return quickjs.Text("!EPIPE: the output is closed")
	}
	return nil
}

// file answers calls about files.
func (p *program) file(name, at string, args []quickjs.Arg) quickjs.Value {
	switch name {
	case "read":
		b, err := p.files.read(at)
		if err != nil {
			return fault(at, err)
		}
		return quickjs.Bytes(b)
	case "file":
		if len(args) != 3 {
			return quickjs.Text("!EINVAL: write takes a name and contents")
		}
		return fault(at, p.files.write(at, args[1], string(args[2]) == "a"))
	case "mkdir":
		return fault(at, p.files.mkdir(at))
	case "remove":
		return fault(at, p.files.remove(at))
	case "stat":
		return quickjs.Text(p.files.stat(at))
	case "list":
		text, err := p.files.list(at)
		if err != nil {
			return fault(at, err)
		}
		return quickjs.Text(" " + text)
	}
	return quickjs.Text("!ENOSYS: host has no " + name)
}

// start gives a fresh machine its script. It reports whether the program has ended.
func (p *program) start() (done bool, code int, err error) {
	script, module, err := source(p.job)
	if err != nil { // TypeScript that cannot be read is the script's mistake
		fmt.Fprintln(p.out[1], err)
		return true, 1, nil
	}
	if p.module = module; module == "" && p.job.Lang != guest.TypeScript { // esbuild breaks the lines anew
		p.job.Offset = len(wrapHead) + len("__waldo(")
	}
	head, err := json.Marshal(p.job)
	if err != nil {
		return false, 0, err
	}
	if _, err = p.machine.Turn("job", string(head)); err == nil {
		_, err = p.machine.Eval(p.job.Name, script)
	}
	return p.judge(err)
}

// judge turns what a turn of the machine ended with into the end of the program, or nothing.
func (p *program) judge(err error) (done bool, code int, failed error) {
	var thrown *quickjs.Thrown
	switch {
	case err == nil:
		return false, 0, nil
	case p.exit >= 0:
		return true, ownStatus(p.exit), nil
	case errors.Is(err, quickjs.ErrInterrupted):
		return true, ExitCPU, nil
	case errors.As(err, &thrown):
		fmt.Fprintln(p.out[1], strings.TrimRight(strings.ToValidUTF8(thrown.Error()+"\n"+p.lines(thrown.Stack),
			"\uFFFD"), "\n"))
		if p.memory || thrown.Text == "out of memory" && thrown.Name == "InternalError" ||
			thrown.Text == "InternalError: out of memory" {
			return true, ExitMemory, nil
		}
		return true, 1, nil
	case errors.Is(err, quickjs.ErrBroken):
		fmt.Fprintln(p.out[1], "waldo:", err)
		return true, ExitBroken, nil
	}
	return true, 0, err
}

// lines are those of a stack that are the script's. The first line of a script begins after what is wrapped around it.
func (p *program) lines(stack string) string {
	var own []string
	for line := range strings.Lines(stack) {
		if strings.Contains(line, "(waldo") || strings.Contains(line, "(native)") || strings.Contains(line,
			" at waldo") {
			continue
		}
		before, column, ok := strings.Cut(line, p.job.Name+":1:")
		digits := len(column) - len(strings.TrimLeft(column, "0123456789"))
		if n, err := strconv.Atoi(column[:digits]); ok && err == nil && n > p.job.Offset {
			line = fmt.Sprintf("%s%s:1:%d%s", before, p.job.Name, n-p.job.Offset, column[digits:])
		}
		own = append(own, line)
	}
	return strings.Join(own, "")
}

// ownStatus keeps the program from statuses that say why waldo ended it.
func ownStatus(code int) int {
	if code &= 255; code >= ExitMemory && code <= ExitBroken {
		return 1
	}
	return code
}

// state describes the program between two turns.
type state struct {
	over bool
	due  time.Duration // until the next timer; negative: absent
	open bool          // requests are
	code int
}

func (p *program) state() (s state, err error) {
	text, err := p.machine.Turn("state")
	if err != nil {
		return s, err
	}
	var word string
	var due float64
	var open int
	if _, err := fmt.Sscanf(text, "%s %g %d %d", &word, &due, &open, &s.code); err != nil {
		return s, fmt.Errorf("%w: the runtime is not what it was", quickjs.ErrBroken)
	}
	s.over, s.open = word == "done", open != 0
	s.due = time.Duration(due * float64(time.Millisecond))
	return s, nil
}

// loop runs turns until the program has ended.
func (p *program) loop() (int, error) {
	for {
		s, err := p.state()
		if done, code, err := p.judge(err); done || err != nil {
			return code, err
		}
		if s.due < 0 && !s.open {
			switch {
			case p.memory:
				return ExitMemory, nil
			case s.over:
				return ownStatus(s.code), nil
			}
			fmt.Fprintln(p.out[1], "Warning: the script waits for a promise that nothing will settle")
			return 13, nil // as Node
		}
		if s.due < 0 && p.bridge.idle() {
			suspended, err := p.suspend()
			if suspended || err != nil {
				return ExitSuspended, err
			}
		}
		done, code, err := p.judge(p.next(s))
		if done || err != nil {
			return code, err
		}
	}
}

// next waits for a frame or a timer and takes the turn for it.
func (p *program) next(s state) error {
	var due <-chan time.Time
	if s.due >= 0 {
		if s.due == 0 {
			_, err := p.machine.Turn("tick")
			return err
		}
		t := time.NewTimer(s.due)
		defer t.Stop()
		due = t.C
	}
	var frames <-chan frame
	if s.open {
		frames = p.bridge.frames()
	}
	select {
	case <-due:
		_, err := p.machine.Turn("tick")
		return err
	case f, ok := <-frames:
		if !ok {
			p.bridge.in = nil
			_, err := p.machine.Turn("closed")
			return err
		}
		return p.arrive(f)
	}
}

// arrive gives a frame to the program, or reads it itself where it is about the program.
func (p *program) arrive(f frame) error {
	if p.bridge.note(f) {
		return nil
	}
	_, err := p.machine.Turn("frame", string(f))
	return err
}
