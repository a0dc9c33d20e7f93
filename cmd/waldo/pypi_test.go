package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// pypi serves packages like a Python index (PEP 503), from a folder with one folder for each version, as in
// weather/1.0.0/weather.py. A version with a setup.py is a source package, others are wheels. A version with a file
// "lie" has a wrong hash.
type pypi struct{ dir string }

// servePyPI serves the packages below a folder as the index of this user's pip, until the script ends:
// pypi FOLDER.
func servePyPI(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: pypi FOLDER")
	}
	srv := httptest.NewServer(pypi{ts.MkAbs(args[0])})
	ts.Defer(srv.Close)
	conf := filepath.Join(ts.Getenv("HOME"), ".config", "pip")
	ts.Check(os.MkdirAll(conf, 0o700))
	ts.Check(os.WriteFile(filepath.Join(conf, "pip.conf"), []byte("[global]\nindex-url = "+srv.URL+"/simple\n"), 0o600))
}

func (p pypi) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(at) == 2 && at[0] == "simple":
		versions, err := os.ReadDir(filepath.Join(p.dir, at[1]))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		var page bytes.Buffer
		for _, v := range versions {
			if !v.IsDir() {
				continue
			}
			name, b, err := p.archive(at[1], v.Name())
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			sum := sha256.Sum256(b)
			if _, err := os.Stat(filepath.Join(p.dir, at[1], v.Name(), "lie")); err == nil {
				sum = sha256.Sum256([]byte("another wheel"))
			}
			fmt.Fprintf(&page, "<a href=\"/files/%s/%s/%s#sha256=%x\">%s</a>\n", at[1], v.Name(), name, sum, html.EscapeString(name))
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = page.WriteTo(w)
	case len(at) == 4 && at[0] == "files":
		if _, b, err := p.archive(at[1], at[2]); err == nil {
			_, _ = w.Write(b)
		}
	default:
		http.NotFound(w, r)
	}
}

// archive makes the file of one version.
func (p pypi) archive(name, version string) (string, []byte, error) {
	dir := filepath.Join(p.dir, name, version)
	if _, err := os.Stat(filepath.Join(dir, "setup.py")); err == nil {
		b, err := pack(dir)
		return name + "-" + version + ".tar.gz", b, err
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	put := func(file string, text []byte) error {
		w, err := z.Create(file)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	info := strings.ReplaceAll(name, "-", "_") + "-" + version + ".dist-info/"
	err := put(info+"WHEEL", []byte("Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"))
	if err != nil {
		return "", nil, err
	}
	needs, _ := os.ReadFile(filepath.Join(dir, "needs"))
	meta := "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"
	for _, n := range strings.Fields(string(needs)) {
		meta += "Requires-Dist: " + n + "\n"
	}
	if err := put(info+"METADATA", []byte(meta)); err != nil {
		return "", nil, err
	}
	if points, err := os.ReadFile(filepath.Join(dir, "entry_points.txt")); err == nil {
		if err := put(info+"entry_points.txt", points); err != nil {
			return "", nil, err
		}
	}
	err = fs.WalkDir(os.DirFS(dir), ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".py") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		return put(strings.Replace(file, "above", "..", 1), text) // no folder of a test is called ".."
	})
	if end := z.Close(); err == nil {
		err = end
	}
	return strings.ReplaceAll(name, "-", "_") + "-" + version + "-py3-none-any.whl", b.Bytes(), err
}
