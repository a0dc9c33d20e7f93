//go:build linux && (amd64 || arm64)

package lookup

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"waldo/internal/model/facts"
)

func question(t *testing.T, name string) []byte {
	t.Helper()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// serve returns a server and a client of it, over loopback.
func serve(t *testing.T) (*Server, net.Conn) {
	t.Helper()
	u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	f, err := u.File()
	if err != nil {
		t.Fatal(err)
	}
	s, err := Serve(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	c, err := net.Dial("udp4", u.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return s, c
}

func ask(t *testing.T, c net.Conn, q []byte) (dnsmessage.Message, error) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	b, m := make([]byte, 1500), dnsmessage.Message{}
	if _, err := c.Write(q); err != nil {
		return m, err
	}
	n, err := c.Read(b)
	if err != nil {
		return m, err
	}
	return m, m.Unpack(b[:n])
}

// TestReport: each name is refused at once and reported once; an invalid name ends nothing.
func TestReport(t *testing.T) {
	s, c := serve(t)
	answer := question(t, "answer.example.org.")
	answer[1], answer[2] = 8, answer[2]|0x80 // another id, and QR: an answer to an answer would go round for ever
	for _, b := range [][]byte{[]byte("no question"), answer} {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"Evil.example.org.", "evil.example.org.", "a\x1b[2J.example."} {
		m, err := ask(t, c, question(t, name))
		if err != nil || m.RCode != dnsmessage.RCodeServerFailure || m.ID != 7 || len(m.Answers) > 0 {
			t.Fatalf("%q: %+v %v", name, m, err)
		}
	}
	f := facts.New()
	s.Report(&f)
	if want := []string{"evil.example.org", "a\x1b[2j.example"}; !slices.Equal(f.Network.Denied, want) ||
		len(f.Denials) != 2 ||
		f.Denials[0] != (facts.Denial{Kind: "network", What: "evil.example.org", Errno: "EAI_AGAIN"}) {
		t.Errorf("%+v %+v", f.Network.Denied, f.Denials)
	}
	f = facts.New()
	if s.Report(&f); len(f.Network.Denied) > 0 {
		t.Errorf("reported again: %q", f.Network.Denied)
	}
}

// TestFlood: the names of one command are bounded, and so is the work of waldo for one sandbox.
func TestFlood(t *testing.T) {
	s, c := serve(t)
	asked := 0
	for ; asked <= maxQuestions; asked++ {
		if _, err := ask(t, c,
			question(t, strings.Repeat("a", asked%200/4+1)+"."+strings.Repeat("b", asked%50+1)+".example.")); err != nil {
			break
		}
	}
	f := facts.New()
	if s.Report(&f); asked != maxQuestions || len(f.Network.Denied) != maxNames {
		t.Errorf("%d questions answered, %d names reported", asked, len(f.Network.Denied))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// FuzzRefuse: an answer carries the question's id, answers nothing, and its name is text of at most 255 letters.
func FuzzRefuse(f *testing.F) {
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, q []byte) {
		reply, name := refuse(q)
		if reply == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply); err != nil || !m.Response || len(m.Answers)+len(m.Additionals) > 0 ||
			string(reply[:2]) != string(q[:2]) {
			t.Errorf("%x: %+v %v", q, m, err)
		}
		if strings.ToValidUTF8(name, "") != name || len([]rune(name)) > 255 {
			t.Errorf("%q", name)
		}
	})
}
