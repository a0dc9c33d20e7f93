package exitcode

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"waldo/internal/model/display"
)

// Logger writes records of at least a level as lines for a person: the message, short values as (key=value …), and
// the cause. Each Write of w is a whole record.
type Logger struct {
	w     io.Writer
	least slog.Level
	times bool // each record begins with its time
	attrs []slog.Attr
	mu    *sync.Mutex
}

// NewLogger returns a handler for slog. times puts the time before each record.
func NewLogger(w io.Writer, least slog.Level, times bool) *Logger {
	return &Logger{w: w, least: least, times: times, mu: &sync.Mutex{}}
}

func (l *Logger) Enabled(_ context.Context, level slog.Level) bool { return level >= l.least }

func (l *Logger) WithAttrs(attrs []slog.Attr) slog.Handler {
	more := *l
	more.attrs = append(more.attrs[:len(more.attrs):len(more.attrs)], attrs...)
	return &more
}

// WithGroup returns the handler itself: waldo has no two keys of one name.
func (l *Logger) WithGroup(string) slog.Handler { return l }

// unasked begins what net/http logs about a host that sends an answer to no request. The host's own words follow.
const unasked = "Unsolicited response received on idle HTTP channel"

func (l *Logger) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, unasked) {
		r.Message = unasked
	}
	var b strings.Builder
	if l.times {
		b.WriteString(r.Time.UTC().Format(time.RFC3339) + " ")
	}
	b.WriteString("waldo: ")
	switch {
	case r.Level >= slog.LevelError:
		b.WriteString("error: ")
	case r.Level >= slog.LevelWarn:
		b.WriteString("warning: ")
	}
	b.WriteString(string(display.Lines(r.Message)))
	var short, causes []string
	each := func(a slog.Attr) bool {
		value := a.Value.Resolve().String()
		switch {
		case a.Key == "why" || a.Key == "error" || a.Key == "stack":
			causes = append(causes, value)
		case a.Key == "hint":
			causes = append(causes, "hint: "+value)
		default:
			short = append(short, a.Key+"="+string(display.Line(value)))
		}
		return true
	}
	for _, a := range l.attrs {
		each(a)
	}
	r.Attrs(each)
	if len(short) > 0 {
		b.WriteString(" (" + strings.Join(short, " ") + ")")
	}
	for _, c := range causes {
		b.WriteString(": " + string(display.Lines(c)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := io.WriteString(l.w, b.String()+"\n")
	return err
}
