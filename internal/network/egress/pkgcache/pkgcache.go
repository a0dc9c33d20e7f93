// Package pkgcache stores files that never change between runs, by their URL and SHA-256. The egress that fetched a
// file stores it; a sandbox can only be served from it.
package pkgcache

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Cache is a folder of kept files: SHA256(URL)-SHA256(FILE).
type Cache struct {
	dir  string
	most int64
}

// Open returns the cache in a folder, which it makes. It holds at most most bytes, and of one file a quarter.
func Open(dir string, most int64) (*Cache, error) {
	return &Cache{dir, most}, os.MkdirAll(dir, 0o700)
}

func key(url string) string {
	sum := sha256.Sum256([]byte(url))
	return hex.EncodeToString(sum[:])
}

// Get returns the stored file of a URL, and its size. It removes a file whose hash has changed.
func (s *Cache) Get(url string) (io.ReadCloser, int64, bool) {
	found, _ := filepath.Glob(filepath.Join(s.dir, key(url)+"-*"))
	for _, name := range found {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		h := sha256.New()
		n, err := io.Copy(h, f)
		if err == nil && strings.HasSuffix(name, "-"+hex.EncodeToString(h.Sum(nil))) {
			if _, err = f.Seek(0, io.SeekStart); err == nil {
				now := time.Now()
				_ = os.Chtimes(name, now, now) // the one that was not asked for longest goes first
				return f, n, true
			}
		}
		_ = f.Close()
		_ = os.Remove(name)
	}
	return nil, 0, false
}

// Keep returns a body that is stored after it was read to its end, if it has the given length.
func (s *Cache) Keep(url string, body io.ReadCloser, length int64) io.ReadCloser {
	if length < 0 || length > s.most/4 {
		return body
	}
	f, err := os.CreateTemp(s.dir, "new-*")
	if err != nil {
		return body
	}
	return &keeping{ReadCloser: body, s: s, key: key(url), f: f, h: sha256.New(), left: length}
}

type keeping struct {
	io.ReadCloser
	s    *Cache
	key  string
	f    *os.File // nil: over
	h    hash.Hash
	left int64
}

func (k *keeping) Read(b []byte) (int, error) {
	n, err := k.ReadCloser.Read(b)
	if k.f == nil {
		return n, err
	}
	k.h.Write(b[:n]) // never fails (hash.Hash)
	k.left -= int64(n)
	if _, werr := k.f.Write(b[:n]); werr != nil || k.left < 0 || err != nil && err != io.EOF {
		k.end(false)
	} else if k.left == 0 || err == io.EOF { // kept before the last of it is handed on
		k.end(k.left == 0)
	}
	return n, err
}

func (k *keeping) Close() error {
	k.end(k.left == 0)
	return k.ReadCloser.Close()
}

func (k *keeping) end(whole bool) {
	if k.f == nil {
		return
	}
	name := k.f.Name()
	err := k.f.Close()
	k.f = nil
	if !whole || err != nil || os.Rename(name, filepath.Join(k.s.dir, k.key+"-"+hex.EncodeToString(k.h.Sum(nil)))) != nil {
		_ = os.Remove(name)
		return
	}
	k.s.trim()
}

// trim removes the least recently used files until the rest fits, and half-written files of an earlier process.
func (s *Cache) trim() {
	entries, _ := os.ReadDir(s.dir)
	var all []fs.FileInfo
	var sum int64
	for _, e := range entries {
		if i, err := e.Info(); err == nil && i.Mode().IsRegular() {
			if strings.HasPrefix(e.Name(), "new-") && time.Since(i.ModTime()) < time.Hour {
				continue
			}
			all, sum = append(all, i), sum+i.Size()
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, i := range all {
		if sum > s.most || strings.HasPrefix(i.Name(), "new-") {
			_ = os.Remove(filepath.Join(s.dir, i.Name()))
			sum -= i.Size()
		}
	}
}
