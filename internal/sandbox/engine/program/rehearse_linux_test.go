package program

import (
	"bytes"
	"testing"

	"waldo/internal/sandbox/engine/quickjs"
	"waldo/internal/sandbox/guest"
)

// TestRehearsal: a rehearsal leaves the machine and the process as they were, so programs cannot see it.
func TestRehearsal(t *testing.T) {
	var out bytes.Buffer
	p, _, _ := process(t, &out)
	image := func() quickjs.Image {
		i, err := p.machine.Image()
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	same := func(i quickjs.Image) bool { return bytes.Equal(i.Memory, p.base.Memory) && i.Stack == p.base.Stack }
	if err := p.rehearse(); err != nil {
		t.Fatal(err)
	}
	if !same(image()) {
		t.Error("the memory is not that of a fresh program")
	}
	if p.job.Code != nil || len(p.servers) != 0 || out.Len() != 0 || p.exit != -1 || p.machine == nil {
		t.Errorf("the process is not what it was: %+v %q %q", p.job, p.servers, out.String())
	}
	p.job = Job{Name: "script.js", Args: []string{}, Servers: []string{}, Code: []byte(
		"import * as all from 'waldo'; console.log(typeof rehearsal, 'rehearsal' in all, Math.random() === 0)")}
	if done, code, err := p.start(); done || err != nil {
		t.Fatal(code, err, out.String())
	}
	if code, err := p.loop(); code != 0 || err != nil || out.String() != "undefined false false\n" {
		t.Errorf("%d %v %q", code, err, out.String())
	}
	if same(image()) { // control
		t.Error("a program that has run leaves the memory of a fresh one")
	}
}

// TestRehearsalFails: a process whose rehearsal fails gets no job.
func TestRehearsalFails(t *testing.T) {
	now := rehearsal
	defer func() { rehearsal = now }()
	for _, code := range []string{"process.exit(3)", "throw new Error('x')", "no script"} {
		rehearsal = code
		if r := runCode(t, Job{Lang: guest.JavaScript, Code: []byte("console.log(1)")}, nil); r.code != ExitBroken ||
			r.out != "" {
			t.Errorf("%s: %+v", code, r)
		}
	}
}
