package program

import (
	"fmt"
	"io"

	"waldo/internal/sandbox/guest"
)

// rehearsal is run before the job is there. BenchmarkWarmEngine shows its use: the first program of a process takes
// twice as long as the second, because it is the first to use the code and the memory.
var rehearsal = "console.log(typeof rehearsal.tool, [1, { a: 'b' }]); await null;"

// rehearse runs the rehearsal in each language, and restores the machine and p.
func (p *program) rehearse() error {
	for _, lang := range []guest.Lang{guest.JavaScript, guest.TypeScript} {
		if err := p.rehearseIn(lang); err != nil {
			return fmt.Errorf("the rehearsal in %s: %w", lang, err)
		}
	}
	return nil
}

func (p *program) rehearseIn(lang guest.Lang) error {
	before := *p
	defer func() { *p = before }()
	p.out = [2]io.Writer{io.Discard, io.Discard}
	text, err := Job{Lang: lang, Servers: []string{"rehearsal"}, Code: []byte(rehearsal)}.Text()
	if err != nil {
		return err
	}
	if p.job, err = readJob(text); err != nil {
		return err
	}
	p.servers = p.job.Servers
	done, code, err := p.start()
	if !done && err == nil {
		code, err = p.loop()
	}
	if err == nil && code != 0 {
		err = fmt.Errorf("it ended with status %d", code)
	}
	if err != nil {
		return err
	}
	return p.machine.Become(p.base)
}
