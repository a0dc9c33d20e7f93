package packages

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

var sources = map[Manager]Source{
	NPM:    {Manager: NPM, Base: "/npm/", Pins: Pins{"left": {"1.0.0"}, "@team/right": {"2.1.0-rc.1"}}},
	PyPI:   {Manager: PyPI, Base: "/simple/", Pins: Pins{"left-pad": {"1"}, "right": {"2.1"}}},
	Debian: {Manager: Debian, Base: "/debian/", Pins: Pins{"jq": {"1.6-2"}, "g++": {"4.9+b1"}}},
}

func TestPaths(t *testing.T) {
	for _, row := range []struct {
		why, path string
		m         Manager
		want      string // the package that is read; "" none
		passes    bool
	}{
		{"a pinned tarball", "/npm/left/-/left-1.0.0.tgz", NPM, "left 1.0.0", true},
		{"another version", "/npm/left/-/left-1.0.1.tgz", NPM, "left 1.0.1", false},
		{"another name", "/npm/evil/-/evil-1.0.0.tgz", NPM, "evil 1.0.0", false},
		{"a pinned name with another's file", "/npm/left/-/evil-1.0.0.tgz", NPM, "", false},
		{"a scope", "/npm/@team/right/-/right-2.1.0-rc.1.tgz", NPM, "@team/right 2.1.0-rc.1", true},
		{"another scope", "/npm/@evil/right/-/right-2.1.0-rc.1.tgz", NPM, "@evil/right 2.1.0-rc.1", false},
		{"a scope that is none", "/npm/team/right/-/right-2.1.0-rc.1.tgz", NPM, "", false},
		{"the index of a name", "/npm/left", NPM, "", true},
		{"the index of a scoped name", "/npm/@team/right", NPM, "", true},
		{"the index of another name", "/npm/evil", NPM, "", false},
		{"the search", "/npm/-/v1/search", NPM, "", false},
		{"a name like a file's", "/npm/left-1.0.0.tgz", NPM, "", false},
		{"a file in another place", "/other/left/-/left-1.0.0.tgz", NPM, "", false},

		{"a pinned wheel", "/simple/left_pad-1.0-py3-none-any.whl", PyPI, "left-pad 1", true},
		{"a wheel with a build", "/simple/x/Left.Pad-1.0.0-2-py3-none-any.whl", PyPI, "left-pad 1", true},
		{"another version of it", "/simple/left_pad-1.1-py3-none-any.whl", PyPI, "left-pad 1.1", false},
		{"a source distribution", "/simple/right-2.1.tar.gz", PyPI, "right 2.1", true},
		{"a name with a hyphen and a number", "/simple/right-2.1-2.1.tar.gz", PyPI, "right-2-1 2.1", false},
		{"another archive", "/simple/right-2.1.tar.bz2", PyPI, "", false},
		{"metadata of a pinned name", "/simple/right-2.1-py3-none-any.whl.metadata", PyPI, "", true},
		{"metadata of another", "/simple/evil-2.1-py3-none-any.whl.metadata", PyPI, "", false},
		{"the index of a name", "/simple/left-pad/", PyPI, "", true},
		{"the index of another name", "/simple/evil/", PyPI, "", false},
		{"the index of all", "/simple/", PyPI, "", false},

		{"a pinned archive", "/debian/pool/main/j/jq/jq_1.6-2_amd64.deb", Debian, "jq 1.6-2", true},
		{"an epoch in its name", "/debian/pool/main/j/jq/jq_1:1.6-2_amd64.deb", Debian, "jq 1.6-2", true},
		{"plus signs", "/debian/g++_4.9+b1_amd64.deb", Debian, "g++ 4.9+b1", true},
		{"another version", "/debian/pool/main/j/jq/jq_1.6-3_amd64.deb", Debian, "jq 1.6-3", false},
		{"another name", "/debian/pool/main/j/jq/jqx_1.6-2_amd64.deb", Debian, "jqx 1.6-2", false},
		{"an archive among the lists", "/debian/dists/jqx_1.6-2_amd64.deb", Debian, "jqx 1.6-2", false},
		{"an archive of the installer among them", "/debian/dists/jq_1.6-2_amd64.udeb", Debian, "", false},
		{"a name that is none", "/debian/pool/jq.deb", Debian, "", false},
		{"a source", "/debian/pool/main/j/jq/jq_1.6-2.dsc", Debian, "", false},
		{"the signed list of lists", "/debian/dists/bookworm/InRelease", Debian, "", true},
		{"a list", "/debian/dists/bookworm/main/binary-amd64/Packages.xz", Debian, "", true},
		{"a list by its digest", "/debian/dists/b/main/binary-amd64/by-hash/SHA256/00ff", Debian, "", true},
		{"a list of a flat archive", "/debian/./Packages.gz", Debian, "", true},
		{"another file", "/debian/README", Debian, "", false},
		{"a list in another place", "/other/dists/bookworm/InRelease", Debian, "", false},
	} {
		s := sources[row.m]
		p, ok := s.File(row.path)
		got := ""
		if ok {
			got = p.Name + " " + p.Version
		}
		if got != row.want {
			t.Errorf("%s: read as %q", row.why, got)
		}
		if why := s.Refuses(row.path, ""); (why == "") != row.passes {
			t.Errorf("%s: %q", row.why, why)
		}
		if s.Refuses(row.path, "version=9") == "" {
			t.Errorf("%s: with a query it passes", row.why)
		}
		if s.Pins = nil; s.Refuses(row.path, "") != "" {
			t.Errorf("%s: refused without pins", row.why)
		}
	}
}

