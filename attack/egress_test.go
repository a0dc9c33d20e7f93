//go:build linux

package attack

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"waldo/internal/model/facts"
	"waldo/internal/network/egress"
	"waldo/internal/sandbox"
)

// TestEgress runs common programs against test servers at public addresses. It has its own network namespace, DNS and
// TLS.
func TestEgress(t *testing.T) {
	if os.Getenv("WALDO_EGRESS") != "" {
		outsideWorld(t)
		return
	}
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and ip(8) to give servers of its own public addresses; the egress itself needs neither")
	}
	c := exec.Command("/proc/self/exe", "-test.run", "^TestEgress$", "-test.v", "-test.count=1")
	c.Env = append(os.Environ(), "WALDO_EGRESS=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// worldNames are the names of that world and their addresses.
var worldNames = map[string]string{
	"api.example.com": "93.184.215.14", "git.example.com": "93.184.215.15", "pypi.example.com": "93.184.215.16",
	"npm.example.com": "93.184.215.17", "raw.example.com": "93.184.215.18", "apt.example.com": "93.184.215.19",
	"evil.example":       "93.184.215.66",
	"rebind.example.com": "10.0.0.5", "meta.example.com": "169.254.169.254", "six.example.com": "2606:4700::1",
	"mapped.example.com": "::ffff:10.0.0.5",
}

func outsideWorld(t *testing.T) {
	for _, args := range []string{"link set lo up", "route add local 93.184.215.0/24 dev lo",
		"-6 route add local 2606:4700::/32 dev lo", "route add local 10.0.0.0/8 dev lo",
		"route add local 169.254.169.254/32 dev lo"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %s", args, out)
		}
	}
	dir, err := os.MkdirTemp("/tmp", "waldo-egress-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	_ = os.Chmod(dir, 0o755)
	cert, pool := authority(t, filepath.Join(dir, "ca.pem"))
	dns(t)
	web := world(t, dir)
	for _, port := range []string{":80", ":443", ":5432", ":22"} {
		l, err := net.Listen("tcp", port)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		switch port {
		case ":80":
			go http.Serve(l, web)
		case ":443":
			s := &http.Server{
				Handler: web, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}},
			}
			go s.ServeTLS(l, "", "")
		default:
			go echo(l)
		}
	}
	// The controls: outside a sandbox each of these is reachable.
	for _, name := range []string{"evil.example", "rebind.example.com", "meta.example.com", "six.example.com"} {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(worldNames[name], "443"), time.Minute)
		if err != nil {
			t.Fatalf("control: %s: %v", name, err)
		}
		c.Close()
	}
	programs(t, dir, pool)
	programsInside(t, dir, pool)
	programsThatInstall(t, dir, pool)
	programsOnGVisor(t, dir, pool)
}

func authority(t *testing.T, file string) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "waldo test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	for name := range worldNames {
		c.DNSNames = append(c.DNSNames, name)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// dns answers on 127.0.0.1:53.
func dns(t *testing.T) {
	c, err := net.ListenPacket("udp", "127.0.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
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
			ip := net.ParseIP(worldNames[strings.TrimSuffix(q.Name.String(), ".")])
			v4 := ip.To4()
			if strings.HasPrefix(q.Name.String(), "mapped") {
				v4 = nil
			}
			h := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}
			switch {
			case ip == nil:
				m.RCode = dnsmessage.RCodeNameError
			case v4 != nil && q.Type == dnsmessage.TypeA:
				m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AResource{A: [4]byte(v4)}}}
			case v4 == nil && q.Type == dnsmessage.TypeAAAA:
				m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AAAAResource{AAAA: [16]byte(ip.To16())}}}
			}
			out, _ := m.Pack()
			_, _ = c.WriteTo(out, from)
		}
	}()
}

func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() { defer c.Close(); _, _ = io.WriteString(c, "ready\n"); _, _ = io.Copy(c, c) }()
	}
}

// world returns the content of the servers: pages, a git repository, and one package for pip and for npm.
func world(t *testing.T, dir string) http.Handler {
	repo := filepath.Join(dir, "repo")
	sh := "git init -q -b main w && cd w && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first && " +
		"echo hello >f && git add f && git -c user.name=a -c user.email=a@b commit -q -m second && cd .. && git clone -q " +
		"--bare w repo && cd repo && git update-server-info"
	c := exec.Command("sh", "-c", sh)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	wheel, tgz := wheelOf("1.0"), tarballOf("1.0.0")

	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s by %s\n", r.Host, r.Proto)
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://evil.example/", http.StatusFound)
	})
	private := http.StripPrefix("/private.git", http.FileServer(http.Dir(repo)))
	mux.HandleFunc("git.example.com/private.git/", func(w http.ResponseWriter, r *http.Request) {
		if user, pass, _ := r.BasicAuth(); user != "me" || pass != realToken {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		private.ServeHTTP(w, r)
	})
	mux.Handle("git.example.com/repo/", http.StripPrefix("/repo", http.FileServer(http.Dir(repo))))
	mux.HandleFunc("pypi.example.com/simple/waldotest/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<a href="/waldotest-1.0-py3-none-any.whl">waldotest-1.0-py3-none-any.whl</a>`)
	})
	mux.HandleFunc("pypi.example.com/waldotest-1.0-py3-none-any.whl",
		func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(wheel) })
	mux.HandleFunc("npm.example.com/waldotest", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w,
			`{"name":"waldotest","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"waldotest","version":"1.0.0",`+
				`"dist":{"tarball":"https://npm.example.com/waldotest.tgz"}}}}`)
	})
	mux.HandleFunc("npm.example.com/waldotest.tgz", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(tgz) })
	registries(mux)
	// Echoes the authenticated user.
	mux.HandleFunc("/private/", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+realToken {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprintf(w, "%s asked as %s\n", r.Proto, r.Header.Get("Authorization"))
	})
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) {
		c, b, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		_, _ = io.Copy(c, b)
	})
	return mux
}

