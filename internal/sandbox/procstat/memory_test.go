//go:build linux

package procstat

import (
	"bufio"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

const forks = `import os, sys, time
x = bytearray(b'1') * (64 << 20)
r, w = os.pipe()
for i in range(3):
  if os.fork() == 0:
    if sys.argv[1] == 'written': x[::4096] = b'2' * (64 << 8)
    os.write(w, b'.')
    time.sleep(60)
for i in range(3): os.read(r, 1)
print('ready', flush=True)
time.sleep(60)`

// TestWithin: 64 MiB that four processes share count once. If each writes to them, each has 64 MiB of its own.
func TestWithin(t *testing.T) {
	const mib = 1 << 20
	for why, want := range map[string]struct{ least, most int64 }{"shared": {64, 128}, "written": {256, 400}} {
		c := exec.Command("/bin/sh", "-c", `/usr/bin/python3 -c "$0" "$1" & wait`, forks, why)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(out).ReadString('\n')
		bound, below, once := Tree(c.Process.Pid), Within(c.Process.Pid, 1<<40), Within(c.Process.Pid, mib)
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
		if strings.TrimSpace(line) != "ready" || bound.Memory < 256*mib || below.Memory < 256*mib {
			t.Fatalf("%s: control: %q, %+v, %+v", why, line, bound, below)
		}
		if once.Memory < want.least*mib || once.Memory > want.most*mib {
			t.Errorf("%s: %d MiB, want %d to %d", why, once.Memory/mib, want.least, want.most)
		}
	}
}
