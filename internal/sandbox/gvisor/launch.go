//go:build linux && (amd64 || arm64)

package gvisor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/gvisor/job"
	"waldo/internal/sandbox/spawn"
	"waldo/internal/sandbox/userns"
)

// powers are what PID 1 of a sandbox has over its own namespaces while it is not root there: to mount, and to
// hand gVisor's own processes what they ask for. None reaches outside.
var powers = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_SETUID,
	unix.CAP_SETGID, unix.CAP_SETPCAP, unix.CAP_SYS_CHROOT, unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_KILL,
}

// launch starts PID 1 of a sandbox and returns waldo's end of its socket. It runs as the user outside, which is
// the template's user inside. The executable is run by its descriptor: its path need not be open to that user,
// and cannot change. With milli above zero, the process and all its children are restricted to as many
// processors as milli thousandths fill.
func launch(executable *os.File, p sandbox.Profile, uid, gid int, milli int64) (*os.Process, *job.Conn, error) {
	conn, theirs, err := job.Pair()
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	defer null.Close()
	root := os.Geteuid() == 0
	insideUID, insideGID := p.Template.IDs()
	ambient := powers
	if len(p.Network.Ports) > 0 { // until the egress is made
		ambient = append(slices.Clone(powers), unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE)
	}
	attr := &os.ProcAttr{
		Env:   environment(),
		Files: []*os.File{null, null, null, theirs, executable},
		Dir:   "/",
		Sys: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC |
				unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
			UidMappings:                []syscall.SysProcIDMap{{ContainerID: insideUID, HostID: uid, Size: 1}},
			GidMappings:                []syscall.SysProcIDMap{{ContainerID: insideGID, HostID: gid, Size: 1}},
			GidMappingsEnableSetgroups: root,
			// Only root may drop its supplementary groups; others keep what they had.
			Credential:  &syscall.Credential{Uid: uint32(insideUID), Gid: uint32(insideGID), NoSetGroups: !root},
			AmbientCaps: ambient,
			Pdeathsig:   syscall.SIGKILL,
			Setsid:      true,
		},
	}
	var init *os.Process
	spawn.OnLauncher(func() {
		var undo func()
		if undo, err = spawn.Pin(0, milli); err == nil {
			defer undo()
			init, err = os.StartProcess(fmt.Sprintf("/proc/self/fd/%d", executableFD), []string{job.Name}, attr)
		}
	})
	if err != nil {
		if errno := syscall.Errno(0); errors.As(err, &errno) &&
			(errno == unix.EPERM || errno == unix.EACCES || errno == unix.ENOSPC) {
			err = sandbox.WithHint(err, userns.Hint(errno))
		}
		return nil, nil, errors.Join(fmt.Errorf("starting gVisor: %w", err), conn.Close())
	}
	return init, conn, nil
}

// executableFD is where the executable is in the new process at the moment of its exec.
const executableFD = job.ControlFD + 1

// environment is all that gVisor's processes have of ours.
func environment() []string {
	if dir := os.Getenv(debugVariable); dir != "" {
		return []string{debugVariable + "=" + dir}
	}
	return []string{}
}

// debugVariable names a folder for gVisor's own logs, which are large and slow.
const debugVariable = "WALDO_GVISOR_DEBUG"