// wheelOf is a version of the one package for pip.
func wheelOf(version string) []byte {
	var b bytes.Buffer
	z, info := zip.NewWriter(&b), "waldotest-"+version+".dist-info/"
	for name, text := range map[string]string{
		"waldotest.py":    "print('from the wheel')\n",
		info + "METADATA": "Metadata-Version: 2.1\nName: waldotest\nVersion: " + version + "\n",
		info + "WHEEL":    "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "RECORD":   "waldotest.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n",
	} {
		w, _ := z.Create(name)
		_, _ = io.WriteString(w, text)
	}
	_ = z.Close()
	return b.Bytes()
}

// tarballOf is a version of the one package for npm.
func tarballOf(version string) []byte {
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	w := tar.NewWriter(g)
	pkg := `{"name":"waldotest","version":"` + version + `"}`
	_ = w.WriteHeader(&tar.Header{Name: "package/package.json", Mode: 0o644, Size: int64(len(pkg))})
	_, _ = io.WriteString(w, pkg)
	_, _ = w.Close(), g.Close()
	return b.Bytes()
}

// wayDriver creates the sandboxes of these tests.
var wayDriver = driver()

// inSandbox runs a shell command in a sandbox whose egress allows lines. It returns the output and the facts.
func inSandbox(
	t *testing.T, dir string, pool *x509.CertPool, o egress.Options, lines []string, command string,
) (string, facts.Facts) {
	t.Helper()
	rules, err := egress.ParseRules(lines)
	if err != nil {
		t.Fatal(err)
	}
	return inSandboxBy(t, dir, pool, o, rules, nil, command)
}

