package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/network/egress/sigv4"
)

// s3 is a bucket of the S3 API, by four of its requests: PutObject with If-None-Match, GetObject and ListObjectsV2.
type s3 struct {
	base   *url.URL // of the bucket, with a slash at its end
	prefix string   // of the names, empty or with a slash at its end
	region string
	secret func(secret.Ref) (secret.Value, error)
	refs   [3]secret.Ref // the key's id, the key, the session's token
	client *http.Client
}

// The bounds of one request.
const (
	patience  = 5 * time.Minute // a segment over a slow line
	maxAnswer = 8 << 20         // bytes of a list or an error
)

func newS3(c contract.Blobs, u *url.URL, value func(secret.Ref) (secret.Value, error)) (*s3, error) {
	at := c.Endpoint
	if at == "" { // Amazon's own
		at = "https://s3." + c.Region + ".amazonaws.com"
	}
	base, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	if c.Endpoint == "" && !strings.Contains(u.Host, ".") { // a certificate covers one label
		base.Host = u.Host + "." + base.Host
		base.Path = "/"
	} else {
		base.Path = strings.TrimRight(base.Path, "/") + "/" + u.Host + "/"
	}
	s := &s3{base: base, prefix: strings.Trim(u.Path, "/"), region: c.Region, secret: value,
		refs: [3]secret.Ref{c.Key, c.Secret, c.Token}}
	if s.prefix != "" {
		s.prefix += "/"
	}
	s.client = &http.Client{Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return s, nil
}

// key returns what requests are signed with.
func (s *s3) key() (sigv4.Key, error) {
	var text [3]string
	for i, ref := range s.refs {
		if ref == "" {
			continue
		}
		v, err := s.secret(ref)
		if err != nil {
			return sigv4.Key{}, fmt.Errorf("%s: %w", ref, err)
		}
		text[i] = v.Reveal()
	}
	return sigv4.Key{ID: text[0], Secret: text[1], Token: text[2], Region: s.region, Service: "s3"}, nil
}

// do makes one request. query or name is empty. The caller closes the body.
func (s *s3) do(ctx context.Context, method, name string, query url.Values, body []byte) (*http.Response, error) {
	k, err := s.key()
	if err != nil {
		return nil, err
	}
	u := *s.base
	if query == nil {
		u.Path += s.prefix + name
	}
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if method == http.MethodPut {
		r.Header.Set("If-None-Match", "*")
	}
	sum := sha256.Sum256(body)
	sigv4.Sign(r, hex.EncodeToString(sum[:]), k, time.Now())
	return s.client.Do(r)
}

// refusal returns the error of an answer with another status than 200.
func refusal(name string, r *http.Response) error {
	var e struct{ Code string }
	_ = xml.NewDecoder(io.LimitReader(r.Body, maxAnswer)).Decode(&e)
	if r.StatusCode == http.StatusNotFound && (e.Code == "NoSuchKey" || e.Code == "") {
		return fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return fmt.Errorf("the bucket answered %d %.60q for %s", r.StatusCode, e.Code, name)
}

// Put writes an object.
func (s *s3) Put(ctx context.Context, name string, b []byte) error {
	r, err := s.do(ctx, http.MethodPut, name, nil, b)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	switch r.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusPreconditionFailed:
		return ErrExists
	}
	err = refusal(name, r)
	if errors.Is(err, fs.ErrNotExist) { // the bucket itself
		err = unlessMissing(err)
	}
	return err
}

// Get reads an object. A refusal can be of this object alone: one in an archive, or sealed with another key.
func (s *s3) Get(ctx context.Context, name string, most int) ([]byte, error) {
	r, err := s.do(ctx, http.MethodGet, name, nil, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode != http.StatusOK {
		err = refusal(name, r)
		if r.StatusCode == http.StatusForbidden || r.StatusCode == http.StatusBadRequest {
			err = fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		return nil, err
	}
	return whole(r.Body, most)
}

// List asks for page after page.
func (s *s3) List(ctx context.Context, prefix, after string) (names []string, err error) {
	q := url.Values{"list-type": {"2"}, "prefix": {s.prefix + prefix}, "encoding-type": {"url"}}
	if after != "" {
		q.Set("start-after", s.prefix+after)
	}
	for {
		page, err := s.page(ctx, q)
		if err != nil {
			return names, err
		}
		for _, o := range page.Contents {
			if page.EncodingType == "url" { // as a name with a control character is no XML
				if o.Key, err = url.QueryUnescape(o.Key); err != nil {
					return names, err
				}
			}
			name, ok := strings.CutPrefix(o.Key, s.prefix)
			if !ok || len(names) > 0 && name <= names[len(names)-1] {
				return names, fmt.Errorf("the bucket's list is not in order at %.80q", o.Key)
			}
			if name > after {
				names = append(names, name)
			}
		}
		if !page.IsTruncated {
			return names, nil
		}
		if len(page.Contents) == 0 || page.NextContinuationToken == "" {
			return names, errors.New("the bucket's list has no end")
		}
		q.Set("continuation-token", page.NextContinuationToken)
	}
}

type page struct {
	IsTruncated           bool
	NextContinuationToken string
	EncodingType          string
	Contents              []struct{ Key string }
}

func (s *s3) page(ctx context.Context, q url.Values) (p page, err error) {
	r, err := s.do(ctx, http.MethodGet, "", q, nil)
	if err != nil {
		return p, err
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode != http.StatusOK {
		if err = refusal("its list", r); errors.Is(err, fs.ErrNotExist) {
			err = unlessMissing(err)
		}
		return p, err
	}
	return p, xml.NewDecoder(io.LimitReader(r.Body, maxAnswer)).Decode(&p)
}
