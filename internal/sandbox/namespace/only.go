//go:build linux && (amd64 || arm64)

package namespace

import (
	"strings"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/initvm"
	"waldo/internal/sandbox/landlock"
)

// noExecution appends steps after which nothing on the profile's mounts and volumes is executed, nor loaded by a
// program's loader: that one is a program itself, and Landlock knows no right to load.
func (s *setup) noExecution() {
	if s.profile.Only == nil {
		return
	}
	for _, t := range s.writable {
		s.attributes(t, unix.MOUNT_ATTR_NOEXEC, true)
	}
	for _, m := range s.profile.Mounts {
		if !m.Template {
			s.attributes(m.Target, unix.MOUNT_ATTR_NOEXEC, true)
		}
	}
}

// narrow appends the rules of the profile's Only to the ruleset, by the files as the sandbox has them.
func (s *setup) narrow() {
	only := s.profile.Only
	if only == nil {
		return
	}
	for _, r := range []struct {
		paths  []string
		access uint64
	}{{only.Execute, landlock.Execute | landlock.ReadAccess}, {only.Read, landlock.ReadAccess},
		{only.Write, landlock.WriteAccess(s.abi)}} {
		for _, p := range r.paths {
			s.allow(p, r.access)
		}
	}
	for _, d := range devices {
		s.allow("/dev/"+d, landlock.ReadFile|landlock.WriteFile)
	}
}

// allow appends a rule. A file that is not there is left out.
func (s *setup) allow(path string, access uint64) {
	if !strings.HasSuffix(path, "/") {
		access = landlock.OnFile(access)
	}
	rule := s.Bytes(append(landlock.Beneath(access, 0), 0, 0, 0, 0))
	open := s.Call("open "+path, unix.SYS_OPENAT, atCWD, path, unix.O_PATH|unix.O_CLOEXEC, 0)
	s.Steps[open].Store = rule.Plus(8)
	s.Call("allow "+path, unix.SYS_LANDLOCK_ADD_RULE, landlockFD, landlock.RulePathBeneath, rule, 0)
	s.Steps[open].Fail = initvm.To(len(s.Steps))
}
