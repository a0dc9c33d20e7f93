//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"

	"waldo/internal/sandbox/gvisor/job"
)

// run is one command, in a guest of its own.
type run struct {
	guest  *guest
	limits job.Limits
	ask    job.Run
	files  []*os.File
	conn   *job.Conn

	watcher atomic.Pointer[watcher]
	asking  sync.WaitGroup // those who ask gVisor for the command's end
}

// do runs the command to its end, and the guest with it.
func (r *run) do() (job.End, error) {
	defer func() {
		for _, f := range r.files {
			_ = f.Close()
		}
	}()
	args, err := r.args()
	if err != nil {
		return job.End{}, err
	}
	if err := r.guest.wait(); err != nil {
		return job.End{}, err
	}
	w := watch(r.guest, r.limits)
	r.watcher.Store(w)
	pid, err := r.guest.c.Execute(r.guest.conf, args)
	if err != nil {
		end := w.stop()
		if r.guest.killed.Load() {
			return end, nil
		}
		if e := notExecuted(err); e != 0 {
			end.NoStart = int(e)
			return end, nil
		}
		return job.End{}, fmt.Errorf("executing: %w", err)
	}
	if err := r.conn.Send(job.Answer{Started: &job.Started{}}); err != nil {
		return job.End{}, err
	}
	status, still := r.await(pid)
	end := w.stop()
	end.Status, end.Still = status, still
	if !still {
		r.guest.kill() // processes that the command left running end with their kernel
	}
	r.guest.tell(&end)
	return end, nil
}

// await waits for the command's end, of which its kernel leaves word, or else tells when it is asked.
func (r *run) await(pid int32) (status uint32, still bool) {
	r.asking.Go(func() {
		ws, err := r.guest.c.WaitPID(pid)
		if status = uint32(ws); err != nil { // gVisor is gone: by us, or by the kernel for memory
			status = uint32(unix.SIGKILL)
		}
		r.guest.notes.leave()
	})
	if r.guest.notes.wait() {
		return r.guest.notes.status.Load(), true
	}
	r.asking.Wait()
	return status, false
}

// close ends the guest. It runs after the answer is sent, because it takes time.
func (r *run) close() {
	r.guest.kill()
	r.asking.Wait()
	r.guest.end()
}

// args returns the program to execute, its user and its files.
func (r *run) args() (*control.ExecArgs, error) {
	want := 3
	if r.ask.Bridge {
		want = 4
	}
	if len(r.files) != want {
		return nil, fmt.Errorf("%d descriptors came with a command, not %d", len(r.files), want)
	}
	files := map[int]*os.File{}
	for i, f := range r.files {
		files[i] = f
	}
	return &control.ExecArgs{
		Argv: r.ask.Argv, Envv: r.ask.Env, WorkingDirectory: r.ask.Dir,
		KUID: auth.KUID(os.Getuid()), KGID: auth.KGID(os.Getgid()), NoNewPrivileges: true,
		Capabilities: &auth.TaskCapabilities{},
		FilePayload:  control.NewFilePayload(files, nil),
	}, nil
}

// notExecuted returns the error number with which a command could not be executed, 0 when that is
// not what went wrong. gVisor tells it as text.
func notExecuted(err error) unix.Errno {
	text := err.Error()
	if !strings.Contains(text, "error finding executable") && !strings.Contains(text, "failed to load") &&
		!strings.Contains(text, "working directory") {
		return 0
	}
	for _, e := range []unix.Errno{unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.ENOEXEC, unix.EISDIR, unix.ELOOP,
		unix.ENAMETOOLONG, unix.EPERM, unix.E2BIG, unix.EINVAL} {
		if strings.HasSuffix(text, e.Error()) {
			return e
		}
	}
	return 0
}
