package exitcode

import (
	"bytes"
	"log"
	"log/slog"
	"testing"
)

// TestUnasked: a host that sends an answer to no request does not choose what waldo prints.
func TestUnasked(t *testing.T) {
	was := slog.Default()
	defer slog.SetDefault(was)
	var out bytes.Buffer
	slog.SetDefault(slog.New(NewLogger(&out, slog.LevelInfo, false)))
	log.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "HTTP/1.1 words", nil)
	log.Print("another line")
	if want := "waldo: Unsolicited response received on idle HTTP channel\nwaldo: another line\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}
