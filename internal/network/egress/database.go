package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"waldo/internal/network/egress/postgres"
)

// databases makes what opens sessions at the databases that the sandbox has a placeholder for.
func (s *Server) newDatabases() error {
	s.databases = map[Target]*postgres.Broker{}
	for _, c := range s.creds {
		if c.As != Postgres {
			continue
		}
		cert, err := s.authority.Certificate(c.Host)
		if err != nil {
			return err
		}
		b := &postgres.Broker{User: c.Field, Database: c.Database, Password: c.Value,
			Sandbox: &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12},
			Dial:    func(ctx context.Context) (net.Conn, error) { return s.dialer.Dial(ctx, c.Host, c.Port) }}
		if !c.Plain {
			b.TLS = &tls.Config{ServerName: c.Host, RootCAs: s.dialer.Roots, MinVersion: tls.VersionTLS12}
		}
		s.databases[Target{Host: c.Host, Port: c.Port}] = b
	}
	return nil
}

// enter opens a database session with the password that the sandbox does not have, and relays it.
func (s *Server) enter(f *first, b *postgres.Broker, host string, port uint16) {
	defer f.Conn.Close()
	if why := s.pace.request(); why != nil {
		s.attempts.refused(host, port, why)
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, 2*patience)
	defer cancel()
	session, err := b.Open(ctx, f)
	var why *postgres.Refusal
	switch {
	case errors.As(err, &why):
		s.attempts.refused(host, port, refuse("postgres."+why.Code, why.Text))
	case err != nil:
		s.attempts.failed(host, port, "", err)
	}
	if session == nil {
		return
	}
	defer session.Close()
	_ = session.Sandbox.SetDeadline(time.Time{})
	_ = session.Server.SetDeadline(time.Time{})
	s.both(session.Sandbox, session.Server, s.watch(session.Sandbox), func() bool { return true },
		s.attempts.began(host, port, ""))
}
