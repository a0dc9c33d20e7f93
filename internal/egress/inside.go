package egress

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

// inside reports whether waldo must look into TLS to a host: where every rule for it looks at
// requests, or a secret belongs to it. TLS to all other hosts stays between the box and the host.
func (s *Server) inside(host string, port uint16) bool {
	return s.brokered(Target{Scheme: "https", Host: host, Port: port}) || s.policy.requestsOnly(host, port)
}

func (s *Server) brokered(t Target) bool {
	return slices.ContainsFunc(s.creds, func(c Credential) bool { return c.at(t) })
}

// domains are those that the authority of the box must vouch for.
func (s *Server) domains() (out []string) {
	for _, r := range s.policy.Rules {
		if r.webOnly() && r.Host.name != "" && slices.ContainsFunc(r.Ports, func(p uint16) bool { return kindOf(p) != isHTTP }) {
			out = append(out, r.Host.name)
		}
	}
	for _, c := range s.creds {
		out = append(out, c.Host)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// intercept ends the box's TLS for a host here, where a certificate of the box's own authority stands
// for the host, and judges the requests within. The connection to the host is TLS of waldo's own,
// with the host's certificate verified.
func (s *Server) intercept(f *first, host string, port uint16) {
	cert, err := s.authority.Certificate(host)
	if err != nil {
		s.attempts.refused(host, port, refuse("tls.certificate", "nobody in the box vouches for this host"))
		reset(f.Conn)
		return
	}
	config, _ := s.configs.LoadOrStore(host, &tls.Config{
		Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
	})
	s.web(f, Target{Scheme: "https", Host: host, Port: port}, config.(*tls.Config))
}

// injection is what is added to one request, and hidden in its answer.
type injection struct {
	use  []filled
	hash string
	veil *veil
}

// inject looks for placeholders in a request, takes out what the client has put where a secret goes,
// and returns the secrets that belong to it.
func (s *Server) inject(r *http.Request, t Target) (in injection, why *Refusal) {
	if len(s.creds) == 0 {
		return in, nil
	}
	var known []string
	for i := range s.creds {
		c := &s.creds[i]
		if !c.at(t) {
			continue
		}
		f, err := c.fill()
		if err != nil {
			return in, refuse("secret.missing", fmt.Sprintf("the secret %s cannot be had", c.Name))
		}
		known = append(known, f.value)
		if f.token != "" {
			known = append(known, f.token)
		}
		if c.fits(r.Method, t) {
			in.use = append(in.use, f)
			c.clear(r)
		}
	}
	if s.marks.inRequest(r) || s.marks.inBody(r) {
		return in, errPlaceholder
	}
	if len(known) == 0 {
		return in, nil
	}
	r.Header.Del("Authorization") // at a host that a secret belongs to, nobody is somebody else
	r.Header.Del("Sec-Websocket-Extensions")
	r.Header.Del("Range") // an answer in pieces, or packed, could not be looked through
	r.Header.Del("If-Range")
	r.Header.Set("Accept-Encoding", "identity")
	in.veil = newVeil(s.forms, known)
	for _, f := range in.use {
		if f.As == SigV4 {
			if in.hash, why = bodyHash(r); why != nil {
				return in, why
			}
		}
	}
	return in, nil
}

func (in injection) add(out *http.Request) {
	for _, f := range in.use {
		f.add(out, in.hash, time.Now())
	}
}

// unveil hides the secrets in the head of an answer, and refuses one whose body cannot be read.
func (in injection) unveil(resp *http.Response) error {
	if in.veil == nil {
		return nil
	}
	if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return refuse("secret.encoding", "the host has packed its answer, so that an echo of a secret in it would not be seen")
	}
	in.veil.header(resp.Header)
	return nil
}

// body hides the secrets in a body and, with resp, in what follows it.
func (in injection) body(b io.ReadCloser, resp *http.Response) io.ReadCloser {
	if in.veil == nil {
		return b
	}
	v := &veiled{ReadCloser: b, v: in.veil}
	if resp != nil {
		v.over = func() { in.veil.header(resp.Trailer) }
	}
	return v
}

// watch holds a body, or a connection, against the placeholders of the box.
func (s *Server) watch(b io.ReadCloser) io.ReadCloser {
	if s.marks == nil {
		return b
	}
	return &watched{ReadCloser: b, m: s.marks}
}
