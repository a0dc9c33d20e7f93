package upstream

// Status describes one upstream.
type Status struct {
	Server     string
	Running    bool
	Revision   string // of MCP; empty while it does not run
	Starts     int
	Error      string // of the last start
	Quarantine []Quarantine
}

// Status returns what is known of every upstream, sorted by name.
func (m *Manager) Status() []Status {
	out := []Status{}
	for _, name := range m.Names() {
		s := m.servers[name]
		s.mu.Lock()
		st := Status{Server: name, Running: s.session != nil, Starts: s.starts, Quarantine: s.pins.quarantine()}
		if s.session != nil {
			st.Revision = s.session.revision
		}
		if s.failed != nil {
			st.Error = s.failed.Error()
		}
		s.mu.Unlock()
		out = append(out, st)
	}
	return out
}
