//go:build linux

package attack

import (
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
	mux.HandleFunc("npm.example.com/elsewhere", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "not below the registry")
	})
}

// programsThatInstall runs npm and pip against registries, with and without pins, on the current driver. alone
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
		npm  = "mkdir n && cd n && npm install --silent --no-fund "
		pip  = "python3 -m pip install -q --no-cache-dir --target t "
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
		{"the control: without pins curl has the newest", code + tgz, false, "200", "npm waldotest 2.0.0", ""},

		{"npm wants what is not pinned", npm + "waldotest; ls node_modules 2>&1", true, "", "",
			"npm.example.com egress.packages.pin"},
		{"npm wants a scope that is not pinned", npm + "@team/waldotest; ls node_modules 2>&1", true, "", "",
			"npm.example.com egress.packages.pin"},
		{"pip wants what is not pinned", pip + "waldotest 2>&1; ls t", true, "403", "",
			"raw.example.com egress.packages.pin"},
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
		var pinsN, pinsP packages.Pins
		if row.pinned {
			pinsN, pinsP = packages.Pins{"waldotest": {"1.0.0"}}, packages.Pins{"waldotest": {"1"}}
		}
		wide, err := egress.ParseRules([]string{"npm.example.com", "api.example.com"})
		if err != nil {
			t.Fatal(err)
		}
		rules := append(wide, source(packages.NPM, "npm.example.com", "/team/", false, pinsN),
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
