package program

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"waldo/internal/sandbox/engine/cpython"
	"waldo/internal/sandbox/guest"
)

// maxNames bounds the files and folders that a Python program makes.
const maxNames = 10_000

// runPython runs one Python program, from the prelude to its end.
func (p *program) runPython() (int, error) {
	ctx := context.Background()
	engine, err := cpython.New(ctx, p.Memory, p.Cache)
	if err != nil && p.Cache != "" { // as for QuickJS: it cannot be read here
		engine, err = cpython.New(ctx, p.Memory, "")
	}
	if err != nil {
		return 0, err
	}
	p.watchLife()
	p.bridge = openBridge(p.Options)
	used := true
	python := cpython.Program{Stdout: p.out[0], Stderr: p.out[1], Next: func() (cpython.Job, error) {
		job, err := p.pythonJob()
		used = err != io.EOF
		return job, err
	}}
	if p.bridge != nil {
		python.Bridge = frames{p.bridge}
	}
	end, err := engine.Run(ctx, python)
	switch {
	case !used:
		return 0, nil // waldo ended it before it had a job
	case err != nil:
		return 0, err
	case end.Memory && end.Status != 0:
		return ExitMemory, nil
	}
	return ownStatus(end.Status), nil
}

// pythonJob reads the job when the interpreter is ready for it.
func (p *program) pythonJob() (j cpython.Job, err error) {
	if _, err := io.ReadFull(p.stdin, make([]byte, 1)); err != nil {
		return j, io.EOF
	}
	p.stdin = bufio.NewReaderSize(p.stdin, 64<<10)
	if p.job, err = readJob(p.stdin); err != nil {
		return j, err
	}
	if p.job.Lang != guest.Python || p.job.Resumed {
		return j, fmt.Errorf("a job in %s came to Python", p.job.Lang)
	}
	if p.files, err = openFiles(p.Workspace, p.Disk); err != nil {
		return j, err
	}
	if p.CPU > 0 {
		limit(p.CPU, func() { os.Exit(ExitCPU) })
	}
	return cpython.Job{
		Script: guest.Script{Lang: guest.Python, Name: p.job.Name, Code: p.job.Code, Args: p.job.Args,
			Servers: p.job.Servers},
		Env: p.job.Env, Stdin: p.stdin,
		Files: &cpython.Files{Roots: p.files.roots, Fixed: map[string]bool{"input": true}, Bytes: p.files.left,
			Names: maxNames},
	}, nil
}

// frames is the bridge as Python has it: the frames that concern the process itself are not for the program.
type frames struct{ *bridge }

// Frame returns the next frame for the program. It waits until the patience is over; a negative one is endless.
func (b frames) Frame(patience time.Duration) (text []byte, open bool) {
	var over <-chan time.Time
	if patience >= 0 {
		t := time.NewTimer(patience)
		defer t.Stop()
		over = t.C
	}
	for {
		select {
		case f, ok := <-b.in:
			if !ok {
				return nil, false
			}
			if !b.note(f) {
				return f, true
			}
		case <-over:
			return nil, true
		}
	}
}

// Send sends a frame.
func (b frames) Send(text []byte) { b.send(text) }
