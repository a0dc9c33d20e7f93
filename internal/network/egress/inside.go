package egress

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"slices"
	"time"

	"waldo/internal/detect/scrub"
)

// inside reports whether waldo must intercept TLS to a host: every rule for it looks at requests, a secret belongs to
// it, or waldo answers some itself. TLS to all other hosts stays between the sandbox and the host.
func (s *Server) inside(host string, port uint16) bool {
	return s.brokered(Target{Scheme: "https", Host: host, Port: port}) || s.policy.requestsOnly(host, port) ||
		slices.ContainsFunc(s.policy.rules(host, port), func(r Rule) bool { return r.Reply != nil })
}

func (s *Server) brokered(t Target) bool {
	return slices.ContainsFunc(s.creds, func(c Credential) bool { return c.at(t) })
}

// owned reports whether a secret belongs to a host, that goes into requests to it.
func (s *Server) owned(host string) bool {
	return slices.ContainsFunc(s.creds, func(c Credential) bool { return c.As != Postgres && c.Host == host })
}

// domains are the hosts that the sandbox's authority issues certificates for.
func (s *Server) domains() (out []string) {
	for _, r := range s.policy.Rules {
		if r.webOnly() && r.Host.Name != "" && slices.ContainsFunc(r.Ports, func(p uint16) bool { return kindOf(p) != isHTTP }) {
			out = append(out, r.Host.Name)
		}
	}
	for _, c := range s.creds {
		out = append(out, c.Host)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// intercept ends the sandbox's TLS for a host here, with a certificate of the sandbox's own authority, and checks the
// requests within. Waldo makes its own TLS connection to the host and verifies the host's certificate.
func (s *Server) intercept(f *first, host string, port uint16) {
	cert, err := s.authority.Certificate(host)
	if err != nil {
		s.attempts.refused(host, port, refuse("tls.certificate", "the sandbox trusts no authority for this host"))
		reset(f.Conn)
		return
	}
	config, _ := s.configs.LoadOrStore(host, &tls.Config{
		Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
	})
	s.web(f, Target{Scheme: "https", Host: host, Port: port}, config.(*tls.Config))
}

// injection is the secret added to one request and hidden in its answer.
type injection struct {
	use      []filled
	hash     string
	scrubber *responseScrubber
	cut      func() // records that the end of an answer was dropped
	held     int64  // bytes of its body that are held, to be given back
}

// quoted reports whether the body of a request may hold placeholders.
func (in injection) quoted() bool {
	return slices.ContainsFunc(in.use, func(f filled) bool { return f.Quoted })
}

// inject looks for placeholders in a request, takes out what the client has put where a secret goes,
// and returns the secrets that belong to it.
func (s *Server) inject(r *http.Request, t *Target) (in injection, why *Refusal) {
	if len(s.creds) == 0 {
		return in, nil
	}
	var known []string
	for i := range s.creds {
		c := &s.creds[i]
		if !c.at(*t) {
			continue
		}
		f, why := c.fill()
		if why != nil {
			return in, why
		}
		known = append(known, f.value)
		if f.token != "" {
			known = append(known, f.token)
		}
		if c.fits(r.Method, *t) {
			in.use = append(in.use, f)
			c.clear(r, t)
		}
	}
	if why := s.hold(r, &in); why != nil {
		return in, why
	}
	if s.marks.inRequest(r, *t) || !in.quoted() && s.marks.inBody(r) {
		return in, errPlaceholder
	}
	if s.owned(t.Host) {
		anonymous(r, t)
	}
	if len(known) == 0 {
		return in, nil
	}
	askWhole(r.Header)
	in.scrubber = newScrubber(known)
	in.cut = func() { s.attempts.refused(t.Host, t.Port, errCut) }
	for _, f := range in.use {
		if f.As == SigV4 {
			if in.hash, why = bodyHash(r); why != nil {
				return in, why
			}
		}
	}
	return in, nil
}

// hold waits until the body of a request may be held, as far as it must be: to look for placeholders in it
// before any of it is sent, or to sign it.
func (s *Server) hold(r *http.Request, in *injection) *Refusal {
	n := int64(0)
	if s.marks.looks(r) {
		n = r.ContentLength
	}
	if slices.ContainsFunc(in.use, func(f filled) bool { return f.As == SigV4 && hashes(r) }) {
		if n = r.ContentLength; n < 0 {
			n = maxSigned
		}
		if n > maxSigned {
			return errSigned
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if !s.held.take(ctx, n) {
		return refuse("limit.held", "the sandbox sends too many bodies at a time that must be held")
	}
	in.held = n
	return nil
}

func (in injection) add(out *http.Request) {
	for _, f := range in.use {
		f.add(out, in.hash, time.Now())
	}
}

// unveil hides the secrets in the head of an answer, and refuses one whose body cannot be read.
func (in injection) unveil(resp *http.Response) error {
	if in.scrubber == nil {
		return nil
	}
	if packed(resp.Header) {
		return refuse("secret.encoding", "the host has packed its answer, so that an echo of a secret in it would not be seen")
	}
	if partial(resp) {
		return refuse("secret.part", "the host has answered with a part, so that an echo of a secret in it would not be seen")
	}
	resp.Status = "" // the standard words replace the host's, which can be the secret
	in.scrubber.header(resp.Header)
	in.scrubber.header(resp.Trailer) // the names that are announced
	return nil
}

// body hides the secrets in a body and its trailers.
func (in injection) body(b io.ReadCloser, resp *http.Response) io.ReadCloser {
	if in.scrubber == nil {
		return b
	}
	v := in.scrubber.body(b, scrub.Lines, func() { in.scrubber.header(resp.Trailer) })
	if resp.StatusCode == http.StatusSwitchingProtocols {
		v = in.scrubber.body(b, scrub.Frames(), nil)
	}
	v.scrubbed.Open, v.cut = endless(resp), in.cut
	return v
}

var errCut = refuse("secret.end", "no length ends the answer, or its websocket's frames break the rules: a secret could hide in it")

// endless reports whether the end of the connection ends an answer, as a cut does.
func endless(resp *http.Response) bool {
	return resp.StatusCode == http.StatusSwitchingProtocols ||
		resp.ProtoMajor < 2 && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0
}

// watch scans a body, or a connection, for the sandbox's placeholders.
func (s *Server) watch(b io.ReadCloser) io.ReadCloser {
	if s.marks == nil {
		return b
	}
	return &watched{ReadCloser: b, m: s.marks}
}
