package main

import (
	"io"
	"log"
	"net/http/httptest"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/testscript"
)

// serveImage serves a tar as the one layer of the images root:1, told:1, which says an environment, a
// folder and a user, and unknown:1, whose user it does not know, of $REGISTRY, on loopback, until the
// script ends: registry root.tar.
func serveImage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: registry FILE")
	}
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	ts.Defer(srv.Close)
	host := strings.TrimPrefix(srv.URL, "http://")
	layer, err := tarball.LayerFromFile(ts.MkAbs(args[0]))
	ts.Check(err)
	for tag, c := range map[string]v1.Config{
		"root:1": {},
		"told:1": {Env: []string{"PATH=/opt/tools:/usr/bin:/bin", "GREETING=hello", "HOME=/root"},
			WorkingDir: "/opt/tools", User: "4321:4322"},
		"unknown:1": {User: "nosuch"},
	} {
		img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
			OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"}, Config: c,
		})
		ts.Check(err)
		img, err = mutate.AppendLayers(img, layer)
		ts.Check(err)
		ref, err := name.ParseReference(host + "/" + tag)
		ts.Check(err)
		ts.Check(remote.Write(ref, img))
	}
	ts.Setenv("REGISTRY", host)
}
