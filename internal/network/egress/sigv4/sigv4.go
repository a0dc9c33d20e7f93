// Package sigv4 signs requests as Amazon Web Services want them signed (Signature Version 4,
// "Create a signed AWS API request"). It knows nothing of where the keys come from.
package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

// Key is the credentials for signing a request.
type Key struct {
	ID, Secret, Token string // Token is empty for keys that last
	Region, Service   string
}

// Empty is the hash of a request without a body.
const Empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// signed are the headers that are signed where they are there, besides host and all of x-amz-.
var signed = []string{"content-type", "content-md5"}

// Sign signs a request whose body has the given hash: hexadecimal, or a word that the service accepts in its place.
// It removes any earlier signature of the request.
func Sign(r *http.Request, hash string, k Key, now time.Time) {
	stamp := now.UTC().Format("20060102T150405Z")
	for _, name := range []string{"Authorization", "X-Amz-Security-Token", "Date"} {
		r.Header.Del(name)
	}
	r.Header.Set("X-Amz-Date", stamp)
	if k.Token != "" {
		r.Header.Set("X-Amz-Security-Token", k.Token)
	}
	if k.Service == "s3" {
		r.Header.Set("X-Amz-Content-Sha256", hash)
	}
	headers, names := canonicalHeaders(r)
	request := strings.Join([]string{
		r.Method, canonicalPath(r.URL, k.Service), canonicalQuery(r.URL.RawQuery), headers, names, hash,
	}, "\n")
	scope := strings.Join([]string{stamp[:8], k.Region, k.Service, "aws4_request"}, "/")
	sum := sha256.Sum256([]byte(request))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", stamp, scope, hex.EncodeToString(sum[:])}, "\n")
	key := []byte("AWS4" + k.Secret)
	for _, part := range strings.Split(scope, "/") {
		key = mac(key, part)
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+k.ID+"/"+scope+", SignedHeaders="+names+", Signature="+
		hex.EncodeToString(mac(key, text)))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func canonicalHeaders(r *http.Request) (lines, names string) {
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	all := map[string]string{"host": host}
	for name, values := range r.Header {
		name = strings.ToLower(name)
		if !strings.HasPrefix(name, "x-amz-") && !slices.Contains(signed, name) {
			continue
		}
		plain := make([]string, len(values))
		for i, v := range values {
			plain[i] = strings.Join(strings.Fields(v), " ")
		}
		all[name] = strings.Join(plain, ",")
	}
	var list []string
	for name := range all {
		list = append(list, name)
	}
	slices.Sort(list)
	for _, name := range list {
		lines += name + ":" + all[name] + "\n"
	}
	return lines, strings.Join(list, ";")
}

// canonicalPath is the path with its segments escaped alike: once for S3 and, without empty and dot
// segments, twice for others.
func canonicalPath(u *url.URL, service string) string {
	p := u.EscapedPath()
	if service != "s3" {
		last := strings.HasSuffix(p, "/")
		if p = path.Clean("/" + p); last && p != "/" {
			p += "/"
		}
	}
	segments := strings.Split(p, "/")
	for i, s := range segments {
		if segments[i] = again(s); service != "s3" {
			segments[i] = escape(segments[i])
		}
	}
	if p = strings.Join(segments, "/"); p == "" {
		return "/"
	}
	return p
}

// canonicalQuery is the query with its parts escaped alike and in order.
func canonicalQuery(raw string) string {
	if raw == "" {
		return ""
	}
	type part struct{ name, value string }
	var parts []part
	for piece := range strings.SplitSeq(raw, "&") {
		if piece == "" {
			continue
		}
		name, value, _ := strings.Cut(piece, "=")
		parts = append(parts, part{again(name), again(value)})
	}
	slices.SortFunc(parts, func(a, b part) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return strings.Compare(a.value, b.value)
	})
	var out []string
	for _, p := range parts {
		out = append(out, p.name+"="+p.value)
	}
	return strings.Join(out, "&")
}

// again escapes what is escaped in some way in the one way that is signed.
func again(s string) string {
	if plain, err := url.PathUnescape(s); err == nil {
		s = plain
	}
	return escape(s)
}

// escape writes every byte but letters, digits and -._~ as %XX (RFC 3986 §2.1, upper case).
func escape(s string) string {
	const upper = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~", c) >= 0:
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', upper[c>>4], upper[c&15]})
		}
	}
	return b.String()
}
