package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/net/dns/dnsmessage"
)

// serveWebsite serves the files of a folder at loopback, and a DNS server for which every name below .test is
// 127.0.0.1. It writes FROM to TO with PORT replaced: website FOLDER FROM TO.
func serveWebsite(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: website FOLDER FROM TO")
	}
	web := httptest.NewServer(http.FileServer(http.Dir(ts.MkAbs(args[0]))))
	ts.Defer(web.Close)
	names, err := net.ListenPacket("udp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = names.Close() })
	go answerNames(names)
	ts.Setenv("TEST_DNS", names.LocalAddr().String())
	port := netip.MustParseAddrPort(web.Listener.Addr().String()).Port()
	text := strings.ReplaceAll(ts.ReadFile(args[1]), "PORT", strconv.Itoa(int(port)))
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(text), 0o600))
}

// answerNames answers questions until the socket is closed.
func answerNames(c net.PacketConn) {
	b := make([]byte, 1500)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		m.Response, m.Additionals = true, nil
		if !strings.HasSuffix(q.Name.String(), ".test.") {
			m.RCode = dnsmessage.RCodeNameError
		} else if q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
				Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
			}}
		}
		if packed, err := m.Pack(); err == nil {
			_, _ = c.WriteTo(packed, from)
		}
	}
}

// resolveBy makes a DNS server the only one of this process; "" leaves the machine's own.
func resolveBy(server string) {
	if server == "" {
		return
	}
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server)
	}}
}
