package web

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/call"
)

// raw sends text over a connection of its own.
func (h *fixture) raw(text string) net.Conn {
	h.t.Helper()
	c, err := net.Dial("tcp", h.addr)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	fmt.Fprint(c, text)
	return c
}

// read reads one answer; nil: the connection ended without one.
func read(c net.Conn) *http.Response {
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil
	}
	b, _ := io.ReadAll(res.Body)
	res.Body = io.NopCloser(strings.NewReader(string(b)))
	return res
}

const (
	healthz  = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	withBody = "POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
	stranger = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer nobody\r\n" +
		"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
)

// Unauthenticated connections never shut out an authenticated one, for any input they send.
func TestStrangersDoNotShutOut(t *testing.T) {
	for name, sent := range map[string]string{"silent": "", "half a request": "GET /healthz HT", "idle": healthz,
		"healthy, and a body that never comes": withBody, "refused, and a body that never comes": stranger} {
		t.Run(name, func(t *testing.T) {
			h := open(t, Limits{Strangers: 4, Stranger: time.Hour, Read: time.Hour})
			for range 20 {
				c := h.raw(sent)
				if sent == healthz || sent == stranger || sent == withBody {
					if res := read(c); res == nil || res.StatusCode == http.StatusServiceUnavailable {
						t.Fatalf("the control: a stranger has no answer: %v", res)
					}
				}
			}
			id := h.legacy()
			for range 20 {
				h.raw(sent)
			}
			if status, _, _ := h.ask(echo, "Mcp-Session-Id", id); status != 200 {
				t.Errorf("a client among strangers: %d", status)
			}
			if res := read(h.raw(healthz)); res == nil || res.StatusCode != 200 {
				t.Errorf("/healthz among strangers: %v", res)
			}
		})
	}
}

// If no connection can be closed, a new connection gets 503 at once and is closed; /healthz is answered.
func TestNoRoomForStrangers(t *testing.T) {
	h := open(t, Limits{Strangers: 2})
	h.web.conns.mu.Lock()
	for range 2 {
		h.web.conns.strangers[&conn{of: h.web.conns, busy: true}] = true
	}
	h.web.conns.mu.Unlock()
	res := read(h.raw("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	if res == nil || res.StatusCode != http.StatusServiceUnavailable || !res.Close || res.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %+v", res)
	}
	if res := read(h.raw(healthz)); res == nil || res.StatusCode != 200 {
		t.Errorf("/healthz: %v", res)
	}
}

// A stranger that is idle is closed soon, and one of a principal is not.
func TestIdleStranger(t *testing.T) {
	h := open(t, Limits{Stranger: 50 * time.Millisecond})
	for _, sent := range []string{"", "GET /healthz HT", healthz} {
		c := h.raw(sent)
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadAll(c); err != nil {
			t.Errorf("%q: not closed: %v", sent, err)
		}
	}
	known := h.raw("GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n") // of a principal, and 405
	if res := read(known); res == nil || res.StatusCode != http.StatusMethodNotAllowed {
		t.Fatalf("the control: %v", res)
	}
	time.Sleep(300 * time.Millisecond)
	fmt.Fprint(known, healthz)
	if res := read(known); res == nil || res.StatusCode != 200 {
		t.Errorf("a principal's connection was closed as a stranger's: %v", res)
	}
}

// Time in which waldo did not run is not a stranger's; with the control, one that was idle as long is closed.
func TestASweepThatComesLate(t *testing.T) {
	for late, want := range map[bool]int{false: 0, true: 1} {
		o := &conns{
			limits: Limits{Stranger: 5 * time.Second, Strangers: 4}, strangers: map[*conn]bool{}, from: map[string]int{},
		}
		begin := time.Now()
		a, b := net.Pipe()
		defer b.Close()
		o.sweep(begin)
		o.take(a).since = begin
		if late {
			o.sweep(begin.Add(12 * time.Second))
		}
		for at := time.Duration(0); !late && at <= 9*time.Second; at += 1900 * time.Millisecond { // each a little late
			o.sweep(begin.Add(at))
		}
		if len(o.strangers) != want {
			t.Errorf("late %v: %d strangers, wanted %d", late, len(o.strangers), want)
		}
		for at := 13 * time.Second; at <= 18*time.Second; at += time.Second { // it is idle while waldo runs
			o.sweep(begin.Add(at))
		}
		if len(o.strangers) != 0 {
			t.Errorf("late %v: it was not closed afterwards", late)
		}
	}
}

