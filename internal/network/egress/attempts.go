package egress

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"waldo/internal/model/facts"
	"waldo/internal/network/egress/packages"
)

// maxAttempts bounds the different attempts of one sandbox in its facts; the others are only counted.
const maxAttempts = 200

// attempt is one host and port, with the result of the connection attempts.
type attempt struct {
	host           string
	port           uint16
	code           string // why it was refused or failed; "" where it went out
	method         string // of HTTP; "" where waldo read none
	refused        bool
	times          int
	sent, received atomic.Int64
	told           facts.Attempt // the part that was already reported
	total          *atomic.Int64 // of the whole sandbox
}

func (a *attempt) out(n int64) { a.sent.Add(n); a.total.Add(n) }
func (a *attempt) in(n int64)  { a.received.Add(n); a.total.Add(n) }

// attempts are all connection attempts of a sandbox. Equal ones are reported once.
type attempts struct {
	mu   sync.Mutex
	list []*attempt
	more int
	news []facts.Package // fetched since the last report
	had  map[facts.Package]bool
	all  atomic.Int64        // bytes, sent and received
	safe func(string) string // takes out of a host's name what no fact may hold; nil: nothing
}

func (l *attempts) find(host string, port uint16, code, method string, refused bool) *attempt {
	if l.safe != nil {
		host = l.safe(host)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.list {
		if a.host == host && a.port == port && a.code == code && a.method == method {
			a.times++
			return a
		}
	}
	if len(l.list) >= maxAttempts {
		l.more++
		return &attempt{total: &l.all}
	}
	a := &attempt{host: host, port: port, code: code, method: method, refused: refused, times: 1, total: &l.all}
	l.list = append(l.list, a)
	return a
}

// refused records what did not go out.
func (l *attempts) refused(host string, port uint16, why *Refusal) {
	l.find(host, port, why.Code, "", true)
}

// began records what goes out, to be counted as it goes. The method is that of HTTP.
func (l *attempts) began(host string, port uint16, method string) *attempt {
	return l.find(host, port, "", method, false)
}

// methodOf returns the method of a request as a fact holds it. A sandbox chooses the text, so a fact holds no unknown
// one.
func methodOf(r *http.Request) string {
	if slices.Contains(methods, r.Method+" ") {
		return r.Method
	}
	return "OTHER"
}

// maxPackages bounds the packages of one sandbox in its facts.
const maxPackages = 5000

// fetched records a file of a package, once.
func (l *attempts) fetched(f packages.Package, kept bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := facts.Package{Manager: string(f.Manager), Name: f.Name, Version: f.Version, Kept: kept}
	if l.had[p] {
		return
	}
	if len(l.had) >= maxPackages {
		l.more++
		return
	}
	if l.had == nil {
		l.had = map[facts.Package]bool{}
	}
	l.had[p], l.news = true, append(l.news, p)
}

// failed records a refusal, or an allowed attempt that did not connect.
func (l *attempts) failed(host string, port uint16, method string, err error) {
	var why *Refusal
	if errors.As(err, &why) {
		l.find(host, port, why.Code, method, true)
		return
	}
	code := "egress.connect"
	var dns *net.DNSError
	if errors.As(err, &dns) {
		code = "egress.resolve"
	}
	l.find(host, port, code, method, false)
}

// Report adds to a run's facts the attempts since the last report: every attempt, and each refusal as a denial.
func (s *Server) Report(f *facts.Facts) {
	l := &s.attempts
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(f.Seen, "network") {
		f.Seen = append(f.Seen, "network")
	}
	for _, a := range l.list {
		now := facts.Attempt{
			Host: strings.ToValidUTF8(a.host, "\uFFFD"), Port: int(a.port), Allowed: !a.refused, Why: a.code, Method: a.method, Times: a.times,
			Sent: a.sent.Load(), Received: a.received.Load(),
		}
		if now == a.told {
			continue
		}
		news := now
		news.Times, news.Sent, news.Received = now.Times-a.told.Times, now.Sent-a.told.Sent, now.Received-a.told.Received
		a.told = now
		where := a.host
		if a.port != 0 {
			where = net.JoinHostPort(a.host, fmt.Sprint(a.port))
		}
		where = strings.ToValidUTF8(where, "\uFFFD")
		f.Network.Attempts = append(f.Network.Attempts, news)
		switch {
		case a.code == errOff.Code, a.code == errReplied.Code: // no surprise to anybody
		case a.refused:
			f.Network.Denied = append(f.Network.Denied, where)
			f.Denials = append(f.Denials, facts.Denial{Kind: "network", What: where, Errno: a.code})
		case a.code == "" && !slices.Contains(f.Network.Contacted, where):
			f.Network.Contacted = append(f.Network.Contacted, where)
		}
	}
	f.Network.Packages, l.news = append(f.Network.Packages, l.news...), nil
	if l.more > 0 {
		f.Warnings = append(f.Warnings,
			fmt.Sprintf("%d more connections than the %d different ones that are listed, or packages than %d", l.more,
				maxAttempts, maxPackages))
		l.more = 0
	}
}
