package fetch

import (
	"container/list"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of the cache.
const (
	maxEntries = 256
	maxKept    = 32 << 20 // bytes of all bodies
	maxEntry   = 1 << 20
	maxFresh   = time.Hour
)

// cache keeps answers in memory. Each key begins with its principal and session, so that no session sees what another
// was sent. The zero cache is empty and ready to use.
type cache struct {
	mu    sync.Mutex
	bytes int
	used  list.List // of *entry, the latest first
	byKey map[string]*list.Element
}

// entry is one answer. Its fields but until do not change.
type entry struct {
	key    string
	status int
	header http.Header
	body   []byte
	until  time.Time // fresh before; later the host is asked whether it has changed
}

// get returns the answer stored under a key, or nil.
func (c *cache) get(key string) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[key]
	if !ok {
		return nil
	}
	c.used.MoveToFront(e)
	copied := *e.Value.(*entry)
	return &copied
}

// put keeps an answer to GET, if the host allows it (RFC 9111 §3) and the answer is whole.
func (c *cache) put(key string, a *answer, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.byKey[key]; ok {
		c.drop(old)
	}
	control := directives(a.Header)
	_, never := control["no-store"]
	vary := a.Header.Get("Vary")
	if a.StatusCode != http.StatusOK || a.cut || never || strings.Contains(vary, "*") || len(a.body) > maxEntry ||
		a.Header.Get("Set-Cookie") != "" {
		return
	}
	e := &entry{key: key, status: a.StatusCode, header: http.Header{}, body: a.body, until: fresh(a.Header, now)}
	for _, name := range []string{"Content-Type", "Etag", "Last-Modified"} {
		if v := a.Header.Get(name); v != "" {
			e.header.Set(name, v)
		}
	}
	if !now.Before(e.until) && e.header.Get("Etag") == "" && e.header.Get("Last-Modified") == "" {
		return // it could neither be used nor asked about
	}
	if c.byKey == nil {
		c.byKey = map[string]*list.Element{}
	}
	c.byKey[key] = c.used.PushFront(e)
	c.bytes += len(e.body)
	for c.used.Len() > maxEntries || c.bytes > maxKept {
		c.drop(c.used.Back())
	}
}

func (c *cache) drop(e *list.Element) {
	old := c.used.Remove(e).(*entry)
	delete(c.byKey, old.key)
	c.bytes -= len(old.body)
}

// directives reads Cache-Control.
func directives(h http.Header) map[string]string {
	out := map[string]string{}
	for part := range strings.SplitSeq(strings.Join(h.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		out[strings.ToLower(name)] = strings.Trim(value, `"`)
	}
	return out
}

// fresh returns until when an answer is used without asking. An hour is the most.
func fresh(h http.Header, now time.Time) time.Time {
	control := directives(h)
	if _, ask := control["no-cache"]; ask {
		return now
	}
	seconds, err := strconv.ParseInt(control["max-age"], 10, 32)
	if err != nil || seconds < 0 {
		return now
	}
	age, _ := strconv.ParseInt(h.Get("Age"), 10, 32)
	return now.Add(min(time.Duration(seconds-max(age, 0))*time.Second, maxFresh))
}

// ask makes a request conditional.
func (e *entry) ask(h http.Header) {
	if v := e.header.Get("Etag"); v != "" {
		h.Set("If-None-Match", v)
	}
	if v := e.header.Get("Last-Modified"); v != "" {
		h.Set("If-Modified-Since", v)
	}
}

// answer returns the stored answer in the form of a new one.
func (e *entry) answer(at string) *answer {
	return &answer{Response: &http.Response{StatusCode: e.status, Header: e.header}, url: at, body: e.body, cached: true}
}