// A principal has at most half of the connections. One more gets the reason and is closed, and other principals still
// connect.
func TestConnections(t *testing.T) {
	h := open(t, Limits{Conns: 4})
	ask := func(token string) *http.Response {
		return read(h.raw("GET /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token + "\r\n\r\n"))
	}
	for i, want := range []int{405, 405, 503, 503} {
		if res := ask("one"); res == nil || res.StatusCode != want || res.Close != (want == 503) {
			t.Errorf("connection %d: %+v, want %d", i, res, want)
		}
	}
	if res := ask("two"); res == nil || res.StatusCode != 405 {
		t.Errorf("another principal: %+v", res)
	}
	if res := read(h.raw(healthz)); res == nil || res.StatusCode != 200 {
		t.Errorf("/healthz: %+v", res)
	}
}

// The count of connections comes back to nothing, also where one changes its principal.
func TestConnectionsAreCounted(t *testing.T) {
	o := &conns{
		limits: Limits{Conns: 8, Strangers: 8}, strangers: map[*conn]bool{}, from: map[string]int{},
		each: map[call.Principal]int{},
	}
	var all []*conn
	for i := range 6 {
		end, _ := net.Pipe()
		x := o.take(end)
		if x == nil || x.over {
			t.Fatal("no room")
		}
		for n := range i % 3 {
			if !x.know(call.Principal(fmt.Sprint("token:", n))) {
				t.Error("not known")
			}
		}
		all = append(all, x)
	}
	if o.known != 4 || len(o.strangers) != 2 || o.each["token:0"] != 2 || o.each["token:1"] != 2 {
		t.Errorf("%d known, %d strangers, %v", o.known, len(o.strangers), o.each)
	}
	o.limits.Conns = 4
	end, _ := net.Pipe()
	if x := o.take(end); x.know("token:9") {
		t.Error("one more than all that there are is known")
	} else if x.Close(); all[0].know("token:9") {
		t.Error("a stranger is one more, too")
	}
	for _, x := range all {
		x.Close()
		x.Close()
	}
	if o.known != 0 || len(o.strangers)+len(o.each)+len(o.from) != 0 {
		t.Errorf("left: %d known, %d strangers, %v, %v", o.known, len(o.strangers), o.each, o.from)
	}
}

// One address of another machine has a quarter of the strangers.
func TestStrangersOfOneAddress(t *testing.T) {
	o := &conns{
		limits: Limits{Conns: 8, Strangers: 8}, strangers: map[*conn]bool{}, from: map[string]int{},
		each: map[call.Principal]int{},
	}
	dial := func(from string) *conn {
		end, _ := net.Pipe()
		return o.take(addressed{end, from})
	}
	for range 6 {
		dial("192.0.2.1")
	}
	for range 3 {
		dial("127.0.0.1")
	}
	if o.from["192.0.2.1"] != 2 || o.from[""] != 3 {
		t.Errorf("%v", o.from)
	}
}

type addressed struct {
	net.Conn
	from string
}

func (a addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(a.from), Port: 1} }

// A session that was used just now makes no room for another: the new one is refused, with the reason.
func TestSessionsInUse(t *testing.T) {
	h := open(t, Limits{Each: 2, Sessions: 3})
	one, two := h.legacy(), h.legacy()
	status, header, body := h.ask(hello)
	if status != 503 || header.Get("Retry-After") == "" || !strings.Contains(body, "gateway.limits.sessions_each") {
		t.Errorf("a third of one principal: %d %s", status, body)
	}
	h.legacy("Authorization", "Bearer two")
	if status, _, body := h.ask(hello, "Authorization", "Bearer two"); status != 503 ||
		!strings.Contains(body, "gateway.limits.sessions)") {
		t.Errorf("one too many of all: %d %s", status, body)
	}
	for _, id := range []string{one, two} {
		if status, _, _ := h.ask(echo, "Mcp-Session-Id", id); status != 200 {
			t.Errorf("a session in use was forgotten: %d", status)
		}
	}
	if status, _, _ := h.ask("", "method", "DELETE", "Mcp-Session-Id", one); status != 204 {
		t.Fatal(status)
	}
	h.legacy() // and there is room again
}

// The requests of one principal are counted over all of its sessions.
func TestCallsOfOnePrincipal(t *testing.T) {
	h := open(t, Limits{Calls: 2})
	one, two := h.legacy(), h.legacy()
	ended := make(chan int, 2)
	for _, id := range []string{one, two} {
		go func() {
			status, _, _ := h.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__slow"}}`,
				"Mcp-Session-Id", id)
			ended <- status
		}()
	}
	<-h.desk.begun
	<-h.desk.begun
	if status, _, body := h.ask(echo, "Mcp-Session-Id", two); status != 503 || code(body) != -32000 ||
		!strings.Contains(body, "gateway.limits.calls_each") {
		t.Errorf("a third: %d %s", status, body)
	}
	if status, _, _ := h.ask(echo, "Mcp-Session-Id", h.legacyOf("two"), "Authorization", "Bearer two"); status != 200 {
		t.Errorf("another principal: %d", status)
	}
	close(h.desk.release)
	if a, b := <-ended, <-ended; a != 200 || b != 200 {
		t.Errorf("the first two: %d, %d", a, b)
	}
	if status, _, _ := h.ask(echo, "Mcp-Session-Id", two); status != 200 {
		t.Errorf("afterwards: %d", status)
	}
}

func (h *fixture) legacyOf(token string) string { return h.legacy("Authorization", "Bearer "+token) }
