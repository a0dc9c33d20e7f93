//go:build linux

package runner

import (
	"strings"
	"testing"

	"waldo/internal/sandbox"
)

// reacher is a driver that reaches ports of its sandboxes.
type reacher struct{ sandbox.Driver }

func (reacher) Reach(int) (sandbox.Reach, error) { return nil, nil }

// TestShares: a command shares processes and ports where its contract gives it no hosts, and is held apart where it has
// tools or secrets.
func TestShares(t *testing.T) {
	for _, row := range []struct {
		name          string
		driver        sandbox.Driver
		hosts         bool
		job           job
		share, apart  bool
		warning, with string
	}{
		{name: "plain", driver: reacher{}, share: true, with: "dir"},
		{name: "tools", driver: reacher{}, job: job{tools: true}, share: true, apart: true, with: "dir"},
		{name: "secret", driver: reacher{}, job: job{env: []string{"A=b"}}, share: true, apart: true, with: "dir"},
		{name: "hosts", driver: reacher{}, hosts: true, warning: "its contract lets it reach hosts", with: "dir"},
		{name: "a driver that cannot", driver: struct{ sandbox.Driver }{}, with: "dir"},
		{name: "no named sandbox", driver: reacher{}},
	} {
		p := sandbox.Profile{Prestart: &sandbox.Prestart{}}
		warning := Options{Streams: Streams{Share: row.with}}.share(row.driver, &p, row.hosts, row.job)
		if shares := p.Share != nil; shares != row.share || shares && p.Share.Apart != row.apart ||
			shares && p.Prestart != nil {
			t.Errorf("%s: %+v", row.name, p.Share)
		}
		if !strings.Contains(warning, row.warning) || row.warning == "" && warning != "" {
			t.Errorf("%s: %q", row.name, warning)
		}
	}
}
