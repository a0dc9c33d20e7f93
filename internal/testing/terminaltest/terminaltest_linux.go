// Package terminaltest gives tests a terminal and the text on it.
package terminaltest

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Pair returns the two ends of a new terminal: the person's and the program's.
func Pair(t *testing.T) (person, program *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("no pseudo-terminal: ", err)
	}
	person = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

func Echoes(t *testing.T, f *os.File) bool {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return mode.Lflag&unix.ECHO != 0
}

// Seen gathers what a person sees.
type Seen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Read gathers until the terminal ends.
func (s *Seen) Read(person *os.File) {
	b := make([]byte, 4096)
	for {
		n, err := person.Read(b)
		s.mu.Lock()
		s.b.Write(b[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *Seen) Has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.b.String(), text)
}

func Until(t *testing.T, why string, seen *Seen, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			seen.mu.Lock()
			defer seen.mu.Unlock()
			t.Fatalf("%s; seen: %q", why, seen.b.String())
		}
	}
}

// Text is everything that a person has seen.
func (s *Seen) Text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
