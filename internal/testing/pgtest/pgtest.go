// Package pgtest starts a PostgreSQL server of a test's own: Debian's programs, a fresh cluster in a temporary folder,
// and a port of loopback. Only tests import it.
package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrAbsent means that PostgreSQL's programs are not installed; scripts/setup.sh installs them.
var ErrAbsent = errors.New("no /usr/lib/postgresql/*/bin/initdb: scripts/setup.sh installs it")

// Server is a running server. Every role comes in over loopback without a password.
type Server struct {
	Port int

	dir, bin string
	settings []string
	process  *exec.Cmd
	said     bytes.Buffer
	stop     sync.Once
}

// The uid of the server if the test runs as root, which PostgreSQL refuses.
const nobody = 65534

// Start makes a cluster and starts its server with more settings, as in fsync=on. The caller stops it.
func Start(settings ...string) (s *Server, err error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return nil, ErrAbsent
	}
	s = &Server{bin: filepath.Dir(found[len(found)-1]), settings: settings}
	if err = s.folder(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	if err := s.run("", "initdb", "-D", filepath.Join(s.dir, "data"), "-U", "postgres", "-A", "trust", "-N",
		"--no-instructions", "-E", "UTF8"); err != nil {
		return nil, err
	}
	return s, s.first()
}

// folder makes the folder of a server.
func (s *Server) folder() (err error) {
	if s.dir, err = os.MkdirTemp("", "waldo-pg-"); err == nil && os.Getuid() == 0 {
		err = os.Chown(s.dir, nobody, nobody)
	}
	return err
}

// first starts the server at a free port.
func (s *Server) first() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return err
	}
	return s.launch()
}

// Standby makes a copy of the server that follows it by streaming replication, and returns when each commit waits for
// the copy. The caller stops it.
func (s *Server) Standby() (n *Server, err error) {
	n = &Server{bin: s.bin, settings: s.settings}
	if err = n.folder(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			n.Stop()
		}
	}()
	if err := n.run("", "pg_basebackup", "-D", filepath.Join(n.dir, "data"), "-h", s.dir, "-p", fmt.Sprint(s.Port), "-U",
		"postgres", "-R", "-c", "fast"); err != nil {
		return nil, err
	}
	if err := n.first(); err != nil {
		return nil, err
	}
	if err := s.SQL("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'; SELECT pg_reload_conf();"); err != nil {
		return nil, err
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := s.SQL("postgres", "SELECT 1 / count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")
		if err == nil {
			return n, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("the standby does not follow: %w", err)
		}
	}
}

// Promote makes a standby take writes.
func (s *Server) Promote() error {
	return s.SQL("postgres", "ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf(); SELECT 1 / pg_promote()::int;")
}

// launch starts the server and waits until it answers.
func (s *Server) launch() error {
	s.process = exec.Command(filepath.Join(s.bin, "postgres"), "-D", filepath.Join(s.dir, "data"), "-p",
		fmt.Sprint(s.Port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+s.dir, "-c", "fsync=off",
		"-c", "max_connections=30", "-c", "shared_buffers=16MB", "-c", "autovacuum=off")
	for _, one := range s.settings {
		s.process.Args = append(s.process.Args, "-c", one)
	}
	s.process.SysProcAttr, s.process.Dir, s.process.Env = owner(), s.dir, []string{"LC_ALL=C"}
	s.process.Stderr = &s.said
	if err := s.process.Start(); err != nil {
		s.process = nil
		return err
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := s.SQL("postgres", "SELECT 1")
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the server does not answer: %w", err)
		}
	}
}

// Kill ends the server with SIGKILL, and every process of its sessions. Its files stay as they are.
func (s *Server) Kill() error {
	sessions, err := s.sessions()
	if err == nil {
		err = s.process.Process.Kill()
	}
	_ = s.process.Wait()
	for _, p := range sessions {
		_ = p.Kill()
	}
	return err
}

// Pause stops the server and every process of its sessions until Resume: connections last, and get no answer.
func (s *Server) Pause() error { return s.signal(pause) }

// Resume has a paused server go on.
func (s *Server) Resume() error { return s.signal(resume) }

func (s *Server) signal(n os.Signal) error {
	sessions, err := s.sessions()
	err = errors.Join(err, s.process.Process.Signal(n))
	for _, p := range sessions {
		_ = p.Signal(n) // it can have ended
	}
	return err
}

// sessions returns the processes of the server's sessions.
func (s *Server) sessions() (all []*os.Process, err error) {
	pids, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.process.Process.Pid))
	for _, pid := range strings.Fields(string(pids)) {
		n, _ := strconv.Atoi(pid)
		if p, err := os.FindProcess(n); err == nil && n > 0 {
			all = append(all, p)
		}
	}
	return all, err
}

// Restart starts a server that was killed.
func (s *Server) Restart() error {
	time.Sleep(300 * time.Millisecond) // it refuses while a process of the one before lives
	return s.launch()
}

// run runs one of PostgreSQL's programs.
func (s *Server) run(stdin, name string, args ...string) error {
	c := exec.Command(filepath.Join(s.bin, name), args...)
	c.SysProcAttr, c.Stdin, c.Dir = owner(), strings.NewReader(stdin), s.dir
	c.Env = []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// SQL runs statements in a database as the superuser.
func (s *Server) SQL(database, text string) error {
	return s.run(text, "psql", "-h", s.dir, "-p", fmt.Sprint(s.Port), "-U", "postgres", "-d", database, "-v",
		"ON_ERROR_STOP=1", "-qAt")
}

// URL returns the address of a database for a role.
func (s *Server) URL(role, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", role, s.Port, database)
}

// Stop ends the server and removes its files.
func (s *Server) Stop() {
	s.stop.Do(func() {
		if s.process != nil {
			_ = s.process.Process.Signal(syscall.SIGQUIT)
			_ = s.process.Wait()
		}
		_ = os.RemoveAll(s.dir)
	})
}
