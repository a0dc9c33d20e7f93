package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// records is a connection that writes down the length of each TLS record that comes.
type records struct {
	net.Conn
	mu   sync.Mutex
	head []byte
	left int
	got  []int
}

func (r *records) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	for b := p[:n]; len(b) > 0; {
		if r.left > 0 {
			k := min(r.left, len(b))
			r.left, b = r.left-k, b[k:]
			continue
		}
		if r.head, b = append(r.head, b[0]), b[1:]; len(r.head) == 5 {
			r.left = int(r.head[3])<<8 | int(r.head[4])
			r.got, r.head = append(r.got, r.left), r.head[:0]
		}
	}
	return n, err
}

// TestNoOracle: a sandbox that chooses what a host sends back, piece by piece, sees the same reads and the
// same TLS records for every letter that may come next in the secret, over HTTP/1.1 and HTTP/2.
func TestNoOracle(t *testing.T) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-/+="
	for _, kind := range []string{"text/plain", "text/event-stream"} {
		for _, h2 := range []bool{false, true} {
			for _, known := range []int{9, len(hidden) - 3} {
				if known != 9 && (h2 || kind != "text/plain") {
					continue
				}
				first := ""
				for _, letter := range letters {
					got := look(t, h2, kind, hidden[:known]+string(letter))
					if first == "" {
						first = got
					}
					if got != first {
						t.Fatalf("%s, h2 %v: after %q the letter %q shows:\n%s\ninstead of\n%s", kind, h2,
							hidden[:known], letter, got, first)
					}
				}
			}
		}
	}
}

// look has a host send a guess at the end of each of five pieces, each when the one before has come as
// far as it does, and returns the sizes of reads and records.
func look(t *testing.T, h2 bool, kind, guess string) string {
	t.Helper()
	g := credentialRig(t, brokered(Bearer, ""))
	piece := strings.Repeat(".", 1000-len(guess)) + guess
	if kind == "text/event-stream" {
		piece = "data:" + strings.Repeat(".", 993-len(guess)) + "\n\n" + guess
	}
	more := make(chan bool)
	g.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Date"] = nil // its length differs with the time
		w.Header().Set("Content-Type", kind)
		for range 5 {
			_, _ = io.WriteString(w, piece)
			w.(http.Flusher).Flush()
			select {
			case <-more:
			case <-time.After(time.Minute):
				return
			}
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(g.Trust())
	raw := &records{Conn: g.direct(t, "api.example.com", 443)}
	tr := &http.Transport{ForceAttemptHTTP2: h2, DisableCompression: true, TLSClientConfig: &tls.Config{RootCAs: pool}}
	tr.DialTLSContext = func(context.Context, string, string) (net.Conn, error) {
		protocols := []string{"http/1.1"}
		if h2 {
			protocols = []string{"h2"}
		}
		c := tls.Client(raw, &tls.Config{ServerName: "api.example.com", RootCAs: pool, NextProtos: protocols})
		return c, c.Handshake()
	}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr, Timeout: time.Minute}).Get("https://api.example.com/repos/x")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var reads []int
	p, came := make([]byte, 64<<10), 0
	for i := range 5 {
		due := (i+1)*1000 - 512
		if kind == "text/event-stream" {
			due = (i+1)*1000 - len(guess)
		}
		for came < due {
			n, err := resp.Body.Read(p)
			if came += n; err != nil {
				t.Fatalf("%q: %d bytes have come of %d: %v", guess, came, due, err)
			}
			reads = append(reads, n)
		}
		more <- true
	}
	rest, err := io.ReadAll(resp.Body)
	if err != nil || came+len(rest) != 5000 {
		t.Fatalf("%d bytes: %v", came+len(rest), err)
	}
	raw.mu.Lock()
	defer raw.mu.Unlock()
	return fmt.Sprintf("reads %v, records %v", reads, raw.got[len(raw.got)-6:]) // those before are of the handshake
}
