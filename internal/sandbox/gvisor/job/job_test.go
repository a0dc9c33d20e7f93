//go:build linux

package job

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pair(t testing.TB) (a, b *Conn) {
	t.Helper()
	a, f, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	b, err = Open(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	return a, b
}

func TestMessagesAndDescriptors(t *testing.T) {
	a, b := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ask := Ask{Run: &Run{Argv: []string{"x", strings.Repeat("long", 100000)}, Bridge: true}}
	go func() { _ = a.Send(ask, w, w); _ = a.Send(Ask{Kill: &Kill{}}); _ = w.Close() }()
	var got Ask
	files, err := b.Receive(&got)
	if err != nil || len(files) != 2 || got.Run == nil || len(got.Run.Argv[1]) != 400000 {
		t.Fatalf("%v, %d descriptors, %v", err, len(files), got.Run != nil)
	}
	for _, f := range files {
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a received descriptor would be inherited: %v", err)
		}
		f.Close()
	}
	got = Ask{}
	if files, err = b.Receive(&got); err != nil || len(files) != 0 || got.Kill == nil {
		t.Errorf("the second message: %v %d %+v", err, len(files), got)
	}
	if b.Said() {
		t.Error("nothing was said")
	}
	_ = a.Close()
	if !b.Said() {
		t.Error("the other end is gone")
	}
	if _, err := b.Receive(&got); !errors.Is(err, io.EOF) {
		t.Errorf("a closed end: %v", err)
	}
}

func TestFramesAreBounded(t *testing.T) {
	for _, row := range []struct {
		why, frame string
		gone       bool
	}{
		{"a length that nothing follows is not believed", string(binary.LittleEndian.AppendUint32(nil, maxFrame+1)), false},
		{"half a length", "\x01", true},
		{"not JSON", "\x01\x00\x00\x00{", false},
	} {
		t.Run(row.why, func(t *testing.T) {
			a, b := pair(t)
			_, _ = a.c.Write([]byte(row.frame))
			if row.gone {
				_ = a.Close()
			}
			b.SetReadDeadline(time.Now().Add(time.Minute))
			var got Ask
			_, err := b.Receive(&got)
			if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// FuzzReceive: for every input Receive returns a message or an error, and a message that it returns can be
// encoded again.
func FuzzReceive(f *testing.F) {
	good, _ := encode(Ask{Run: &Run{Argv: []string{"ls"}}})
	f.Add(good)
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		x, y := pair(t)
		go func() { _, _ = x.c.Write(b); _ = x.Close() }()
		var got Ask
		if _, err := y.Receive(&got); err != nil {
			return
		}
		if _, err := encode(got); err != nil {
			t.Errorf("%+v cannot be said again: %v", got, err)
		}
	})
}

// TestEnd: an end arrives as it was sent.
func TestEnd(t *testing.T) {
	a, b := pair(t)
	for _, e := range []End{
		{Denials: []Denial{}},
		{Status: 256, Still: true, CPU: time.Second, Memory: 1 << 40, Pids: 3,
			Denials: []Denial{{"network", "a\"b", "EPERM"}}},
		{NoStart: 2, Over: "cpu", PidsDenied: true, Denials: []Denial{}},
		{Status: 9, Over: "memory", Denials: []Denial{}},
	} {
		if err := a.Send(Answer{End: &e}); err != nil {
			t.Fatal(err)
		}
		var got Answer
		if _, err := b.Receive(&got); err != nil || !reflect.DeepEqual(got, Answer{End: &e}) {
			t.Errorf("%v: %+v, not %+v", err, got.End, e)
		}
	}
	for _, e := range []End{{Status: 0x137f}, {Status: 0xffff}, {Status: 1 << 16}, {CPU: -1}, {Memory: -1}, {Pids: -1}} {
		b, err := e.append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseEnd(b); err == nil {
			t.Errorf("an end that no command has: %+v", got)
		}
	}
}

// FuzzEnd: every input decodes to an end or an error, and a decoded end encodes to the same bytes.
func FuzzEnd(f *testing.F) {
	for _, e := range []End{{}, {Still: true, Status: 1, Pids: 2, Denials: []Denial{{"syscall", "x", "EPERM"}}}} {
		b, _ := e.append(nil)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseEnd(b)
		if err != nil {
			return
		}
		if ws := syscall.WaitStatus(e.Status); ws.Exited() == ws.Signaled() || e.CPU < 0 || e.Memory < 0 || e.Pids < 0 {
			t.Errorf("%+v is no end", e)
		}
		said, err := e.append(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseEnd(said)
		if err != nil || again.Status != e.Status || again.CPU != e.CPU || again.Over != e.Over ||
			len(again.Denials) != len(e.Denials) {
			t.Errorf("%+v became %+v: %v", e, again, err)
		}
	})
}

// ignoresSIGCHLD reads a process's status. The test's parent can have ignored other signals too.
func ignoresSIGCHLD(status string) bool {
	_, rest, _ := strings.Cut(status, "SigIgn:\t")
	mask, err := strconv.ParseUint(strings.SplitN(rest, "\n", 2)[0], 16, 64)
	return err == nil && mask&(1<<(unix.SIGCHLD-1)) != 0
}

// TestSleeper: the program runs on this machine's kernel too, sleeps, and leaves no zombies.
func TestSleeper(t *testing.T) {
	f, err := Sleeper()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := exec.Command("/proc/self/fd/3")
	c.ExtraFiles = []*os.File{f}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var st []byte
	for range 6000 { // until it has come so far: a busy machine takes its time
		if st, err = os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid)); ignoresSIGCHLD(string(st)) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil || !ignoresSIGCHLD(string(st)) {
		t.Errorf("SIGCHLD is not ignored: %v %s", err, st)
	}
	time.Sleep(50 * time.Millisecond)
	if err := c.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("it has ended: %v", err)
	}
	_ = c.Process.Kill()
	if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it ended otherwise: %v", err)
	}
}

// FuzzAddress: for every input the address in a denial is short plain text, and an internet address is valid.
func FuzzAddress(f *testing.F) {
	f.Add([]byte{2, 0, 0, 80, 192, 0, 2, 1})
	f.Add([]byte{1, 0, 'x', 0, 'y'})
	f.Add([]byte{10, 0, 1, 187, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		got := Address(b)
		if len(got) > 3*len(b)+len("unix:")+50 || strings.ContainsRune(got, 0) || strings.ToValidUTF8(got, "") != got {
			t.Errorf("%q", got)
		}
		if got != "" && !strings.HasPrefix(got, "unix:") {
			if _, err := netip.ParseAddrPort(got); err != nil {
				t.Errorf("%q: %v", got, err)
			}
		}
		if _, err := json.Marshal(Denial{What: got}); err != nil {
			t.Error(err)
		}
	})
}
