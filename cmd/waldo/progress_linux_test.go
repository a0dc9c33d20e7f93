package main

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// Long work shows how far it is at a terminal, and takes that away at its end; into a pipe nothing is written.
func TestProgressIsForTerminals(t *testing.T) {
	person, program := pseudoTerminal(t)
	seen := &screenOf{}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := person.Read(b)
			seen.mu.Lock()
			seen.b.Write(b[:n])
			seen.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
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
			bar := progressOf(on, "checking servers", 2)
			bar.begin("first")()
			end := bar.begin("second")
			time.Sleep(progressAfter * 3 / 2)
			end()
			bar.Close()
			bytes := progress(on, "reading", 100)
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
	until(t, "no progress at the terminal", seen, func() bool {
		return seen.has("checking servers second") && seen.has("(1/2)") && seen.has("reading") && seen.has("60%")
	})
	if seen.has("first") {
		t.Error("it shows what is done as under way")
	}
	if piped.Len() > 0 {
		t.Errorf("a pipe got %q", strings.TrimSpace(piped.String()))
	}
}
