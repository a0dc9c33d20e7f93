package contract

import "time"

// Limits bound the sandbox of a server or of one run. A zero field takes waldo's default. Servers have neither OutputKB nor
// CPU.
type Limits struct {
	MemoryMB, Pids, Files, DiskMB, OutputKB int
	CPU                                     time.Duration // of the whole process tree
}

// equip reads the keys that say what the sandbox of a capability is made of.
func (p *parser) equip(c *Contract, f field) {
	switch f.name {
	case "template":
		c.Template = p.text(f)
	case "limits":
		c.Run = p.sandboxLimits(f, inRun, 1<<16)
	case "input":
		c.Input = p.text(f)
	case "env":
		c.Env = p.pairs(f)
	}
}

// sandboxLimits reads limits with the keys of a scope.
func (p *parser) sandboxLimits(f field, scope string, maxFiles int) Limits {
	var l Limits
	for _, g := range p.fields(f.val, scope) {
		switch g.name {
		case "memory_mb":
			l.MemoryMB = p.integer(g, 16, 1<<20)
		case "cpu_seconds":
			l.CPU = time.Duration(p.integer(g, 1, 24*3600)) * time.Second
		case "pids":
			l.Pids = p.integer(g, 1, 1<<15)
		case "files":
			l.Files = p.integer(g, 16, maxFiles)
		case "disk_mb":
			l.DiskMB = p.integer(g, 1, 1<<20)
		case "output_kb":
			l.OutputKB = p.integer(g, 1, 1<<20)
		}
	}
	return l
}

func (l Limits) normal() map[string]any {
	m := map[string]any{}
	for k, n := range map[string]int{"memory_mb": l.MemoryMB, "cpu_seconds": int(l.CPU / time.Second), "pids": l.Pids,
		"files": l.Files, "disk_mb": l.DiskMB, "output_kb": l.OutputKB} {
		putIf(m, k, n, n > 0)
	}
	return m
}

// completeRun makes processor time fit a time limit that was written.
func (c *Contract) completeRun() {
	if _, written := c.Keys["timeout_seconds"]; written && c.Run.CPU == 0 && c.Timeout > defaultCPU {
		c.Run.CPU = c.Timeout
	}
}

// defaultCPU is the processor time of a run whose contract names none.
const defaultCPU = 10 * time.Second
