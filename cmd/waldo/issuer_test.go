package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"waldo/internal/network/egress/interceptca"
)

// serveIssuer serves the token end-points of some hosts behind a proxy at loopback, and makes it the proxy of the
// commands that follow. Each host has one good refresh token at a time. A renewal is a line of FILE: issuer FILE HOST..
func serveIssuer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: issuer FILE HOST..")
	}
	ca, err := interceptca.New(args[1:])
	ts.Check(err)
	i := &tokens{log: ts.MkAbs(args[0]), good: map[string]int{}}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.Host)
		cert, err := ca.Certificate(host)
		if err != nil || r.Method != http.MethodConnect {
			http.Error(w, "no such issuer", http.StatusForbidden)
			return
		}
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		one := make(chan net.Conn, 1)
		one <- tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12})
		_ = http.Serve(single{one}, i) // until it has no second connection
	}))
	ts.Defer(proxy.Close)
	ts.Check(os.WriteFile(i.log, nil, 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("issuer.pem"), ca.PEM(), 0o600))
	ts.Setenv("SSL_CERT_FILE", ts.MkAbs("issuer.pem"))
	ts.Setenv("HTTPS_PROXY", proxy.URL)
}

// single is a listener with one connection.
type single struct{ conns chan net.Conn }

func (s single) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	default:
		return nil, net.ErrClosed
	}
}
func (single) Close() error   { return nil }
func (single) Addr() net.Addr { return &net.TCPAddr{} }

// tokens answers for every host: real-refresh-1 becomes real-refresh-2, and so on.
type tokens struct {
	mu   sync.Mutex
	log  string
	good map[string]int
}

func (i *tokens) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	b, _ := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	ask := map[string]string{}
	if form, err := url.ParseQuery(string(b)); json.Unmarshal(b, &ask) != nil && err == nil {
		for k := range form {
			ask[k] = form.Get(k)
		}
	}
	n := i.good[r.Host] + 1
	if ask["refresh_token"] != fmt.Sprint("real-refresh-", n) {
		http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		return
	}
	i.good[r.Host] = n
	f, err := os.OpenFile(i.log, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, _ = fmt.Fprintf(f, "%s renewed\n", r.Host)
		_ = f.Close()
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "real-access-9f3kQz7Lw2Xv8Bn4Tc6Rj1Ys5Hd0Pm",
		"refresh_token": fmt.Sprint("real-refresh-", n+1), "id_token": strings.Repeat("real-id-", 5), "expires_in": 3600})
}
