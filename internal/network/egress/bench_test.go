package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"waldo/internal/sandbox"
)

// bulk is how many bytes one answer of the bench has.
const bulk = 64 << 20

// BenchmarkThroughput reads 64 MiB from a server of this machine: directly, as raw TCP through the
// egress, and as HTTP that is read request by request.
func BenchmarkThroughput(b *testing.B) {
	block := make([]byte, 1<<20)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(bulk))
		for range bulk >> 20 {
			_, _ = w.Write(block)
		}
	}))
	defer web.Close()
	at := web.Listener.Addr().String()
	raw := answering(b, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		for range bulk >> 20 {
			_, _ = c.Write(block)
		}
		_ = c.Close()
	})
	for _, row := range []struct {
		name, to string
		through  bool
		port     uint16
	}{
		{"raw/direct", raw, false, 5432}, {"raw/egress", raw, true, 5432},
		{"http/direct", at, false, 80}, {"http/egress", at, true, 80},
	} {
		b.Run(row.name, func(b *testing.B) {
			open := benchDial(b, row.to, row.port, row.through)
			b.SetBytes(bulk)
			for b.Loop() {
				c := open()
				if row.port != 80 {
					_, _ = io.WriteString(c, "\x00") // otherwise the bench is of how long a silent client is listened to
				} else {
					_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
				}
				buf := make([]byte, 256<<10)
				total := 0
				for {
					n, err := c.Read(buf)
					if total += n; err != nil {
						break
					}
				}
				if total < bulk {
					b.Fatalf("%d bytes %.300q", total, buf[:min(total, 300)])
				}
				_ = c.Close()
			}
		})
	}
}

// BenchmarkConnect connects and reads the first byte, directly and through the egress.
func BenchmarkConnect(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			one := make([]byte, 1)
			go func() { _, _ = c.Read(one); _, _ = c.Write(one); _ = c.Close() }()
		}
	}()
	for _, through := range []bool{false, true} {
		b.Run(map[bool]string{false: "direct", true: "egress"}[through], func(b *testing.B) {
			open := benchDial(b, l.Addr().String(), 5432, through)
			one := []byte{1}
			for b.Loop() {
				c := open()
				_, _ = c.Write(one)
				if _, err := io.ReadFull(c, one); err != nil {
					b.Fatal(err)
				}
				_ = c.Close()
			}
		})
	}
}

// benchDial returns a function that connects to a server, directly or as a sandbox does.
func benchDial(b *testing.B, to string, port uint16, through bool) func() net.Conn {
	rule, err := ParseRule(fmt.Sprintf("api.example.com:%d", port))
	if err != nil {
		b.Fatal(err)
	}
	if through {
		far := to
		d := &Dialer{Policy: &Policy{Rules: []Rule{rule}, Limits: Limits{PerMin: 1 << 30, Bytes: 1 << 60}},
			Resolver: outsideNames,
			Connect: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", far)
			}}
		s, err := NewServer(d, Options{})
		if err != nil {
			b.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		p, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		u, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		s.Serve(sandbox.Egress{Names: u, Proxy: p})
		go s.accept(l, func(c net.Conn) { s.carry(&first{Conn: c}, "api.example.com", port) })
		b.Cleanup(func() { _ = l.Close(); _ = s.Close() })
		to = l.Addr().String()
	}
	return func() net.Conn {
		c, err := net.Dial("tcp", to)
		if err != nil {
			b.Fatal(err)
		}
		return c
	}
}

// BenchmarkInside makes requests over one kept-alive TLS connection each: directly, and with waldo ending the TLS,
// adding a secret and scrubbing the answer. It reports the median, the 99th percentile, and the memory of a hundred
// idle connections.
func BenchmarkInside(b *testing.B) {
	for _, through := range []bool{false, true} {
		b.Run(map[bool]string{false: "direct", true: "injecting"}[through], func(b *testing.B) {
			g := credentialRig(b, brokered(Bearer, ""))
			c := g.client(b, false)
			tr := c.Transport.(*http.Transport)
			tr.DisableKeepAlives, tr.MaxIdleConnsPerHost = false, 100
			if !through {
				tr.TLSClientConfig.RootCAs = g.roots
				tr.DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) {
					return g.dialer.Connect(ctx, netip.MustParseAddrPort("93.184.215.14:443"))
				}
			}
			ask := func() {
				resp, err := c.Get("https://api.example.com/repos/x")
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			ask()
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				ask()
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}

// BenchmarkHundred holds a hundred connections that waldo looks into, after a request on each.
func BenchmarkHundred(b *testing.B) {
	g := credentialRig(b, brokered(Bearer, ""))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(g.Trust())
	held := func() int64 {
		runtime.GC()
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse + m.StackInuse)
	}
	before := held()
	for b.Loop() {
		for range 100 {
			c := tls.Client(g.direct(b, "api.example.com", 443), &tls.Config{ServerName: "api.example.com", RootCAs: pool})
			_, _ = io.WriteString(c, "GET /repos/x HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
			if _, err := c.Read(make([]byte, 1<<10)); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(held()-before)/float64(b.N)/(1<<20), "MB/100")
}
