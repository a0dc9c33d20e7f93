package engine

import (
	"os"
	"os/exec"
	"syscall"
)

// inherit gives a process files, and returns their handles there, which are the same as here.
func inherit(c *exec.Cmd, files []*os.File) []uintptr {
	c.SysProcAttr = &syscall.SysProcAttr{}
	handles := make([]uintptr, len(files))
	for i, f := range files {
		handles[i] = f.Fd()
		_ = syscall.SetHandleInformation(syscall.Handle(f.Fd()), syscall.HANDLE_FLAG_INHERIT,
			syscall.HANDLE_FLAG_INHERIT)
		c.SysProcAttr.AdditionalInheritedHandles = append(c.SysProcAttr.AdditionalInheritedHandles,
			syscall.Handle(f.Fd()))
	}
	return handles
}

// peak is not known: Windows keeps it elsewhere.
func peak(*os.ProcessState) int64 { return 0 }
