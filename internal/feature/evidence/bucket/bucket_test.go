package bucket

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/testing/s3test"
)

func values(all map[secret.Ref]string) func(secret.Ref) (secret.Value, error) {
	return func(r secret.Ref) (secret.Value, error) {
		text, ok := all[r]
		if !ok {
			return secret.Value{}, errors.New("no such secret")
		}
		return secret.NewValue(text), nil
	}
}

func at(t *testing.T, endpoint, key string) Bucket {
	t.Helper()
	b, err := Open(contract.Blobs{URL: "s3://" + s3test.Bucket + "/host-1/log", Endpoint: endpoint, Region: "us-east-1",
		Key: "id", Secret: "key"}, values(map[secret.Ref]string{"id": s3test.ID, "key": key}))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// conforms holds a bucket to what Bucket promises.
func conforms(t *testing.T, b Bucket) {
	ctx := t.Context()
	if names, err := b.List(ctx, "", ""); err != nil || len(names) != 0 {
		t.Fatalf("an empty bucket: %v %v", names, err)
	}
	if err := WriteOnce(ctx, b); err != nil {
		t.Fatal(err)
	}
	if err := WriteOnce(ctx, b); err != nil { // the second time, too
		t.Fatal(err)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for name, text := range map[string][]byte{"a/1": []byte("one"), "a/2": big, "a.x": nil, "tile/0/x001/000.p/5": []byte("t")} {
		if err := b.Put(ctx, name, text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := b.Get(ctx, name, MaxObject); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if err := b.Put(ctx, "a/1", []byte("two")); !errors.Is(err, ErrExists) {
		t.Errorf("a second put: %v", err)
	}
	if got, err := b.Get(ctx, "a/1", MaxObject); err != nil || string(got) != "one" {
		t.Errorf("after a second put: %q %v", got, err)
	}
	if _, err := b.Get(ctx, "a/3", MaxObject); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent object: %v", err)
	}
	for _, c := range []struct{ prefix, after, want string }{
		{"", "", "a.x a/1 a/2 tile/0/x001/000.p/5 write-once"}, {"a/", "", "a/1 a/2"}, {"a/", "a/1", "a/2"}, {"a/", "a/2", ""},
		{"a/", "a/0", "a/1 a/2"}, {"b", "", ""},
	} {
		names, err := b.List(ctx, c.prefix, c.after)
		if err != nil || strings.Join(names, " ") != c.want {
			t.Errorf("%q after %q: %v %v", c.prefix, c.after, names, err)
		}
	}
}

func TestFolder(t *testing.T) {
	b, err := Open(contract.Blobs{URL: "file://" + t.TempDir()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	conforms(t, b)
	gone := Folder(filepath.Join(t.TempDir(), "gone"))
	_, get := gone.Get(t.Context(), "x", MaxObject)
	_, list := gone.List(t.Context(), "", "")
	for _, err := range []error{get, list, gone.Put(t.Context(), "x", nil)} {
		if err == nil || get != nil && errors.Is(get, fs.ErrNotExist) {
			t.Errorf("a folder that is not mounted: %v", err)
		}
	}
}

// TestFolderLinks: what a folder has in place of a file or a folder of waldo's is no object, and nothing is
// written through it.
func TestFolderLinks(t *testing.T) {
	ctx, dir, elsewhere := t.Context(), t.TempDir(), t.TempDir()
	b := Folder(dir)
	if err := b.Put(ctx, "real/1", []byte("one")); err != nil {
		t.Fatalf("control: %v", err)
	}
	if got, err := b.Get(ctx, "real/1", 3); err != nil || string(got) != "one" {
		t.Fatalf("control: %q %v", got, err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(elsewhere, "1"), []byte("secret"), 0o600),
		os.Mkdir(filepath.Join(dir, "real", "dir"), 0o700),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(elsewhere, filepath.Join(dir, "link")),
		os.Symlink(filepath.Join(elsewhere, "1"), filepath.Join(dir, "real", "2")),
		os.Symlink("1", filepath.Join(dir, "real", "3"))); err != nil {
		t.Skipf("no links: %v", err)
	}
	for _, name := range []string{"link/1", "real/2", "real/3", "real/dir", "file/1"} {
		if got, err := b.Get(ctx, name, 100); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	if _, err := b.Get(ctx, "real/1", 2); !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "more than 2 bytes") {
		t.Errorf("a large object: %v", err)
	}
	for _, name := range []string{"link/new", "link/a/new", "file/new"} {
		if err := b.Put(ctx, name, nil); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s was written: %v", name, err)
		}
	}
	if err := b.Put(ctx, "real/2", nil); !errors.Is(err, ErrExists) {
		t.Errorf("onto a link: %v", err)
	}
	there, err := os.ReadDir(elsewhere)
	if names, lerr := b.List(ctx, "real/", ""); err != nil || lerr != nil || len(there) != 1 || !slices.Equal(names, []string{"real/1", "real/2", "real/3"}) {
		t.Errorf("%v, %v, %v, %v", there, err, names, lerr)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := b.Get(ended, "real/1", 3); !errors.Is(err, context.Canceled) {
		t.Errorf("out of time: %v", err)
	}
}

// TestS3 is against a real S3 server.
func TestS3(t *testing.T) {
	s := s3test.Start(t)
	b := at(t, s.Endpoint, s3test.Secret)
	conforms(t, b)
	t.Run("pages", func(t *testing.T) { // of 1,000 names
		want := []string{}
		for i := range 1100 {
			want = append(want, fmt.Sprintf("page/%04d", i))
			if err := b.Put(t.Context(), want[i], nil); err != nil {
				t.Fatal(err)
			}
		}
		got, err := b.List(t.Context(), "page/", "")
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d names, %v", len(got), err)
		}
	})
	t.Run("another key", func(t *testing.T) {
		err := at(t, s.Endpoint, "another-secret").Put(t.Context(), "x", nil)
		if err == nil || !strings.Contains(err.Error(), `403 "SignatureDoesNotMatch"`) || strings.Contains(err.Error(), "another-secret") {
			t.Error(err)
		}
	})
	t.Run("no such bucket", func(t *testing.T) {
		if err := os.RemoveAll(s.Folder); err != nil {
			t.Fatal(err)
		}
		_, err := b.List(t.Context(), "", "")
		if put := b.Put(t.Context(), "x", nil); err == nil || put == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(put, fs.ErrNotExist) {
			t.Errorf("%v, %v", err, put)
		}
	})
}

// lying is a server that answers as it likes.
func lying(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) Bucket {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(answer))
	t.Cleanup(srv.Close)
	return at(t, srv.URL, s3test.Secret)
}

// TestServers: a server that overwrites, redirects or sends lists without end or order is an error, and gets
// no secret.
func TestServers(t *testing.T) {
	objects := map[string][]byte{}
	keeps := true
	b := lying(t, func(w http.ResponseWriter, r *http.Request) {
		if h := fmt.Sprint(r.Header, r.URL); strings.Contains(h, s3test.Secret) || !strings.Contains(h, s3test.ID) {
			t.Errorf("the request: %s", h)
		}
		was, there := objects[r.URL.Path]
		switch {
		case r.Method == http.MethodPut && there && keeps && r.Header.Get("If-None-Match") == "*":
			w.WriteHeader(http.StatusPreconditionFailed)
		case r.Method == http.MethodPut:
			objects[r.URL.Path], _ = io.ReadAll(r.Body)
		case there:
			_, _ = w.Write(was)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "<Error><Code>NoSuchKey</Code></Error>")
		}
	})
	if err := WriteOnce(t.Context(), b); err != nil {
		t.Fatalf("control: %v", err)
	}
	if _, ok := objects["/audit/host-1/log/write-once"]; !ok {
		t.Errorf("%v", objects)
	}
	keeps = false
	if err := WriteOnce(t.Context(), b); !errors.Is(err, ErrOverwrites) {
		t.Errorf("a server that overwrites: %v", err)
	}

	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	moved := lying(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	if _, err := moved.Get(t.Context(), "x", MaxObject); err == nil || !strings.Contains(err.Error(), "307") {
		t.Errorf("a redirect: %v", err)
	}

	odd := lying(t, func(w http.ResponseWriter, r *http.Request) { // a name that XML cannot hold
		p := page{EncodingType: r.FormValue("encoding-type"), Contents: []struct{ Key string }{{"host-1/log/%01+%2B"}}}
		_ = xml.NewEncoder(w).Encode(p)
	})
	if names, err := odd.List(t.Context(), "", ""); err != nil || !slices.Equal(names, []string{"\x01 +"}) {
		t.Errorf("%q, %v", names, err)
	}
	for name, p := range map[string]page{
		"an empty page that goes on": {IsTruncated: true, NextContinuationToken: "x"},
		"the same page for ever": {IsTruncated: true, NextContinuationToken: "x",
			Contents: []struct{ Key string }{{"host-1/log/a"}}},
		"another prefix": {Contents: []struct{ Key string }{{"host-2/a"}}},
	} {
		b := lying(t, func(w http.ResponseWriter, _ *http.Request) { _ = xml.NewEncoder(w).Encode(p) })
		if names, err := b.List(context.WithoutCancel(t.Context()), "", ""); err == nil {
			t.Errorf("%s: %v", name, names)
		}
	}
}
