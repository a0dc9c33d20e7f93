package egress

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"waldo/internal/model/facts"
	"waldo/internal/network/egress/packages"
	"waldo/internal/network/egress/pkgcache"
)

// TestKept fetches a file twice, each time in a sandbox of its own: the second has it without the registry,
// where everybody may have it, and never past the pins.
func TestKept(t *testing.T) {
	const file = "https://api.example.com/npm/a/-/a-1.0.0.tgz"
	for _, row := range []struct {
		why    string
		url    string
		header http.Header // of the first sandbox
		answer func(w http.ResponseWriter)
		kept   bool
	}{
		{"a file of a package", file, nil, nil, true},
		{"headers of a sandbox change nothing", file,
			http.Header{"Range": {"bytes=0-1"}, "X-Forwarded-Host": {"evil.example"}, "Accept-Encoding": {"gzip"}}, nil, true},
		{"an index", "https://api.example.com/npm/a", nil, nil, false},
		{"a query", file + "?a=b", nil, nil, false},
		{"with a password", file, http.Header{"Authorization": {"Bearer mine"}}, nil, false},
		{"with a cookie", file, http.Header{"Cookie": {"a=b"}}, nil, false},
		{
			"for one alone", file, nil, func(w http.ResponseWriter) {
				w.Header().Set("Cache-Control", "max-age=1, Private")
			}, false,
		},
		{"for nobody to keep", file, nil, func(w http.ResponseWriter) { w.Header().Set("Cache-Control", "no-store") }, false},
		{"with a cookie in the answer", file, nil,
			func(w http.ResponseWriter) { w.Header().Set("Set-Cookie", "a=b") }, false},
		{"packed", file, nil, func(w http.ResponseWriter) { w.Header().Set("Content-Encoding", "br") }, false},
		{"not found", file, nil, func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }, false},
	} {
		s, err := pkgcache.Open(t.TempDir(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		sb := func(pins packages.Pins, header http.Header) (*rig, string) {
			g := newRigWith(t, Limits{}, Options{Cache: s}, "GET,HEAD api.example.com:443/npm/*")
			g.policy.Rules[0].Registry = &packages.Source{Manager: packages.NPM, Base: "/npm/", Pins: pins}
			g.answer = func(w http.ResponseWriter, r *http.Request) {
				if row.answer != nil {
					row.answer(w)
				}
				_, _ = io.WriteString(w, "what "+r.Header.Get("X-Forwarded-Host")+r.Header.Get("Range")+" is there")
			}
			_, got := g.ask(t, false, "GET", row.url, header, "")
			return g, got
		}
		first, got := sb(nil, row.header)
		if len(first.hosts) != 1 || !strings.Contains(got, "what  is there") {
			t.Errorf("%s: the first: %q, asked %d times", row.why, got, len(first.hosts))
		}
		second, again := sb(nil, nil)
		if kept := len(second.hosts) == 0; kept != row.kept || again != got {
			t.Errorf("%s: kept %v, %q", row.why, kept, again)
		}
		f := facts.New()
		second.Report(&f)
		if row.kept && (len(f.Network.Packages) != 1 || f.Network.Packages[0] != facts.Package{
			Manager: "npm", Name: "a", Version: "1.0.0", Kept: true,
		}) {
			t.Errorf("%s: told %+v", row.why, f.Network.Packages)
		}
		if third, got := sb(packages.Pins{"b": {"1.0.0"}}, nil); len(third.hosts) > 0 ||
			!strings.Contains(got, "egress.packages.pin") {
			t.Errorf("%s: past the pins: %q", row.why, got)
		}
	}
}

// A file fetched with a secret is not cached for other sandboxes.
func TestASecretsFileIsNotKept(t *testing.T) {
	s, err := pkgcache.Open(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []bool{false, true} {
		o := Options{Cache: s}
		if secret {
			c := brokered(Bearer, "")
			c.Paths = []string{"/npm/*"}
			o.Credentials = []Credential{c}
		}
		url := map[bool]string{
			false: "https://api.example.com/npm/a/-/a-1.0.0.tgz", true: "https://api.example.com/npm/b/-/b-1.0.0.tgz",
		}[secret]
		for range 2 {
			g := newRigWith(t, Limits{}, o, "GET,HEAD api.example.com:443/npm/*")
			g.policy.Rules[0].Registry = &packages.Source{Manager: packages.NPM, Base: "/npm/"}
			_, _ = g.ask(t, false, "GET", url, nil, "")
		}
		if _, _, kept := s.Get(url); kept == secret {
			t.Errorf("with a secret %v: kept %v", secret, kept)
		}
	}
}

// TestKeptBytesCount: bytes from the cache count in the sandbox's limit, as those of a registry do.
func TestKeptBytesCount(t *testing.T) {
	const url, size = "https://api.example.com/npm/a/-/a-1.0.0.tgz", 10_000
	s, err := pkgcache.Open(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	sb := func(l Limits) *rig {
		g := newRigWith(t, l, Options{Cache: s}, "GET,HEAD api.example.com:443/npm/*")
		g.policy.Rules[0].Registry = &packages.Source{Manager: packages.NPM, Base: "/npm/"}
		g.answer = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(size))
			_, _ = io.WriteString(w, strings.Repeat("x", size))
		}
		return g
	}
	first := sb(Limits{})
	if _, got := first.ask(t, false, "GET", url, nil, ""); len(got) != size {
		t.Fatalf("control: the first sandbox got %d bytes", len(got))
	}
	second := sb(Limits{Bytes: 5 * size / 2})
	var got int
	for range 5 {
		func() {
			defer func() { _ = recover() }()
			_, body := second.ask(t, false, "GET", url, nil, "")
			got += len(body)
		}()
	}
	if len(second.hosts) != 0 || second.attempts.all.Load() < 5*size/2 {
		t.Errorf("%d bytes are counted, the registry was asked %d times", second.attempts.all.Load(), len(second.hosts))
	}
	f := facts.New()
	second.Report(&f)
	if !slices.Contains(f.Network.Denied, "api.example.com:443") {
		t.Errorf("%d bytes came, and nothing was refused: %+v", got, f.Network)
	}
}
