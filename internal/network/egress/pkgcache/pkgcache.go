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
	"sync"
	"sync/atomic"
	"time"
)

// Cache is a folder of kept files: SHA256(URL)-SHA256(FILE). All caches of a folder in one process are the same one.
type Cache struct {
	dir  string
	most int64

	mu       sync.Mutex
	checked  map[string]string // name of a file → stamp of the content whose digest was computed
	fetching map[string]int64  // key of a URL that is being stored → length
	reserved int64             // bytes of those
}

// open are the caches of this process, by folder.
var open sync.Map

// Open returns the cache in a folder, which it makes. It holds at most most bytes, with files that are being fetched, and
// of one file a quarter.
func Open(dir string, most int64) (*Cache, error) {
	c, _ := open.LoadOrStore(dir, &Cache{dir: dir, most: most, checked: map[string]string{}, fetching: map[string]int64{}})
	return c.(*Cache), os.MkdirAll(dir, 0o700)
}

func key(url string) string {
	sum := sha256.Sum256([]byte(url))
	return hex.EncodeToString(sum[:])
}

// Get returns the stored file of a URL, and its size. It removes a file whose hash has changed. A file is hashed again
// only if it was written since.
func (s *Cache) Get(url string) (io.ReadCloser, int64, bool) {
	found, _ := filepath.Glob(filepath.Join(s.dir, key(url)+"-*"))
	for _, name := range found {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		if s.sound(f, name) {
			now := time.Now()
			_ = os.Chtimes(name, now, now) // the one that was not asked for longest goes first
			if info, err := f.Stat(); err == nil {
				s.note(name, info)
				return f, info.Size(), true
			}
		}
		_ = f.Close()
		_ = os.Remove(name)
	}
	return nil, 0, false
}

// sound reports whether a file has the content of its name, and leaves it at its beginning.
func (s *Cache) sound(f *os.File, name string) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	s.mu.Lock()
	known := s.checked[name]
	s.mu.Unlock()
	if known != "" && known == stamp(info) {
		return true
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	hashed.Add(1)
	return err == nil && strings.HasSuffix(name, "-"+hex.EncodeToString(h.Sum(nil)))
}

// hashed counts the files that were hashed, for a test.
var hashed atomic.Int64

// note remembers that a file is sound as it is.
func (s *Cache) note(name string, info fs.FileInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked[name] = stamp(info)
}

// Keep returns a body that is stored after it was read to its end, if it has the given length. A URL that is being stored
// is not stored a second time, and files in the making count in the bound.
func (s *Cache) Keep(url string, body io.ReadCloser, length int64) io.ReadCloser {
	if length < 0 || length > s.most/4 || !s.reserve(key(url), length) {
		return body
	}
	f, err := os.CreateTemp(s.dir, "new-*")
	if err != nil {
		s.release(key(url))
		return body
	}
	return &keeping{ReadCloser: body, s: s, key: key(url), f: f, h: sha256.New(), left: length}
}

// reserve makes room for a file that is being fetched.
func (s *Cache) reserve(key string, length int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.fetching[key]; twice || s.reserved+length > s.most {
		return false
	}
	s.fetching[key] = length
	s.reserved += length
	s.trim()
	return true
}

func (s *Cache) release(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved -= s.fetching[key]
	delete(s.fetching, key)
	s.trim()
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
	}
	k.s.release(k.key)
}

// trim removes the least recently used files until the rest fits beside the files that are being fetched, and
// half-written files of an earlier process. s.mu is held.
func (s *Cache) trim() {
	entries, _ := os.ReadDir(s.dir)
	var all []fs.FileInfo
	sum := s.reserved
	for _, e := range entries {
		if i, err := e.Info(); err == nil && i.Mode().IsRegular() {
			if strings.HasPrefix(e.Name(), "new-") {
				if time.Since(i.ModTime()) > time.Hour {
					_ = os.Remove(filepath.Join(s.dir, e.Name()))
				}
				continue
			}
			all, sum = append(all, i), sum+i.Size()
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, i := range all {
		if sum <= s.most {
			return
		}
		name := filepath.Join(s.dir, i.Name())
		_ = os.Remove(name)
		delete(s.checked, name)
		sum -= i.Size()
	}
}
