package upstream

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A server outside any sandbox ends when waldo is killed, when it ends itself, or when the process that stops it
// ends. So do its descendants in sessions of their own.
func TestServersDieWithWaldo(t *testing.T) {
	for why, end := range map[string]func(t *testing.T) (line string, end func()){
		"waldo is killed": func(t *testing.T) (string, func()) {
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
			return line, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
		},
		"it is stopped": func(t *testing.T) (string, func()) {
			p, err := Exec(context.Background(), lingers, nil, "/")
			if err != nil {
				t.Fatal(err)
			}
			line, _ := bufio.NewReader(p.Stdout).ReadString('\n')
			return line, func() { p.Kill(); _ = p.Wait(); p.Kill() }
		},
		"it ends": func(t *testing.T) (string, func()) {
			p, err := Exec(context.Background(), lingers, nil, "/")
			if err != nil {
				t.Fatal(err)
			}
			line, _ := bufio.NewReader(p.Stdout).ReadString('\n')
			server, _ := strconv.Atoi(strings.Fields(line + " 0")[0])
			return line, func() { _ = syscall.Kill(server, syscall.SIGKILL); _ = p.Wait() }
		},
	} {
		t.Run(why, func(t *testing.T) {
			line, end := end(t)
			pids := strings.Fields(line)
			for _, pid := range pids {
				if !runs(pid) || len(pids) != 2 {
					t.Fatalf("control: not running: %q", line)
				}
			}
			end()
			for begin := time.Now(); runs(pids[0]) || runs(pids[1]); time.Sleep(5 * time.Millisecond) {
				if time.Since(begin) > 30*time.Second {
					t.Errorf("%q: the server runs: %v; what it left: %v", line, runs(pids[0]), runs(pids[1]))
					for _, pid := range pids {
						n, _ := strconv.Atoi(pid)
						_ = syscall.Kill(n, syscall.SIGKILL)
					}
					return
				}
			}
		})
	}
}

// waldo can end a server that stops (SIGSTOP) its keeper, and waits for that.
func TestServerThatStopsItsKeeper(t *testing.T) {
	p, err := Exec(context.Background(),
		[]string{"/bin/sh", "-c", "kill -STOP $PPID; echo $PPID $$; exec sleep 60"}, nil, "/")
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(p.Stdout).ReadString('\n')
	pids := strings.Fields(line)
	if len(pids) != 2 || !runs(pids[1]) {
		t.Fatalf("control: not running: %q", line)
	}
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) { // it stops once its threads have seen the signal
		b, err := os.ReadFile("/proc/" + pids[0] + "/stat")
		if err == nil && strings.Contains(string(b), ") T ") {
			break
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("control: its keeper is not stopped: %s %v", b, err)
		}
	}
	p.Kill()
	over := make(chan error, 1)
	go func() { over <- p.Wait() }()
	select {
	case err := <-over:
		if err != nil {
			t.Errorf("its keeper did not end by itself: %v", err) // but was killed when all patience was over
		}
	case <-time.After(30 * time.Second):
		t.Error("waited for in vain")
		keeper, _ := strconv.Atoi(pids[0])
		_ = syscall.Kill(keeper, syscall.SIGCONT)
		<-over
	}
	if runs(pids[1]) {
		t.Error("the server runs")
	}
}

func runs(pid string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// A program that cannot be started gives an error.
func TestExecOfNothing(t *testing.T) {
	for _, program := range []string{"/nowhere/at-all", "/etc/passwd", "no-such-program"} {
		if _, err := Exec(context.Background(), []string{program}, nil, "/"); err == nil {
			t.Errorf("%s was started", program)
		}
	}
}

// A program is called by its whole path, which is where an interpreter looks for its library.
func TestExecNamesTheProgramByItsPath(t *testing.T) {
	p, err := Exec(context.Background(), []string{"sh", "-c", "tr '\\0' ' ' </proc/$$/cmdline; echo"},
		[]string{"PATH=/nowhere:/usr/bin:/bin"}, "/")
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(p.Stdout).ReadString('\n')
	p.Kill()
	_ = p.Wait()
	if path, _ := exec.LookPath("sh"); !strings.HasPrefix(line, path+" -c ") {
		t.Errorf("called %q", line)
	}
}
