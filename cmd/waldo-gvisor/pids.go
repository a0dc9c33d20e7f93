//go:build linux

package main

import (
	"fmt"
	"strconv"
	"strings"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/container"
)

// pidsFile names a file of the guest's own cgroup, which gVisor's kernel keeps. The guest sees it
// and, not being root there, cannot write it.
func pidsFile(name string) control.CgroupControlFile {
	return control.CgroupControlFile{Controller: "pids", Path: "/" + containerID, Name: name}
}

// limitPids bounds the guest's processes and threads: beyond it a fork gets EAGAIN.
func limitPids(c *container.Container, n int64) error {
	if err := c.Sandbox.CgroupsWriteControlFile(pidsFile("pids.max"), strconv.FormatInt(n, 10)); err != nil {
		return fmt.Errorf("limiting processes: %w", err)
	}
	return nil
}

// countPids returns the most processes there have been at once, and whether one was refused. It
// returns zero once gVisor is gone.
func countPids(c *container.Container) (peak int64, denied bool) {
	text, err := c.Sandbox.CgroupsReadControlFile(pidsFile("pids.peak"))
	if err != nil {
		return 0, false
	}
	peak, _ = strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	events, err := c.Sandbox.CgroupsReadControlFile(pidsFile("pids.events"))
	if err != nil {
		return peak, false
	}
	for line := range strings.Lines(events) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "max" && f[1] != "0" {
			denied = true
		}
	}
	return peak, denied
}
