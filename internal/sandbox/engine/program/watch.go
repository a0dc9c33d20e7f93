package program

import (
	"os"
	"time"
)

// hard is how long after its limit a program is ended that no interrupt reached, as in a long call of the interpreter.
const hard = 500 * time.Millisecond

// limitCPU ends the program when the process has used its processor time.
func (p *program) limitCPU() {
	if p.CPU > 0 {
		limit(p.CPU, func() {
			p.machine.Interrupt()
			time.Sleep(hard)
			os.Exit(ExitCPU)
		})
	}
}

// limit calls end when the process has used so much more processor time.
func limit(most time.Duration, end func()) {
	before := used()
	go func() {
		for spent := time.Duration(0); spent < most; spent = used() - before {
			time.Sleep(min(max((most-spent)/4, 5*time.Millisecond), 100*time.Millisecond))
		}
		end()
	}()
}

// watchLife ends the process when waldo has ended.
func (p *program) watchLife() {
	if p.Life == 0 {
		return
	}
	life := os.NewFile(p.Life, "life")
	go func() {
		_, _ = life.Read(make([]byte, 1))
		os.Exit(ExitBroken)
	}()
}
