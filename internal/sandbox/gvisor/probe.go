//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
)

// Probe makes a sandbox, runs a command in it that tries forbidden things, and compares each result with the
// expected one.
func (d *Driver) Probe(ctx context.Context) sandbox.Report {
	r := sandbox.Report{Driver: d.Name(), OK: true}
	add := func(name string, need bool, done string, err error) { r.Add(sandbox.Checked(name, need, done, err)) }
	if _, err := d.executable(ctx); err != nil {
		add("gVisor inside this build", true, "", err)
		return r
	}
	add("gVisor inside this build", true, "unpacked, its digest is right", nil)
	began := time.Now()
	b, err := d.start(ctx, probeProfile())
	if err != nil {
		add("sandbox", true, "", err)
		return r
	}
	defer b.Close()
	add("sandbox", true, fmt.Sprintf("made one in %.1f ms", facts.MS(time.Since(began))), nil)
	began = time.Now()
	f, err := b.Run(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", probeScript},
		Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/"})
	if err != nil {
		add("command", true, "", err)
		return r
	}
	add("command", true, fmt.Sprintf("ran one in a kernel of its own in %.1f ms", facts.MS(time.Since(began))), nil)
	got := strings.Split(strings.TrimSpace(f.Stdout), "\n")
	for _, c := range checks {
		err := error(nil)
		if !slices.Contains(got, c.says) {
			err = fmt.Errorf("a shell in the sandbox did not say %q; it said %q %q", c.says, f.Stdout, f.Stderr)
		}
		add(c.name, true, c.done, err)
	}
	add("cgroup pids", true, "gVisor's kernel refuses a process beyond the limit", nil)
	add("cgroup memory", true, "the memory of gVisor's guest is measured every 10 ms", nil)
	err = nil
	if !b.host.Memory() {
		err = errors.New("no memory cgroup may be made by this user; a guest that takes memory very fast may pass " +
			"its limit for 10 ms")
	}
	add("memory cgroup around gVisor", false, "a second bound, kept by this machine's kernel", err)
	return r
}

func probeProfile() sandbox.Profile {
	return sandbox.Profile{ID: "s_probe", Template: sandbox.Template{Name: "host"},
		Tmpfs: []sandbox.Tmpfs{{Target: "/tmp", Bytes: 1 << 20, Inodes: 2}},
		Limits: sandbox.Limits{Wall: patience, CPU: patience, Memory: 128 << 20, Pids: 8, Files: 64,
			Disk: 4 << 20, Inodes: 64, Output: 4 << 10}}
}

// probeScript prints one line for each thing that holds. It uses only a shell and programs that every /usr has.
const probeScript = `
grep -q gvisor /proc/version && echo kernel
test "$(id -u)" = 1000 && echo user
grep -q '^CapBnd:.0000000000000000' /proc/self/status && echo capabilities
grep -q '^NoNewPrivs:.1' /proc/self/status && echo privileges
grep -q '^Seccomp:.2' /proc/self/status && echo filter
(: > /x) 2>/dev/null || echo root
(: > /usr/x) 2>/dev/null || echo usr
test -e /etc/shadow || echo files
test "$(cat /proc/net/dev | grep -vc -e lo: -e '|')" = 0 && echo network
: > /tmp/f && ! mkdir /tmp/d 2>/dev/null && echo inodes
! head -c 2000000 /dev/zero 2>/dev/null > /tmp/f && echo bytes
`

var checks = []struct{ says, name, done string }{
	{"kernel", "kernel of its own", "/proc/version is gVisor's"},
	{"user", "not root", "user 1000"},
	{"capabilities", "no capabilities", "none in the bounding set"},
	{"privileges", "no new privileges", "set"},
	{"filter", "seccomp in the sandbox", "a filter is in force"},
	{"root", "read-only root", "writing was refused"},
	{"usr", "read-only /usr", "writing was refused"},
	{"files", "host's files are absent", "no /etc/shadow"},
	{"network", "no network", "loopback alone"},
	{"inodes", "bounded inodes", "refused at the limit"},
	{"bytes", "bounded bytes", "refused at the limit"},
}
