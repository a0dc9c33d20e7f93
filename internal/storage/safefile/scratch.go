package safefile

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Scratch makes a new empty folder with mode 0700 below dir. It removes those of processes that have ended.
func Scratch(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%s is not a folder", dir)
	}
	old, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range old {
		owner, _, _ := strings.Cut(e.Name(), "-")
		if pid, err := strconv.Atoi(owner); err == nil && pid > 0 && !alive(pid) {
			_ = os.RemoveAll(filepath.Join(dir, e.Name())) // best effort
		}
	}
	return os.MkdirTemp(dir, strconv.Itoa(os.Getpid())+"-")
}

// alive reports whether a process exists. Where that is unknown, it does.
func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = p.Signal(syscall.Signal(0))
	return err == nil || err != os.ErrProcessDone && err != syscall.ESRCH
}