func TestPlain(t *testing.T) {
	for path, want := range map[string]string{
		"/npm/@team%2fright": "/npm/@team/right", "/@team%2Fright": "/@team/right", "/npm/team%2fright": "/npm/team%2fright",
		"/npm/@team%2f..": "/npm/@team/..", "/npm/@a%2fb%2fc": "/npm/@a%2fb%2fc", "/npm/%2e/@a%2fb": "/npm/%2e/@a%2fb",
	} {
		if got := sources[NPM].Plain(path); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
	if got := sources[PyPI].Plain("/@a%2fb"); got != "/@a%2fb" {
		t.Error(got)
	}
}

func TestReadLock(t *testing.T) {
	for _, row := range []struct {
		why  string
		m    Manager
		text string
		want string // a pin, or with ! a part of the error
	}{
		{
			"a package", NPM, `{"lockfileVersion":3,"packages":{"":{"name":"me"},"node_modules/a":{"version":"1.0.0"}}}`,
			"a 1.0.0",
		},
		{
			"one below another", NPM,
			`{"lockfileVersion":2,"packages":{"node_modules/a/node_modules/@s/b":{"version":"2.0.0-x"}}}`, "@s/b 2.0.0-x",
		},
		{"an alias", NPM, `{"lockfileVersion":3,"packages":{"node_modules/a":{"name":"real","version":"1.0.0"}}}`,
			"real 1.0.0"},
		{"the oldest form", NPM, `{"lockfileVersion":1,"dependencies":{}}`, "!lockfileVersion"},
		{
			"a name twice", NPM, `{"lockfileVersion":3,"packages":{"node_modules/a":{"version":"1.0.0"},` +
				`"node_modules/a":{"version":"6.6.6"}}}`, "!duplicate",
		},
		{"no version", NPM, `{"lockfileVersion":3,"packages":{"node_modules/a":{}}}`, "!names no package"},
		{"no JSON", NPM, `a==1`, "!package-lock.json"},
		{
			"a requirement", PyPI, "# why\nFoo_Bar[x]==1.0 ; python_version > '3' \\\n  --hash=sha256:aa \\\n  " +
				"--hash=sha256:bb\n", "foo-bar 1",
		},
		{"a range", PyPI, "foo>=1.0\n", "!=="},
		{"a wildcard", PyPI, "foo==1.*\n", "!=="},
		{"two", PyPI, "foo==1.0,==2.0\n", "!=="},
		{"another file", PyPI, "-r other.txt\n", "!=="},
		{"a URL", PyPI, "foo @ https://h.example/foo-1.0.tar.gz\n", "!=="},
		{"an archive", Debian, "# why\n  jq:amd64=1:1.6-2 # with an epoch\n\n", "jq 1.6-2"},
		{"a release of apt's", Debian, "jq/bookworm\n", "!NAME=VERSION"},
		{"a pattern", Debian, "jq=1.*\n", "!NAME=VERSION"},
		{"a bare name", Debian, "jq\n", "!NAME=VERSION"},
	} {
		pins, err := ReadLock(row.m, []byte(row.text))
		if part, ok := strings.CutPrefix(row.want, "!"); ok {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v %v", row.why, pins, err)
			}
			continue
		}
		name, version, _ := strings.Cut(row.want, " ")
		if err != nil || len(pins) != 1 || !slices.Equal(pins[name], []string{version}) {
			t.Errorf("%s: %v %v", row.why, pins, err)
		}
	}
	note := append([]byte("#"), make([]byte, MaxLock-1)...)
	if _, err := ReadLock(PyPI, note); err != nil {
		t.Error("control: ", err)
	}
	if _, err := ReadLock(PyPI, append(note, '#')); err == nil {
		t.Error("a lock that is too long was read")
	}
	for _, row := range []struct {
		line string
		n    int
		good bool
	}{
		{"a==1.%d\n", 1000, true}, {"a==1.%d\n", 1001, false}, {"a%d==1\n", maxPins, true}, {"a%d==1\n", maxPins + 1, false},
	} {
		var b bytes.Buffer
		for i := range row.n {
			fmt.Fprintf(&b, row.line, i+1)
		}
		if _, err := ReadLock(PyPI, b.Bytes()); (err == nil) != row.good {
			t.Errorf("%d of %q: %v", row.n, row.line, err)
		}
	}
}

