//go:build linux && (amd64 || arm64)

// Package lookup answers the name lookups of a sandbox without egress: each fails, and is recorded as a denial.
package lookup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox/initproc"
)

const (
	maxNames     = 100    // of one command in its facts; further names are not recorded
	maxQuestions = 10_000 // of one sandbox; later lookups fail without an answer, and cost waldo nothing
)

// Append appends to a sandbox's program the steps that make the socket at 127.0.0.1:53, where the C library asks for
// names without a resolv.conf, and send it to waldo. fd is the lowest free descriptor.
func Append(l *initproc.List, fd int) {
	at := make([]byte, unix.SizeofSockaddrInet4)
	binary.NativeEndian.PutUint16(at, unix.AF_INET)
	copy(at[2:], []byte{0, 53, 127, 0, 0, 1})
	l.Call("a socket for names", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	l.Call("bind it", unix.SYS_BIND, fd, at, len(at))
	l.SendFiles("the socket for names", initproc.RecFiles, fd, 1)
	l.Call("close the socket for names", unix.SYS_CLOSE, fd)
}

// Server answers the lookups of one sandbox. A nil Server has none.
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
	if s == nil {
		return nil
	}
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
	m := dnsmessage.Message{Questions: []dnsmessage.Question{q},
		Header: dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode,
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
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.names {
		f.Network.Denied = append(f.Network.Denied, name)
		f.Denials = append(f.Denials, facts.Denial{Kind: "network", What: name, Errno: "EAI_AGAIN"})
	}
	s.names = nil
}
