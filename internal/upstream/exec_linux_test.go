package upstream

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A server outside any sandbox does not outlive a waldo that is killed.
func TestServersDieWithWaldo(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "WALDO_TEST_SERVER=killed")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || syscall.Kill(pid, 0) != nil {
		t.Fatalf("control: no server runs: %q", line)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	running := func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && !strings.Contains(string(b), ") Z ")
	}
	for begin := time.Now(); running(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > 3*time.Second {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("the server %d has outlived waldo", pid)
		}
	}
}
