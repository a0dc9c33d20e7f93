// Package lookup answers the name lookups of a sandbox without egress: each fails, and is recorded as a denial.
package lookup

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"

	"waldo/internal/model/facts"
)

// Port and Address are where the C library asks for names without a resolv.conf, inside the sandbox.
const (
	Port    = 53
	Address = "127.0.0.1"
)

const (
	maxNames     = 100    // of one command in its facts; further names are not recorded
	maxQuestions = 10_000 // of one sandbox; later lookups fail without an answer, and cost waldo nothing
)

// Server answers the lookups of one sandbox.
type Server struct {
	conn net.PacketConn

	mu    sync.Mutex
	names []string
}

// Serve answers the questions at a UDP socket of the sandbox until Close. It closes the file and uses a copy.
func Serve(socket *os.File) (*Server, error) {
	defer socket.Close()
	conn, err := net.FilePacketConn(socket)
	if err != nil {
		return nil, fmt.Errorf("the socket for names: %w", err)
	}
	s := &Server{conn: conn}
	go s.serve()
	return s, nil
}

// Close stops the answers.
func (s *Server) Close() error {
	if err := s.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) { // serve closes it at its last question
		return err
	}
	return nil
}

func (s *Server) serve() {
	defer s.conn.Close()
	b := make([]byte, 1500)
	for range maxQuestions {
		n, from, err := s.conn.ReadFrom(b)
		if err != nil {
			return
		}
		if reply, name := refuse(b[:n]); reply != nil {
			s.note(name)
			_, _ = s.conn.WriteTo(reply, from)
		}
	}
}

// refuse returns the answer to a DNS question (RFC 1035), SERVFAIL, and the name that it asks for. It returns nil for a
// malformed question.
func refuse(question []byte) (reply []byte, name string) {
	var p dnsmessage.Parser
	h, err := p.Start(question)
	if err != nil || h.Response {
		return nil, ""
	}
	q, err := p.Question()
	if err != nil {
		return nil, ""
	}
	m := dnsmessage.Message{Questions: []dnsmessage.Question{q}, Header: dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode,
		RecursionDesired: h.RecursionDesired, RecursionAvailable: true, RCode: dnsmessage.RCodeServerFailure}}
	if reply, err = m.Pack(); err != nil {
		return nil, ""
	}
	return reply, strings.ToValidUTF8(strings.TrimSuffix(strings.ToLower(q.Name.String()), "."), "\uFFFD")
}

func (s *Server) note(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != "" && len(s.names) < maxNames && !slices.Contains(s.names, name) {
		s.names = append(s.names, name)
	}
}

// Report adds to a command's facts the names that were asked for since the last report.
func (s *Server) Report(f *facts.Facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.names {
		f.Network.Denied = append(f.Network.Denied, name)
		f.Denials = append(f.Denials, facts.Denial{Kind: "network", What: name, Errno: "EAI_AGAIN"})
	}
	s.names = nil
}
