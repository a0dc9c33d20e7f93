package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// npmRegistry serves packages from a folder with one folder for each version, as in weather/1.0.0/package.json,
// and writes down what it was asked.
type npmRegistry struct {
	dir   string
	mu    sync.Mutex
	asked []string
}

// serveNpm serves the packages below a folder as the registry of this user's npm, until the script
// ends: npmregistry FOLDER.
func serveNpm(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: npmregistry FOLDER")
	}
	srv := httptest.NewServer(&npmRegistry{dir: ts.MkAbs(args[0])})
	ts.Defer(srv.Close)
	ts.Check(os.WriteFile(filepath.Join(ts.Getenv("HOME"), ".npmrc"), []byte("registry="+srv.URL+"/\n"), 0o600))
}

func (n *npmRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	n.asked = append(n.asked, r.Method+" "+r.URL.Path)
	n.mu.Unlock()
	name, version, archive := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/-/")
	if archive {
		b, err := pack(filepath.Join(n.dir, name, version))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(b)
		return
	}
	versions, err := os.ReadDir(filepath.Join(n.dir, name))
	if err != nil || len(versions) == 0 {
		http.NotFound(w, r)
		return
	}
	doc := map[string]any{}
	latest := ""
	for _, v := range versions {
		latest = v.Name()
		b, err := os.ReadFile(filepath.Join(n.dir, name, latest, "package.json"))
		var m map[string]any
		if err != nil || json.Unmarshal(b, &m) != nil {
			http.NotFound(w, r)
			return
		}
		tgz, _ := pack(filepath.Join(n.dir, name, latest))
		sum := sha512.Sum512(tgz)
		dist := map[string]string{"tarball": "http://" + r.Host + "/" + name + "/-/" + latest}
		if m["unsigned"] == nil {
			dist["integrity"] = "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
		}
		m["dist"] = dist
		doc[latest] = m
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"name": name, "dist-tags": map[string]string{"latest": latest}, "versions": doc,
	})
}

// tamper adds a line to each file of that name below a folder: tamper FOLDER NAME.
func tamper(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: tamper FOLDER NAME")
	}
	done := false
	ts.Check(filepath.WalkDir(ts.MkAbs(args[0]), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != args[1] {
			return err
		}
		done = true
		f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString("// changed\n")
		return errors.Join(err, f.Close())
	}))
	if !done {
		ts.Fatalf("no file %s below %s", args[1], args[0])
	}
}

// pack makes the archive of a package.
func pack(dir string) ([]byte, error) {
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	w := tar.NewWriter(g)
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(text))})
		}
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	})
	_, _ = w.Close(), g.Close()
	return b.Bytes(), err
}
