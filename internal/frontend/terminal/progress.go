package terminal

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progressAfter is the delay before a progress bar appears. Shorter work shows no bar.
const progressAfter = time.Second

// Progress returns a writer that counts the bytes of long work and shows a bar on w, where w is a terminal. bytes is
// how many there will be; -1: unknown. Closing it takes the bar away. Elsewhere nothing is written.
func Progress(w io.Writer, what string, bytes int64) io.WriteCloser {
	if !OnScreen(w) {
		return Whole{io.Discard}
	}
	return &bar{w: w, what: what, bytes: bytes, began: time.Now()}
}

// bar is a bar that appears when the work has lasted progressAfter.
type bar struct {
	w     io.Writer
	what  string
	bytes int64
	began time.Time
	done  int64
	shown *progressbar.ProgressBar
}

func (b *bar) Write(p []byte) (int, error) {
	b.done += int64(len(p))
	if b.shown == nil && time.Since(b.began) > progressAfter {
		b.shown = progressbar.NewOptions64(b.bytes, progressbar.OptionSetWriter(b.w),
			progressbar.OptionSetDescription(b.what),
			progressbar.OptionShowBytes(true), progressbar.OptionSetWidth(24), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(), progressbar.OptionEnableColorCodes(false))
	}
	if b.shown != nil {
		_ = b.shown.Set64(b.done) // a terminal that has gone does not stop the work
		if b.done == 0 {          // of this the library draws nothing
			_ = b.shown.RenderBlank()
		}
	}
	return len(p), nil
}

// Close takes the bar away.
func (b *bar) Close() error {
	if b.shown == nil {
		return nil
	}
	return b.shown.Clear()
}

// Tasks shows on a terminal how many of some named pieces of long work are done, and which are under way.
type Tasks struct {
	what  string
	w     io.Writer
	all   int
	began time.Time
	end   chan struct{}
	drawn sync.WaitGroup

	mu    sync.Mutex
	done  int
	names []string
}

// ProgressOf starts a display for all parts of work on w, if w is a terminal; otherwise it writes nothing. Close ends
// it.
func ProgressOf(w io.Writer, what string, all int) *Tasks {
	t := &Tasks{what: what, w: w, all: all, began: time.Now(), end: make(chan struct{})}
	if !OnScreen(w) {
		return t
	}
	t.drawn.Go(func() {
		tick := time.NewTicker(progressAfter)
		defer tick.Stop()
		var shown *progressbar.ProgressBar
		for {
			select {
			case <-t.end:
				if shown != nil {
					_ = shown.Clear()
				}
				return
			case <-tick.C:
			}
			if shown == nil {
				shown = progressbar.NewOptions(t.all, progressbar.OptionSetWriter(t.w), progressbar.OptionSetWidth(24),
					progressbar.OptionShowCount(),
					progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(),
					progressbar.OptionEnableColorCodes(false))
				tick.Reset(progressAfter / 5)
			}
			t.draw(shown)
		}
	})
	return t
}

// draw shows how far the work is. A bar that is full would take itself away.
func (t *Tasks) draw(bar *progressbar.ProgressBar) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done < t.all {
		_ = bar.Set(t.done)
	}
	bar.Describe(fmt.Sprintf("%s %s (%s)", t.what, strings.Join(t.names, ", "), time.Since(t.began).Round(time.Second)))
}

// Begin notes that a piece is under way. The returned function notes its end.
func (t *Tasks) Begin(name string) (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names = append(t.names, name)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.done++
		if i := slices.Index(t.names, name); i >= 0 {
			t.names = slices.Delete(t.names, i, i+1)
		}
	}
}

// Close takes what is shown away.
func (t *Tasks) Close() {
	close(t.end)
	t.drawn.Wait()
}
