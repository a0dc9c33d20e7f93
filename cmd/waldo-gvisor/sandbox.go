//go:build linux

package main

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"

	"waldo/internal/sandbox/gvisor/job"
)

// instance is one sandbox for as long as waldo holds the other end of the socket. This process is PID 1 of a PID
// namespace: when it ends, everything in the sandbox is dead.
type instance struct {
	conn *job.Conn
	made job.Sandbox

	mu      sync.Mutex
	current *run
	guests  int    // how many there have been
	next    *guest // a kernel that waits for its command; nil: none
}

// serve makes the sandbox that waldo asks for and runs its commands. It returns when waldo closes the socket.
func serve() int {
	unix.CloseOnExec(job.ControlFD)
	log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
	conn, err := job.Open(os.NewFile(job.ControlFD, "waldo"))
	if err != nil {
		return 1
	}
	b := &instance{conn: conn}
	if err := b.serve(); !errors.Is(err, io.EOF) { // it ends by an error alone: EOF when waldo is gone
		_ = conn.Send(job.Answer{Error: err.Error()})
		return 1
	}
	return 0
}

func (b *instance) serve() error {
	var ask job.Ask
	held, err := b.conn.Receive(&ask)
	if err != nil {
		return err
	}
	if ask.Sandbox == nil {
		return errors.New("the first message must say what the sandbox is made of")
	}
	b.made = *ask.Sandbox
	folders, err := makeRoot(b.made, held)
	if err != nil {
		return err
	}
	sockets, err := openEgress(b.made.Egress)
	if err != nil {
		return err
	}
	folders = append(folders, sockets...)
	if err := b.conn.Send(job.Answer{Ready: &job.Ready{}}, folders...); err != nil {
		return err
	}
	for _, f := range folders {
		_ = f.Close()
	}
	for {
		ask = job.Ask{}
		files, err := b.conn.Receive(&ask)
		if err != nil {
			return err
		}
		switch {
		case ask.Boot != nil:
			b.boot()
		case ask.Run != nil:
			b.start(*ask.Run, files)
		case ask.Kill != nil:
			b.kill()
		case ask.Assign != nil:
			b.adopt()
		default:
			return errors.New("an empty message")
		}
	}
}

// start runs one command in a goroutine beside the loop that reads waldo's messages, so that a kill can arrive.
func (b *instance) start(ask job.Run, files []*os.File) {
	b.boot()
	b.mu.Lock()
	r := &run{guest: b.next, limits: b.made.Limits, ask: ask, files: files, conn: b.conn}
	busy := b.current != nil
	if !busy {
		b.current, b.next = r, nil
	}
	b.mu.Unlock()
	if busy {
		_ = b.conn.Send(job.Answer{Error: "a command is still running"})
		return
	}
	go func() {
		answer := job.Answer{}
		end, err := r.do()
		if err != nil {
			answer.Error = err.Error()
		} else {
			answer.End = &end
		}
		b.mu.Lock()
		b.current = nil
		b.mu.Unlock()
		_ = b.conn.Send(answer)
		r.close()
	}()
}

// boot starts a kernel in the background unless one waits already.
func (b *instance) boot() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.guests++
		b.next = boot(b.made, b.guests)
	}
}

func (b *instance) kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current != nil {
		b.current.guest.kill()
	}
}

// adopt forgets what the command that runs has used so far.
func (b *instance) adopt() {
	b.mu.Lock()
	r := b.current
	b.mu.Unlock()
	if r == nil {
		return
	}
	if w := r.watcher.Load(); w != nil {
		w.forget()
	}
}

// The places in our own mount namespace.
var (
	workPlace = folderOf("/mnt", "/media", "/srv", "/opt") // a tmpfs of ours covers it
	rootDir   = workPlace + "/root"
	guestsDir = workPlace + "/guests"
)

// folderOf returns the first of some folders that this host has, or /tmp, which every host has.
func folderOf(some ...string) string {
	for _, dir := range some {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	return "/tmp"
}
