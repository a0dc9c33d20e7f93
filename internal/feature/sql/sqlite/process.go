package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"time"

	"waldo/internal/budget"
	"waldo/internal/feature/sql/answer"
)

// A question is asked in a process of its own: SQLite's own functions can compute for hours, and nothing but the end of
// their process ends them. The same process has limits of memory and processor time.

// argument starts waldo's own program as that process.
const argument = "waldo-sqlite"

// maxMemory is the memory of a question's process, in bytes.
const maxMemory = 512 << 20

// maxMessage bounds a question, and an answer, in bytes. maxComplaint bounds what the process writes beside it.
const (
	maxMessage   = 12 << 20
	maxComplaint = 64 << 10
)

// question comes from its standard input.
type question struct {
	Path      string
	Query     string // empty: describe the tables whose name has Part in it
	Part      string
	Arguments []any
	Limits    answer.Limits
	Time      time.Duration // until the process ends itself
}

// reply goes to its standard output.
type reply struct {
	Rows    *answer.Rows
	Schema  *answer.Schema
	Refused *Error
	Said    string // SQLite's own message
	Failed  string
}

// said is a message of SQLite's.
type said string

func (s said) Error() string { return string(s) }

// Main is for the start of main: where waldo was started by this package, it does not return.
func Main() {
	if len(os.Args) != 2 || os.Args[1] != argument {
		return
	}
	var q question
	if err := json.NewDecoder(io.LimitReader(os.Stdin, maxMessage)).Decode(&q); err != nil || q.Time <= 0 {
		fmt.Fprintln(os.Stderr, "waldo: this command is a part of waldo's own")
		os.Exit(2)
	}
	debug.SetMemoryLimit(maxMemory / 2)
	limit(maxMemory, q.Time)
	time.AfterFunc(q.Time, func() { os.Exit(3) })
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false) // six bytes for one
	if err := out.Encode(q.answer()); err != nil {
		os.Exit(2)
	}
	os.Exit(0)
}

// answer asks in this process.
func (q question) answer() (r reply) {
	ctx, cancel := context.WithTimeout(context.Background(), q.Time)
	defer cancel()
	before, err := opened()
	if err != nil {
		return reply{Failed: err.Error()}
	}
	db, c, err := open(ctx, q.Path)
	if err == nil {
		defer db.Close()
		defer c.Close()
		if q.Query != "" {
			r.Rows, err = ask(ctx, c, q.Query, q.Arguments, q.Limits)
		} else {
			r.Schema, err = describe(ctx, c, q.Part)
		}
		if moved := beside(q.Path, before); moved != nil {
			r, err = reply{}, moved
		}
	}
	switch {
	case err == nil:
	case errors.As(err, &r.Refused):
	case message(err) != "":
		r.Said = message(err)
	default:
		r.Failed = err.Error()
	}
	return r
}

// Query runs one statement with arguments and returns at most the rows of limits. A reply beyond answer.Part covers the
// most that it can have.
func Query(
	ctx context.Context, path, query string, arguments []any, limits answer.Limits, room *budget.Lease,
) (*answer.Rows, error) {
	if strings.TrimSpace(query) == "" {
		return nil, refuse("statement", "the text holds no statement")
	}
	r, err := question{Path: path, Query: query, Arguments: arguments, Limits: limits}.ask(ctx, room)
	if err != nil || r.Rows == nil {
		return nil, err
	}
	out := answer.New(r.Rows.Columns, limits)
	out.Rows, out.Cut = r.Rows.Rows, r.Rows.Cut
	return out, nil
}

// Describe returns the tables whose names have part in them.
func Describe(ctx context.Context, path, part string, room *budget.Lease) (*answer.Schema, error) {
	r, err := question{Path: path, Part: part}.ask(ctx, room)
	return r.Schema, err
}

// usualTime holds where the caller set no deadline.
const usualTime = 30 * time.Second

// ask starts the process and reads its reply.
func (q question) ask(ctx context.Context, room *budget.Lease) (r reply, err error) {
	q.Time = usualTime
	if until, ok := ctx.Deadline(); ok {
		q.Time = max(time.Until(until), 0) + time.Second // this process ends it before
	}
	text, err := json.Marshal(q)
	if err != nil {
		return r, refuse("arguments", "an argument is a text, a number, true, false or null")
	}
	exe, err := os.Executable()
	if err != nil {
		return r, err
	}
	out, stderr := received{ctx: ctx, room: room, most: maxMessage}, received{most: maxComplaint}
	process := exec.CommandContext(ctx, exe, argument)
	process.Stdin, process.Stdout, process.Stderr = bytes.NewReader(text), &out, &stderr
	process.Env, process.WaitDelay = []string{"GOTRACEBACK=none", "SYSTEMROOT=" + os.Getenv("SYSTEMROOT")}, time.Second
	err = process.Run()
	switch {
	case out.full != nil:
		return r, out.full
	case ctx.Err() != nil:
		return r, ctx.Err()
	case process.ProcessState != nil && process.ProcessState.ExitCode() == 3:
		return r, context.DeadlineExceeded
	case strings.Contains(string(stderr.b), "out of memory") || strings.Contains(string(stderr.b), "cannot allocate"):
		return r, refuse("memory", "the query needs more than %d MB of memory", maxMemory>>20)
	case err != nil:
		return r, fmt.Errorf("the process of the query ended: %w", err)
	}
	defer room.Turn(int64(len(out.b)))()
	if err := json.Unmarshal(out.b, &r); err != nil {
		return r, fmt.Errorf("the process of the query answered: %w", err)
	}
	switch {
	case r.Refused != nil:
		return r, r.Refused
	case r.Said != "":
		return r, said(r.Said)
	case r.Failed != "":
		return r, errors.New(r.Failed)
	}
	return r, nil
}

// received keeps the first bytes of a stream. Beyond answer.Part they need room.
type received struct {
	ctx  context.Context
	room *budget.Lease // nil: there is never more than answer.Part
	most int
	b    []byte
	full error // there was no room
}

// Write satisfies io.Writer. It takes all, or fails where there is no room.
func (r *received) Write(p []byte) (int, error) {
	if len(r.b)+len(p) > answer.Part && r.room != nil {
		if r.full = r.room.Cover(r.ctx, answer.Memory(r.most)); r.full != nil {
			return 0, r.full
		}
	}
	r.b = append(r.b, p[:min(len(p), r.most-len(r.b))]...)
	return len(p), nil
}

// Message returns what SQLite says about a statement; "" for another error.
func Message(err error) string {
	if s := said(""); errors.As(err, &s) {
		return string(s)
	}
	return message(err)
}
