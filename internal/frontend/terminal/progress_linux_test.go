package terminal

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/testing/terminaltest"
)

// Long work shows how far it is at a terminal, and takes that away at its end; into a pipe nothing is written.
func TestProgressIsForTerminals(t *testing.T) {
	person, program := terminaltest.Pair(t)
	seen := &terminaltest.Seen{}
	go seen.Read(person)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var piped bytes.Buffer
	var work sync.WaitGroup
	work.Go(func() { _, _ = piped.ReadFrom(r) })
	var working sync.WaitGroup
	for _, on := range []*os.File{program, w} {
		working.Go(func() {
			bar := ProgressOf(on, "checking servers", 2)
			bar.Begin("first")()
			end := bar.Begin("second")
			time.Sleep(progressAfter * 3 / 2)
			end()
			bar.Close()
			bytes := Progress(on, "reading", 100)
			for range 3 {
				_, _ = bytes.Write(make([]byte, 20))
				time.Sleep(progressAfter * 3 / 5)
			}
			_ = bytes.Close()
		})
	}
	working.Wait()
	_ = w.Close()
	work.Wait()
	terminaltest.Until(t, "no progress at the terminal", seen, func() bool {
		return seen.Has("checking servers second") && seen.Has("(1/2)") && seen.Has("reading") && seen.Has("60%")
	})
	if seen.Has("first") {
		t.Error("it shows what is done as under way")
	}
	if piped.Len() > 0 {
		t.Errorf("a pipe got %q", strings.TrimSpace(piped.String()))
	}
}