// inSandboxBy is inSandbox with parsed rules and additional variables.
func inSandboxBy(
	t *testing.T, dir string, pool *x509.CertPool, o egress.Options, rules []egress.Rule, env []string, command string,
) (string, facts.Facts) {
	t.Helper()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", "127.0.0.1:53")
	}}
	s, err := egress.NewServer(&egress.Dialer{Policy: &egress.Policy{Rules: rules}, Resolver: resolver, Roots: pool}, o)
	if err != nil {
		t.Fatal(err)
	}
	trust, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "sandbox.pem"), append(trust, s.Trust()...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := profile()
	p.Network = sandbox.Network{Hosts: []string{"by rules"}, Ports: s.Ports(), Serve: s.Serve}
	p.Mounts = append(p.Mounts, sandbox.Mount{Source: filepath.Join(dir, "sandbox.pem"), Target: "/ca.pem"})
	p.Limits.Memory, p.Limits.Pids, p.Limits.Files, p.Limits.CPU, p.Limits.Wall = 2<<30, 256, 1024,
		40*time.Second, 60*time.Second
	sb, err := wayDriver.Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	env = append(env, "PATH=/usr/bin:/bin", "HOME=/tmp", "CURL_CA_BUNDLE=/ca.pem", "SSL_CERT_FILE=/ca.pem",
		"GIT_SSL_CAINFO=/ca.pem", "NODE_EXTRA_CA_CERTS=/ca.pem",
		"PIP_CERT=/ca.pem", "REQUESTS_CA_BUNDLE=/ca.pem", "npm_config_cafile=/ca.pem", "PIP_DISABLE_PIP_VERSION_CHECK=1",
		"npm_config_update_notifier=false")
	for _, c := range o.Credentials {
		env = append(env, strings.ToUpper(c.Name)+"="+c.Placeholder)
	}
	f, err := sb.Run(t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-c", command}, Env: env, Dir: "/tmp"})
	s.Report(&f)
	if cerr := sb.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
	return strings.TrimSpace(f.Stdout + f.Stderr), f
}

const rawClient = `import socket,sys
s=socket.create_connection(("raw.example.com",5432),60); print(s.recv(6)); s.send(b"abc"); print(s.recv(3))`

const websocket = `import socket
s=socket.create_connection(("api.example.com",80),60)
s.send(b"GET /ws HTTP/1.1\r\nHost: api.example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: eHh4\r\nSec-WebSocket-Version: 13\r\n\r\n")
b=b""
while b"\r\n\r\n" not in b: b+=s.recv(1000)
s.send(b"frames"); print(b[:12], s.recv(6))`

func programs(t *testing.T, dir string, pool *x509.CertPool) {
	all := []string{
		"api.example.com", "git.example.com", "pypi.example.com", "npm.example.com", "raw.example.com:5432",
		"rebind.example.com", "meta.example.com", "six.example.com", "mapped.example.com",
	}
	const code = "curl -s -o /dev/null -m 60 -w '%{exitcode}' "
	for _, row := range []struct {
		why, command, want string
		denied             string // a refused host, with its reason
	}{
		{"curl over TLS, HTTP/2", "curl -sS https://api.example.com/", "hello api.example.com by HTTP/2.0", ""},
		{"curl over plain HTTP", "curl -sS http://api.example.com/", "hello api.example.com by HTTP/1.1", ""},
		{"curl to a host that IPv6 alone reaches", "curl -sS https://six.example.com/", "hello six.example.com", ""},
		{"curl through the proxy with CONNECT", "curl -sS -x http://198.18.0.1:3128 https://api.example.com/",
			"hello api.example.com", ""},
		{"git clones", "git clone -q https://git.example.com/repo r && cat r/f", "hello", ""},
		{
			"pip installs", "python3 -m pip install -q --no-cache-dir --target t --index-url https://pypi.example.com/simple " +
				"waldotest 2>&1 && PYTHONPATH=t python3 -c 'import waldotest'", "from the wheel", "",
		},
		{
			"npm installs", "mkdir n && cd n && npm install --silent --no-audit --no-fund --registry https://npm.example.com " +
				"waldotest && cat node_modules/waldotest/package.json", `"version":"1.0.0"`, "",
		},
		{
			"requests, as pip brings it", "python3 -c 'from pip._vendor import requests; " +
				"print(requests.get(\"https://api.example.com/\", verify=\"/ca.pem\").text)'", "hello api.example.com", "",
		},
		{"node fetch, which knows no proxy",
			"node -e 'fetch(\"https://api.example.com/\").then(r=>r.text()).then(console.log)'", "hello api.example.com", ""},
		{"raw TCP where the server speaks first", "python3 -c '" + rawClient + "'", "b'ready\\n'\nb'abc'", ""},
		{"a websocket", "python3 -c '" + websocket + "'", "b'HTTP/1.1 101' b'frames'", ""},

		{"curl to a name that is not allowed", code + "https://evil.example/", "6", "evil.example egress.name"},
		{"curl to an address", code + "https://93.184.215.66/", "7", ""},
		{"an allowed name pinned to another address",
			code + "--resolve api.example.com:443:93.184.215.66 https://api.example.com/", "7", ""},
		{"another name pinned to the address of an allowed one", "curl -s -o /dev/null http://api.example.com/; " + code +
			"-k --resolve evil.example:443:198.18.0.2 https://evil.example/", "35", "api.example.com egress.tls.name"},
		{"another Host on plain HTTP", "curl -s -H 'Host: evil.example' http://api.example.com/", "waldo: egress.http.host",
			"api.example.com egress.http.host"},
		{"a redirect to a name that is not allowed", code + "-L https://api.example.com/away", "6",
			"evil.example egress.name"},
		{"a port that is not allowed", code + "telnet://api.example.com:22", "7", ""},
		{"a name that stands for a private address", code + "https://rebind.example.com/", "35",
			"rebind.example.com egress.address"},
		{"a name that stands for a metadata address", code + "http://meta.example.com/", "0",
			"meta.example.com egress.address"},
		{"a private address in IPv6 clothes", code + "https://mapped.example.com/", "35",
			"mapped.example.com egress.address"},
		{"CONNECT to a name that is not allowed", code + "-x http://198.18.0.1:3128 https://evil.example/", "56",
			"evil.example egress.host"},
		{"IPv6 to an address", code + "https://[2606:4700::1]/", "7", ""},
		{
			"UDP to an allowed name",
			`python3 -c 'import socket; s=socket.socket(2,2); s.connect(("api.example.com",443)); s.send(b"x"); s.settimeout(2); s.recv(1)' 2>&1 | tail -1`, "ConnectionRefusedError", "",
		},
		{"git over another protocol", "git clone -q git://git.example.com/repo r 2>&1", "unable to connect", ""},
	} {
		out, f := inSandbox(t, dir, pool, egress.Options{}, all, row.command)
		if !strings.Contains(out, row.want) {
			t.Errorf("%s: %q\n%+v", row.why, out, f.Network.Attempts)
		}
		told := row.denied == ""
		for _, a := range f.Network.Attempts {
			told = told || a.Host+" "+a.Why == row.denied && !a.Allowed && a.Sent == 0
			if a.Host == "evil.example" && (a.Allowed || a.Sent+a.Received > 0) {
				t.Errorf("%s: evil.example was reached: %+v", row.why, a)
			}
		}
		if !told {
			t.Errorf("%s: %s is no fact: %+v", row.why, row.denied, f.Network.Attempts)
		}
	}
}
