package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"waldo/internal/executor/runner"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/sandbox"
	"waldo/internal/storage/workspace"
)

// job is a decided run, as it goes to a worker.
type job struct {
	Decision string         `json:"decision"`
	Danger   int            `json:"danger"`
	Policy   string         `json:"policy"` // digest of the configuration that decided
	Call     request        `json:"call"`
	Run      call.Run       `json:"run"`    // without its limits
	Limits   sandbox.Limits `json:"limits"` // as they hold
	Level    string         `json:"level"`
	Files    []file         `json:"files"`
}

// request is the part of a call that a decision depends on.
type request struct {
	ID          string          `json:"id"`
	Capability  call.Capability `json:"capability"`
	Args        json.RawMessage `json:"args"`
	Principal   call.Principal  `json:"principal"`
	Channel     string          `json:"channel"`
	Agent       string          `json:"agent"`
	Parent      string          `json:"parent"`
	Depth       int             `json:"depth"`
	ToolDigest  string          `json:"tool_digest"`
	Annotations json.RawMessage `json:"annotations,omitempty"`
}

// jobOf returns the job of a run, with the files of its session. It returns false where they are too large.
func jobOf(run runner.Remote) (j job, fits bool, err error) {
	d := run.Decision
	c := d.Call
	j = job{Decision: d.ID, Danger: d.Danger, Policy: d.Policy, Run: run.Run, Limits: run.Limits, Level: run.Level,
		Call: request{ID: c.ID, Capability: c.Capability, Args: c.Args.Raw(), Principal: c.Principal, Channel: c.Channel,
			Agent: c.Agent, Parent: c.Parent, Depth: c.Depth, ToolDigest: c.ToolDigest, Annotations: c.Annotations.Raw()}}
	j.Run.Limits, j.Run.Template = call.Limits{}, "" // the host's, or the contract's
	if run.Files != nil {
		j.Files, err = pack(run.Files, nil)
	}
	if errors.Is(err, workspace.ErrTooMuch) {
		return j, false, nil
	}
	return j, err == nil, err
}

// asked returns the call of a job, in a session.
func (j job) asked(n call.Session) (c call.Call, err error) {
	r := j.Call
	c = call.Call{ID: r.ID, Capability: r.Capability, Session: n, Principal: r.Principal, Channel: r.Channel,
		Agent: r.Agent, Parent: r.Parent, Depth: r.Depth, ToolDigest: r.ToolDigest}
	if c.Args, err = call.ParseArgs(r.Args); err == nil && len(r.Annotations) > 0 {
		c.Annotations, err = strictjson.Parse(r.Annotations)
	}
	run := j.Run
	run.Limits, run.NoTools = call.Limits(j.Limits), true
	run.Isolation = j.Level
	c.Run = &run
	return c, err
}

// result is the end of a run, as it comes back.
type result struct {
	Facts   facts.Facts  `json:"facts"`
	Output  int64        `json:"output"` // the limit of each stream, which facts leave out of their JSON
	Content []content    `json:"content"`
	IsError bool         `json:"is_error"`
	Refused *call.Reason `json:"refused,omitempty"` // why it did not begin
	Error   string       `json:"error,omitempty"`   // the worker itself failed; for the operator
	Files   []file       `json:"files"`             // that differ from those that were sent
	Removed []file       `json:"removed"`           // of those that were sent
}

type content struct {
	Type string          `json:"type"`
	Text string          `json:"text,omitempty"`
	Raw  json.RawMessage `json:"raw,omitempty"`
}

// resultOf returns the result of an outcome, without the secrets that the worker knows: the gateway cannot hide them.
func resultOf(o call.Outcome, hide interface {
	Text(string) string
	JSON([]byte) []byte
}) result {
	r := result{Facts: o.Facts, Output: o.Facts.Limits.Output, IsError: o.IsError, Refused: o.Refused}
	r.Facts.Stdout, r.Facts.Stderr = hide.Text(o.Facts.Stdout), hide.Text(o.Facts.Stderr)
	for _, c := range o.Content {
		one := content{Type: c.Type, Text: hide.Text(c.Text)}
		if !c.Raw.IsZero() {
			one.Raw = hide.JSON(c.Raw.Raw())
		}
		r.Content = append(r.Content, one)
	}
	return r
}

// outcome is the outcome that a result describes.
func (r result) outcome() (o call.Outcome, err error) {
	o = call.Outcome{Facts: r.Facts, IsError: r.IsError, Refused: r.Refused}
	o.Facts.Limits.Output = r.Output
	for _, c := range r.Content {
		one := call.Content{Type: c.Type, Text: c.Text}
		if len(c.Raw) > 0 {
			if one.Raw, err = strictjson.Parse(c.Raw); err != nil {
				return o, err
			}
		}
		o.Content = append(o.Content, one)
	}
	return o, nil
}

// file is one of a session's files.
type file struct {
	Folder workspace.Folder `json:"folder"` // input or output
	Name   string           `json:"name"`
	Data   []byte           `json:"data,omitempty"`
	Exec   bool             `json:"exec,omitempty"`
}

// The bounds of the files that go with a run, and that come back.
const (
	mostFiles = 1000
	mostBytes = 16 << 20
)

// sent are the folders that a run has at a worker, too.
var sent = []workspace.Folder{workspace.Input, workspace.Output}

// pack returns the files of a session that differ from those of before. Beyond the bounds it is workspace.ErrTooMuch.
func pack(ws *workspace.Workspace, before []file) (all []file, err error) {
	left := int64(mostBytes)
	for _, folder := range sent {
		names, err := ws.List(folder, mostFiles+1)
		if err != nil {
			return nil, err
		}
		if len(names) > mostFiles {
			return nil, fmt.Errorf("%s has more than %d files: %w", folder, mostFiles, workspace.ErrTooMuch)
		}
		for _, n := range names {
			f, err := ws.Get(folder, n.Name)
			if err != nil {
				return nil, err
			}
			data, err := io.ReadAll(io.LimitReader(f, left+1))
			if err = errors.Join(err, f.Close()); err != nil {
				return nil, err
			}
			one := file{folder, n.Name, data, n.Exec}
			if slices.ContainsFunc(before, one.same) {
				continue
			}
			if left -= int64(len(data)); left < 0 {
				return nil, fmt.Errorf("the files have more than %d MB: %w", mostBytes>>20, workspace.ErrTooMuch)
			}
			all = append(all, one)
		}
	}
	return all, nil
}

func (f file) same(g file) bool {
	return f.Folder == g.Folder && f.Name == g.Name && f.Exec == g.Exec && bytes.Equal(f.Data, g.Data)
}

// gone returns the names of files of before that are not there now.
func gone(ws *workspace.Workspace, before []file) (names []file) {
	for _, b := range before {
		if f, err := ws.Get(b.Folder, b.Name); err == nil {
			_ = f.Close()
		} else {
			names = append(names, file{Folder: b.Folder, Name: b.Name})
		}
	}
	return names
}

// unpack stores files in a session's workspace, and removes others.
func unpack(ws *workspace.Workspace, files, removed []file) (err error) {
	for _, f := range removed {
		if slices.Contains(sent, f.Folder) {
			err = errors.Join(err, ws.Remove(f.Folder, f.Name))
		}
	}
	for _, f := range files {
		if !slices.Contains(sent, f.Folder) {
			continue
		}
		one := ws.Put(f.Folder, f.Name, bytes.NewReader(f.Data), int64(len(f.Data)))
		if one == nil && f.Exec {
			one = ws.Executable(f.Folder, f.Name)
		}
		err = errors.Join(err, one)
	}
	return err
}
