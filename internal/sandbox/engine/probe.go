package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/engine/program"
	"waldo/internal/sandbox/guest"
)

// trial is a profile of little, to see whether a driver works here.
func trial() sandbox.Profile {
	return sandbox.Profile{ID: "probe", Template: sandbox.Template{Name: "host"}, Limits: sandbox.Limits{
		Wall: 20 * time.Second, CPU: 20 * time.Second, Memory: 64 << 20, Pids: 64, Files: 64, Disk: 1 << 20,
		Inodes: 100,
		Output: 4 << 10}, Tmpfs: []sandbox.Tmpfs{{Target: "/workspace/output", Bytes: 1 << 20, Inodes: 100,
		Export: true}}}
}

// attempts are what a program tries, one line of output each. None may succeed.
const attempts = `
const names = ['require("child_process")', 'require("net").connect', 'fetch', 'WebAssembly', 'Deno', 'Bun', 'host', 'std', 'os', 'Worker'];
for (const n of names) { let v; try { v = eval(n) } catch {} if (v !== undefined) console.log(n) }
const fs = require('fs');
for (const f of ['/etc/hostname', '/proc/self/environ', '../../etc/passwd', 'C:\\Windows\\win.ini']) {
  try { fs.readFileSync(f); console.log(f) } catch {}
}
try { await import('/etc/hostname'); console.log('import') } catch {}
fs.writeFileSync('/workspace/output/control', 'x');
if (fs.readFileSync('/workspace/output/control', 'utf8') === 'x') console.log('done');
`

// Probe runs programs that try what must not work, and one that never ends.
func (d *Driver) Probe(ctx context.Context) sandbox.Report {
	r := sandbox.Report{Driver: d.Name(), OK: true}
	add := func(name, what string, err error) { r.Add(sandbox.Checked(name, true, what, err)) }
	add("contained", "a program found no files but its own, no network, no processes and no other engine",
		d.expect(ctx, trial(), attempts, "done\n", facts.OK))
	p := trial()
	p.Limits.Wall = time.Second
	add("time", "a program without an end was ended", d.expect(ctx, p, "for (;;);", "", facts.Timeout))
	p = trial()
	p.Limits.Memory = 16 << 20
	add("memory", "a program that takes all memory was ended", d.expect(ctx, p,
		"const a = []; for (;;) a.push('x'.repeat(9999) + a.length)", "", facts.OOM))
	if within := d.inner(ctx); within != nil {
		r.Add(sandbox.Ability{Name: "process in a sandbox", OK: true,
			What: "the process of a program is in a sandbox of " + within.Name()})
	} else {
		r.Add(sandbox.Ability{Name: "process in a sandbox",
			What: plainWarning(d.why), Hint: "Linux with namespaces, or with Landlock (6.12), has such sandboxes"})
	}
	return r
}

// expect runs a program and compares its end.
func (d *Driver) expect(ctx context.Context, p sandbox.Profile, code, out string, status facts.Status) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := d.Start(ctx, p)
	if err != nil {
		return err
	}
	defer b.Close()
	job, err := program.Job{Lang: guest.JavaScript, Code: []byte(code)}.Text()
	if err != nil {
		return err
	}
	f, err := b.Run(ctx, sandbox.Command{Argv: Argv, Stdin: guest.Stdin(program.Prelude, job, nil)})
	if err != nil {
		return err
	}
	if f.Stdout != out || f.Status != status {
		return fmt.Errorf("the sandbox is not what it should be: %s %q %q", f.Status, f.Stdout, f.Stderr)
	}
	return nil
}

// plainWarning says what an ordinary process lacks.
func plainWarning(why []string) string {
	text := "engine: the process is an ordinary one of this user: WebAssembly alone holds the program"
	if len(why) > 0 {
		text += " (" + strings.Join(why, "; ") + ")"
	}
	return text
}
