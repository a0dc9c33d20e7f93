//go:build linux

package attack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"waldo/internal/model/facts"
	"waldo/internal/network/egress"
	"waldo/internal/network/egress/packages"
)

// registries serves two versions of a package: to npm, with and without a scope, and to pip, with files on another
// host.
func registries(mux *http.ServeMux) {
	// npm requests @team%2fwaldotest.
	mux.HandleFunc("npm.example.com/team/{name}", func(w http.ResponseWriter, r *http.Request) {
		var versions []string
		name := r.PathValue("name")
		for _, v := range []string{"1.0.0", "2.0.0"} {
			versions = append(versions,
				fmt.Sprintf(`%q:{"name":%q,"version":%q,"dist":{"tarball":"https://npm.example.com/team/%s/-/waldotest-%s.tgz"}}`,
					v, name, v, name, v))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"name":%q,"dist-tags":{"latest":"2.0.0"},"versions":{%s}}`, name, strings.Join(versions, ","))
	})
	for _, name := range []string{"waldotest", "@team/waldotest"} {
		for _, v := range []string{"1.0.0", "2.0.0"} {
			mux.HandleFunc("npm.example.com/team/"+name+"/-/waldotest-"+v+".tgz",
				func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(tarballOf(v)) })
		}
	}
	mux.HandleFunc("pypi.example.com/team/simple/waldotest/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		for _, v := range []string{"1.0", "2.0"} {
			fmt.Fprintf(w,
				`<a href="https://raw.example.com/files/waldotest-%s-py3-none-any.whl">waldotest-%s-py3-none-any.whl</a>`, v, v)
		}
	})
	for _, v := range []string{"1.0", "2.0"} {
		mux.HandleFunc("raw.example.com/files/waldotest-"+v+"-py3-none-any.whl",
			func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(wheelOf(v)) })
	}
	mux.Handle("apt.example.com/", http.NotFoundHandler())
	for path, b := range archive() {
		mux.HandleFunc("apt.example.com/debian/"+path, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(b) })
	}
	mux.HandleFunc("npm.example.com/elsewhere", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "not below the registry")
	})
}

// archive is an archive for apt with two versions of a package, by path. It is not signed.
func archive() map[string][]byte {
	all := map[string][]byte{}
	var list bytes.Buffer
	for _, v := range []string{"1.0-1", "2.0-1"} {
		b, path := debOf(v), "pool/main/w/waldotest_"+v+"_all.deb"
		all[path] = b
		fmt.Fprintf(&list, "Package: waldotest\nVersion: %s\nArchitecture: all\nFilename: %s\nSize: %d\nSHA256: %x\n\n",
			v, path, len(b), sha256.Sum256(b))
	}
	release := "Suite: bookworm\nCodename: bookworm\nComponents: main\nArchitectures: amd64 arm64\n" +
		"Date: Sat, 28 Nov 2026 00:00:00 UTC\nSHA256:\n"
	for _, arch := range []string{"amd64", "arm64"} {
		path := "main/binary-" + arch + "/Packages"
		all["dists/bookworm/"+path] = list.Bytes()
		release += fmt.Sprintf(" %x %d %s\n", sha256.Sum256(list.Bytes()), list.Len(), path)
	}
	all["dists/bookworm/Release"] = []byte(release)
	return all
}

// debOf is a version of the one package for apt.
func debOf(version string) []byte {
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	member := func(name string, body []byte) {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", name, 0, 0, 0, "100644", len(body))
		b.Write(body)
		if len(body)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	packed := func(name, text string) []byte {
		var b bytes.Buffer
		g := gzip.NewWriter(&b)
		w := tar.NewWriter(g)
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))})
		_, _ = io.WriteString(w, text)
		_, _ = w.Close(), g.Close()
		return b.Bytes()
	}
	member("debian-binary", []byte("2.0\n"))
	member("control.tar.gz", packed("./control", "Package: waldotest\nVersion: "+version+"\nArchitecture: all\n"+
		"Maintainer: waldo <waldo@example.com>\nDescription: a test\n"))
	member("data.tar.gz", packed("./waldotest.txt", "from the archive, "+version+"\n"))
	return b.Bytes()
}

// programsThatInstall runs npm, pip and apt-get against registries, with and without pins, on the current driver. alone
// selects the cases that begin with one of its words; empty: all.
func programsThatInstall(t *testing.T, dir string, pool *x509.CertPool, alone ...string) {
	source := func(m packages.Manager, host, base string, files bool, pins packages.Pins) egress.Rule {
		r, err := egress.ParseRule("GET,HEAD " + host + ":443" + base + "*")
		if err != nil {
			t.Fatal(err)
		}
		r.Registry = &packages.Source{Manager: m, Base: base, Files: files, Pins: pins}
		return r
	}
	env := []string{
		"npm_config_registry=https://npm.example.com/team/", "npm_config_audit=false",
		"PIP_INDEX_URL=https://pypi.example.com/team/simple",
	}
	const (
		npm = "mkdir n && cd n && npm install --silent --no-fund "
		pip = "python3 -m pip install -q --no-cache-dir --target t "
		apt = `printf 'deb [trusted=yes] https://apt.example.com/debian bookworm main\n' >l; ` +
			`export APT_CONFIG=/tmp/c; printf 'Dir::Etc::sourcelist "/tmp/l"; Dir::Etc::sourceparts "/dev/null"; ` +
			`Dir::State "/tmp/apt/"; Dir::State::status "/tmp/none"; Dir::Cache "/tmp/apt/"; APT::Sandbox::User ""; ` +
			`Acquire::Languages "none"; Acquire::https::CaInfo "/ca.pem";' >c; apt-get -qq update; apt-get -qq download `
		code = "curl -s -o /dev/null -m 60 -w '%{http_code}' "
		tgz  = "https://npm.example.com/team/waldotest/-/waldotest-2.0.0.tgz"
	)
	for _, row := range []struct {
		why, command string
		pinned       bool
		want         string // a part of the output
		fetched      string // with spaces: manager name version
		denied       string // host and code
	}{
		{"npm installs the newest", npm + "waldotest && cat node_modules/waldotest/package.json", false, `"version":"2.0.0"`,
			"npm waldotest 2.0.0", ""},
		{"npm installs with a scope", npm + "@team/waldotest && cat node_modules/@team/waldotest/package.json", false,
			`"version":"2.0.0"`, "npm @team/waldotest 2.0.0", ""},
		{
			"pip installs the newest, its file from another host",
			pip + "waldotest 2>&1 && PYTHONPATH=t python3 -c 'import waldotest' && ls t", false, "waldotest-2.0.dist-info",
			"pypi waldotest 2", "",
		},
		{"npm installs what is pinned", npm + "waldotest@1.0.0 && cat node_modules/waldotest/package.json", true,
			`"version":"1.0.0"`, "npm waldotest 1.0.0", ""},
		{"pip installs what is pinned", pip + "waldotest==1.0 2>&1 && ls t", true, "waldotest-1.0.dist-info",
			"pypi waldotest 1", ""},
		{"apt downloads the newest", apt + "waldotest 2>&1; dpkg-deb -x waldotest*.deb x && cat x/*", false,
			"from the archive, 2.0-1", "debian waldotest 2.0-1", ""},
		{"apt downloads what is pinned", apt + "waldotest=1.0-1 2>&1; dpkg-deb -x waldotest*.deb x && cat x/*", true,
			"from the archive, 1.0-1", "debian waldotest 1.0-1", ""},
		{"the control: without pins curl has the newest", code + tgz, false, "200", "npm waldotest 2.0.0", ""},

		{"npm wants what is not pinned", npm + "waldotest; ls node_modules 2>&1", true, "", "",
			"npm.example.com egress.packages.pin"},
		{"npm wants a scope that is not pinned", npm + "@team/waldotest; ls node_modules 2>&1", true, "", "",
			"npm.example.com egress.packages.pin"},
		{"pip wants what is not pinned", pip + "waldotest 2>&1; ls t", true, "403", "",
			"raw.example.com egress.packages.pin"},
		{"apt wants what is not pinned", apt + "waldotest 2>&1; ls *.deb", true, "403", "",
			"apt.example.com egress.packages.pin"},
		{"curl wants it too", code + tgz, true, "403", "", "npm.example.com egress.packages.pin"},
		{"and with a query", code + "'https://npm.example.com/team/waldotest/-/waldotest-1.0.0.tgz?v=2'", true, "403", "",
			"npm.example.com egress.packages.pin"},
		{"what is not below the registry", code + "https://npm.example.com/elsewhere", false, "403", "",
			"npm.example.com egress.request"},
		{"nothing is published", code + "-X PUT https://npm.example.com/team/waldotest", false, "403", "",
			"npm.example.com egress.request"},
		{"a wider rule is no way around", code + "http://npm.example.com/team/waldotest/-/waldotest-2.0.0.tgz", true, "000",
			"", "npm.example.com egress.port"},
	} {
		if len(alone) > 0 && !slices.ContainsFunc(alone, func(a string) bool { return strings.HasPrefix(row.why, a) }) {
			continue
		}
		var pinsN, pinsP, pinsD packages.Pins
		if row.pinned {
			pinsN, pinsP = packages.Pins{"waldotest": {"1.0.0"}}, packages.Pins{"waldotest": {"1"}}
			pinsD = packages.Pins{"waldotest": {"1.0-1"}}
		}
		wide, err := egress.ParseRules([]string{"npm.example.com", "api.example.com"})
		if err != nil {
			t.Fatal(err)
		}
		rules := append(wide, source(packages.NPM, "npm.example.com", "/team/", false, pinsN),
			source(packages.Debian, "apt.example.com", "/debian/", false, pinsD),
			source(packages.PyPI, "pypi.example.com", "/team/simple/", false, pinsP),
			source(packages.PyPI, "raw.example.com", "/files/", true, pinsP))
		out, f := inSandboxBy(t, dir, pool, egress.Options{}, rules, env, row.command)
		var fetched []string
		for _, p := range f.Network.Packages {
			fetched = append(fetched, p.Manager+" "+p.Name+" "+p.Version)
		}
		if !strings.Contains(out, row.want) || strings.Join(fetched, ",") != row.fetched {
			t.Errorf("%s: %q, fetched %q\n%+v", row.why, out, fetched, f.Network.Attempts)
		}
		if row.denied != "" && !slices.ContainsFunc(f.Network.Attempts,
			func(a facts.Attempt) bool { return a.Host+" "+a.Why == row.denied }) {
			t.Errorf("%s: %+v", row.why, f.Network.Attempts)
		}
	}
}