// FuzzReadLock: an accepted lock holds plain names, and a file passes exactly at its pinned versions.
func FuzzReadLock(f *testing.F) {
	f.Add([]byte(`{"lockfileVersion":3,"packages":{"node_modules/@a/b":{"version":"1.0.0"}}}`))
	f.Add([]byte("foo==1.0\nbar[x]==2 --hash=sha256:a\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range []Manager{NPM, PyPI} {
			pins, err := ReadLock(m, b)
			if err != nil {
				continue
			}
			for name, versions := range pins {
				for _, v := range versions {
					path := "/" + name + "/-/" + name[strings.IndexByte(name, '/')+1:] + "-" + v + ".tgz"
					if m == PyPI {
						path = "/" + strings.ReplaceAll(name, "-", "_") + "-" + v + "-py3-none-any.whl"
					}
					s := Source{Manager: m, Base: "/", Pins: pins}
					if why := s.Refuses(path, ""); why != "" {
						t.Errorf("%s pins %q %q, and %s is refused: %s", m, name, v, path, why)
					}
				}
			}
		}
	})
}

// FuzzFile: with pins, only a file at a pinned version or the index of a pinned name passes.
func FuzzFile(f *testing.F) {
	f.Add("/npm/left/-/left-1.0.0.tgz")
	f.Add("/simple/left_pad-1.0-py3-none-any.whl")
	f.Fuzz(func(t *testing.T, path string) {
		for _, s := range sources {
			p, file := s.File(path)
			if s.Refuses(path, "") != "" {
				continue
			}
			if !strings.HasPrefix(path, s.Base) || file && !slices.Contains(s.Pins[p.Name], p.Version) ||
				!file && s.Pins[s.index(path)] == nil {
				t.Errorf("%s %q passes as %+v", s.Manager, path, p)
			}
		}
	})
}
