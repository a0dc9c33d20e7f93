package upstream

import "maps"

// Inherit takes over servers that run in the manager before it. Their processes and sessions go on, and end when both
// managers are closed. same decides by the name of a server and by the digests of its processes (Process.Made).
// Inherit must be called before anything else of m. It returns how many servers it took.
func (m *Manager) Inherit(before *Manager, same func(name string, made []string) bool) (n int) {
	for name, s := range before.servers {
		fresh := m.servers[name]
		made := s.made()
		if fresh == nil || len(made) == 0 || !same(name, made) || !s.hold() {
			s.circuit.end(m.o.Watcher, name)
			continue
		}
		fresh.holders.Store(0)
		m.servers[name] = s
		n++
	}
	return n
}

// hold adds a manager to those that the server belongs to. It reports false if the server has none left.
func (s *server) hold() bool {
	for {
		n := s.holders.Load()
		if n <= 0 {
			return false
		}
		if s.holders.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// made returns what each process of the server was made with: "" for one that is being started.
func (s *server) made() (out []string) {
	s.mu.Lock()
	if s.session != nil && s.session.alive() {
		out = append(out, s.session.made)
	}
	if s.starting != nil {
		out = append(out, "")
	}
	others := append([]*server{}, s.replicas...)
	for c := range maps.Values(s.children) {
		others = append(others, c)
	}
	s.mu.Unlock()
	for _, o := range others {
		out = append(out, o.made()...)
	}
	return out
}

// finish ends what the servers of m had in common, once no manager has one of them.
func (m *Manager) finish() {
	for _, s := range m.own {
		if s.holders.Load() > 0 {
			return
		}
	}
	m.cancel()
	m.running.Wait()
}
