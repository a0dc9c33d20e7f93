package egress

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	"waldo/internal/network/egress/packages"
)

// keeps returns the requested package, and whether its file can be cached between runs. It can if the file is public,
// comes over TLS, and no credential is sent for it.
func (s *Server) keeps(r *http.Request, t Target, use injection) (packages.Package, bool) {
	if s.cache == nil || r.Method != http.MethodGet || t.Scheme != "https" || strings.Contains(t.Path, "?") || use.scrubber != nil ||
		r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" || r.ContentLength != 0 || r.Header.Get("Upgrade") != "" {
		return packages.Package{}, false
	}
	return s.policy.pack(t)
}

// kept answers with the cached file, if there is one. Its bytes count as those of an answer of the registry.
func (s *Server) kept(w http.ResponseWriter, t Target, p packages.Package) bool {
	f, n, ok := s.cache.Get(t.String())
	if !ok {
		return false
	}
	defer f.Close()
	s.attempts.fetched(p, true)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	in := attempt{total: &s.attempts.all} // the host was not contacted
	_, _ = io.Copy(w, &counted{f, in.in, s, t})
	return true
}

// keep keeps the file of an answer, where the registry does not ask otherwise.
func (s *Server) keep(t Target, resp *http.Response) {
	control := strings.ToLower(strings.Join(resp.Header.Values("Cache-Control"), ","))
	if resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Encoding") == "" && resp.Header.Get("Set-Cookie") == "" &&
		!strings.Contains(control, "no-store") && !strings.Contains(control, "private") {
		resp.Body = s.cache.Keep(t.String(), resp.Body, resp.ContentLength)
	}
}
