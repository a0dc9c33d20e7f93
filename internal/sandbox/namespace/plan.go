//go:build linux && (amd64 || arm64)

package namespace

import (
	"fmt"
	"sync"
	"time"

	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/inroot"
)

// plan is the finished program of a sandbox, with the data that waldo needs about it.
type plan struct {
	list     *initproc.List
	program  []byte
	writable []string // the volumes, in the order in which they are sent
	overlays int      // how many are sent before them
	made     time.Time
}

// plans keeps the programs of sandboxes that have been made: those of one profile are the same.
type plans struct {
	mu   sync.Mutex
	kept map[string]*plan
}

const (
	planAge   = 10 * time.Second // after this the host's folders are examined again
	plansMost = 32
)

// of returns the program that a set-up comes to.
func (p *plans) of(s *setup) (*plan, error) {
	key := s.key()
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.kept[key]; one != nil && time.Since(one.made) < planAge {
		return one, nil
	}
	var err error
	if s.credentials, err = inroot.CredentialsOf(s.profile.Template.Dir); err != nil {
		return nil, err
	}
	s.build()
	one := &plan{
		list: &s.List, program: s.LinkAt(initproc.ProgramBase), writable: s.writable, overlays: s.overlays, made: time.Now(),
	}
	if len(p.kept) >= plansMost || p.kept == nil {
		p.kept = map[string]*plan{}
	}
	p.kept[key] = one
	return one, nil
}

// key holds everything that the program depends on, but for the host and the filters, which are the
// driver's.
func (s *setup) key() string {
	uid, gid := s.uid, s.gid
	if s.mapped { // waldo says who that is
		uid, gid = 0, 0
	}
	p := s.profile
	key := fmt.Sprintf("%d %d %t %t %t %t %t %t %d %d %q %v %d %d %+q", uid, gid, s.counted, s.landlock, s.forked,
		s.joined, s.tree, s.mapped, s.files, s.tasks,
		p.Template.Dir, p.Network.Ports, p.Limits.Disk, p.Limits.Inodes, s.links)
	inUID, inGID := p.Template.IDs()
	key += fmt.Sprintf(" %d %d", inUID, inGID)
	key += fmt.Sprintf(" %t %q", p.Terminals, p.Console)
	if p.Only != nil {
		key += fmt.Sprintf(" %q", *p.Only)
	}
	for _, t := range p.Tmpfs {
		key += fmt.Sprintf(" %q %d %d %t", t.Target, t.Bytes, t.Inodes, t.Sealed)
	}
	for _, m := range s.mounts {
		key += fmt.Sprintf(" %q %q %t %t %t %#v", m.lower, m.target, m.exact, m.whole, m.tree != nil, m.parts)
		key += fmt.Sprintf(" %t %t %t %t %q %q", m.writable, m.live, m.beside, m.over, m.seals, m.hidden)
	}
	key += fmt.Sprint(s.refused)
	return key
}
