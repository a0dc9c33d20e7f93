//go:build linux && (amd64 || arm64)

package keeper

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// taking connects to the socket and prints how many bytes and descriptors it gets.
const taking = `
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
text, files, _, _ = socket.recv_fds(s, 4096, 9)
print(len(text) > 0, len(files))
`

// giving offers five descriptors as if they were namespaces.
const giving = `
import os, socket, sys
l = socket.socket(socket.AF_UNIX)
l.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
l.listen()
print("ready", flush=True)
while True:
    c, _ = l.accept()
    try: socket.send_fds(c, [b'{"key": "k"}'], [0] * 5)
    except OSError: pass
    c.close()
`

// as returns a Python program that runs as this user, or as nobody.
func as(nobody bool, code string, args ...string) *exec.Cmd {
	c := exec.Command("/usr/bin/python3", append([]string{"-I", "-S", "-c", code}, args...)...)
	c.Dir = "/"
	if nobody {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	return c
}

// open makes a folder that all users can enter and write to, as that of a named sandbox is not.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "keeper")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestAnotherUser: namespaces are given to waldos of the same user alone, and taken from these alone, also where
// another user can reach the folder.
func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	dir := open(t)
	h := &Hold{terms: terms{Key: "k"}, files: []*os.File{null, null, null, null, null}}
	if err := h.give(dir); err != nil {
		t.Fatal(err)
	}
	defer h.close()
	socket, _ := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if len(socket) != 1 || os.Chmod(socket[0], 0o777) != nil {
		t.Fatalf("%q", socket)
	}
	for nobody, want := range map[bool]string{false: "True 5\n", true: "False 0\n"} {
		if got, err := as(nobody, taking, socket[0]).CombinedOutput(); err != nil || string(got) != want {
			t.Errorf("given to another user %v: %q, wanted %q: %v", nobody, got, want, err)
		}
	}

	for _, nobody := range []bool{false, true} {
		dir := open(t)
		c := as(nobody, giving, filepath.Join(dir, "x"+suffix))
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q %v", line, err)
		}
		got, err := take(dir)
		if err != nil || (got == nil) != nobody || got != nil && (got.Key != "k" || len(got.files) != 5) {
			t.Errorf("taken from another user %v: %+v %v", nobody, got, err)
		}
		_ = got.Close()
		_, _ = c.Process.Kill(), c.Wait()
	}
}
