package main

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progressAfter is how long work lasts before a bar shows: what ends sooner needs none.
const progressAfter = time.Second

// progress returns a writer that counts the bytes of long work and shows a bar on w, where w is a terminal. bytes is
// how many there will be; -1: unknown. Closing it takes the bar away. Elsewhere nothing is written.
func progress(w io.Writer, what string, bytes int64) io.WriteCloser {
	if !onScreen(w) {
		return whole{io.Discard}
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
		b.shown = progressbar.NewOptions64(b.bytes, progressbar.OptionSetWriter(b.w), progressbar.OptionSetDescription(b.what),
			progressbar.OptionShowBytes(true), progressbar.OptionSetWidth(24), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(), progressbar.OptionEnableColorCodes(false))
	}
	if b.shown != nil {
		_ = b.shown.Set64(b.done) // a terminal that has gone does not stop the work
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
